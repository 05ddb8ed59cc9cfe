"""Order of moves in which each job finds its new GPUs free, with few jobs that stop for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf

from wattsched.formulations.sizing.moves import Piece

Kind = tuple[int, int]
"""Pool and size of pieces that will do for one another."""


def in_order(
    held: Mapping[int, Piece], pieces: Sequence[Piece]
) -> tuple[list[tuple[int, list[int]]], dict[Kind, list[list[int]]]]:
    """Give every job that moves a piece of its size, and say when it moves.

    A job can move once a piece has all its GPUs free. Of those that can, that one does which leaves a place
    where the fewest GPUs are missing for a piece. Where none can, such a job stops, and goes on later.

    Parameters
    ----------
    held : mapping of int to Piece
        What each job holds now.
    pieces : sequence of Piece
        Free in the end; of every size there are enough.

    Returns
    -------
    steps : list of (int, list of int)
        Job and positions of its new piece; none where it stops.
    left : dict of (int, int) to list of list of int
        Positions of the pieces that no job takes, by pool and size.
    """
    number = {(p, i): n for n, (p, _, place) in enumerate(pieces) for i in place}
    busy = {(piece.pool, i) for piece in held.values() for i in piece.place}
    free = {n: {i for i in place if (p, i) not in busy} for n, (p, _, place) in enumerate(pieces)}
    # Pieces of one place have all its GPUs in common, and the number of the last of them.
    unused = defaultdict[Kind, list[int]](list)
    for p, size, place in pieces:
        unused[p, size].append(number[p, place[0]])
    pending = {job: (piece.pool, piece.size) for job, piece in held.items()}
    inside = {job: {number[p, i] for i in place if (p, i) in number} for job, (p, _, place) in held.items()}
    steps, stopped = list[tuple[int, list[int]]](), set[int]()

    def take(kind: Kind, n: int) -> list[int]:
        unused[kind].remove(n)
        positions = sorted(free[n])[: kind[1]]
        free[n].difference_update(positions)
        return positions

    def urgency(job: int) -> float:
        """Fewest GPUs that are missing for a piece that some job needs, in a place where this one is."""
        needed = (kind for kind in {*pending.values()} if kind[0] == pending[job][0])
        lacking = (kind[1] - len(free[n]) for kind in needed for n in unused[kind] if n in inside[job])
        return min((gpus for gpus in lacking if gpus > 0), default=inf)

    while pending:
        ready = {kind: n for kind in pending.values() for n in unused[kind] if len(free[n]) >= kind[1]}
        able = [job for job, kind in pending.items() if kind in ready]
        job = min(able or pending.keys() - stopped, key=lambda job: (urgency(job), pending[job], job))
        if able:
            kind = pending.pop(job)
            steps.append((job, take(kind, ready[kind])))
        else:
            stopped.add(job)
            steps.append((job, []))
        p, _, place = held[job]
        for i in place if inside[job] else ():
            if (p, i) in number:
                free[number[p, i]].add(i)
        inside[job] = set()
    return steps, {kind: [take(kind, n) for n in [*places]] for kind, places in unused.items()}
