"""Splits of certificate trees that count: at most so many of something inside, more of it outside.

Each side is a row like any other. Leaves below price it under the name ``split:NODE``, the node that has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattsched.verification.tree import Taken

MOST = 10**9
"""Nothing is counted beyond."""


@dataclass(frozen=True)
class Counted:
    """The row of a split's side: ``count <= limit`` inside, ``count >= limit`` outside.

    Attributes
    ----------
    row : str
    what : mapping
        What is counted, in the words of the problem.
    """

    row: str
    what: Mapping[str, Any]
    inside: bool
    limit: int


def counted(taken: Sequence[Taken], fields: Collection[str]) -> list[Counted]:
    """Rows of the sides of splits.

    Parameters
    ----------
    taken : sequence of Taken
        Splits have ``at_most``, a whole number, besides what they count.
    fields : collection of str
        That what is counted can have.

    Raises
    ------
    ValueError
        If a split is none.
    """
    rows = []
    for split, inside, node in taken:
        if strangers := sorted(str(name) for name in split.keys() - {"at_most", *fields}):
            raise ValueError(f"split: {strangers[0]!r:.80} is not a field of it")
        most = split.get("at_most")
        if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= MOST:
            raise ValueError(f"split.at_most: must be a whole number from 0 on, not {most!r:.80}")
        rows.append(Counted(f"split:{node}", split, inside, most if inside else most + 1))
    return rows


def named(what: Mapping[str, Any], field: str, known: Collection[str]) -> list[str] | None:
    """A list of known names that a split has, or None without it; a ValueError for anything else."""
    names = what.get(field)
    if names is None:
        return None
    if not isinstance(names, list):
        raise ValueError(f"split.{field}: must be a list of names, not {names!r:.80}")
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"split.{field}: {name!r:.80} is not in the instance")
    return names
