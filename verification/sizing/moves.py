r"""Checks rearrangements: every step finds its GPUs free, all that is wanted fits, and no fewer moves do.

At prices :math:`\lambda_{ps} \ge 0` of pieces of s GPUs of pool p, every rearrangement has at least

.. math:: \sum_t n_t \min_p \sum_s d_{tps} \lambda_{ps} + \sum_{\text{places } i} v_i

moves, where each of the :math:`n_t` wanted jobs of kind t takes :math:`d_{tps}` pieces. The value :math:`v_i`
of a place is the least of its moves, plus the prices of the pieces that these jobs need elsewhere, less the
prices of the pieces that it gives. Places are nodes; single GPUs in pools of counts; and in pools of blocks,
where jobs as large as the largest wanted block need not move, blocks of that size and smaller structural
ones. The number is whole, so it is rounded up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Placement
from wattsched.instances.sizing.rearrangement import Nodes, Rearrangement, Wanted
from wattsched.topology.arrays import IntArray
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.pools import block_of, places_of, pools_of

NOBODY, STAYS = -1, -2


def least_moves(instance: Instance, wanted: list[Wanted], prices: Mapping[str, float]) -> int:
    """Return the number of moves that no rearrangement can do without, as prices of pieces prove."""
    site = _Site(instance)
    price: dict[str, dict[int, Fraction]] = {name: {} for name in site.places.pools}
    for name, value in prices.items():
        pool, _, size = name.removeprefix("piece:").rpartition(":")
        if pool in price and size.isdecimal() and 0.0 < value < math.inf:
            price[pool][int(size)] = Fraction(value)
    cost, largest = Fraction(0), dict[str, int]()
    for kind in wanted:
        pieces = {pool: site.pieces(pool, gpus) for pool, gpus in kind.gpus.items()}
        cost += kind.count * min(
            sum((price[pool].get(size, Fraction(0)) for size in sizes), Fraction(0))
            for pool, sizes in pieces.items()
        )
        for pool, sizes in pieces.items():
            largest[pool] = max(largest.get(pool, 1), *sizes)
    for pool, most in largest.items():
        cost += site.least_value(pool, most, price[pool])
    return max(0, math.ceil(cost))


def rearrangement_faults(instance: Instance, found: Rearrangement) -> list[str]:
    """Return what is wrong with a rearrangement, a sentence each; none for one that is right."""
    if strange := {pool for kind in found.wanted for pool in kind.gpus} - {*_Site(instance).places.pools}:
        return [f"wanted: '{min(strange)}' is no pool of the cluster"]
    proven = least_moves(instance, found.wanted, found.prices)
    faults = (
        [] if found.proven_bound <= proven else [f"proven_bound is {found.proven_bound}, proven are {proven}"]
    )
    if found.moves is None:
        return faults + ["there are steps, but no number of moves"] * bool(found.steps or found.fitted)
    if not found.proven_bound <= found.bound <= found.moves:
        faults.append(
            f"bound {found.bound} is not from proven_bound {found.proven_bound} to {found.moves} moves"
        )
    if found.reason == "optimal" and found.bound < found.moves:
        faults.append(f"{found.moves} moves are no optimum, the bound is {found.bound}")
    return [*faults, *_Replay(instance).faults(found)]


class _Site:
    """The cluster of a round, and what its jobs hold."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.jobs = instance, instance.by_column()
        self.places, self.of_pool = places_of(instance.cluster), pools_of(instance.cluster)
        self.holder = np.where(self.places.available, NOBODY, STAYS)
        for j in self.jobs.running.tolist():
            self.holder[self.places.gpus(self.held(j).nodes)] = j

    def held(self, j: int) -> Placement:
        """What a running job holds."""
        held = self.jobs.held(j)
        assert held is not None
        return held

    def pieces(self, pool: str, gpus: int) -> list[int]:
        """GPUs that a job takes in one place each."""
        one = self.of_pool[pool]
        if one.capacity == "blocks":
            return [int(block_of(gpus))]
        most = one.gpus_per_node if one.capacity == "nodes" else 1
        return [min(most, gpus - first) for first in range(0, gpus, most)]

    def line(self, pool: str) -> IntArray:
        """GPUs of a pool in the order of its line."""
        begin = int(self.places.line[self.places.pools.index(pool)])
        return self.places.on_lines[begin : begin + len(self.of_pool[pool].line)]

    def block_around(self, gpus: IntArray, pool: str) -> IntArray | None:
        """GPUs of the aligned block around a job's, in pools of blocks; None where there is none."""
        if self.of_pool[pool].capacity != "blocks" or not len(gpus):
            return None
        begin, aligned = self.places.reserved(gpus, np.array([0]), np.array([len(gpus)]))
        first, size = int(begin[0]), int(block_of(len(gpus)))
        return self.line(pool)[first : first + size] if aligned[0] else None

    def after_reserving(self, largest: Mapping[str, int]) -> IntArray:
        """Job that may move from each GPU, `NOBODY` where it is free, or `STAYS`."""
        owner = self.holder.copy()
        for j in self.jobs.running.tolist():
            held = self.held(j)
            gpus, moves = (
                self.places.gpus(held.nodes),
                bool(self.jobs.flags("preemptible")[j]) and held.set is None,
            )
            block, capacity = self.block_around(gpus, held.pool), self.of_pool[held.pool].capacity
            if block is not None:
                others = self.holder[block]
                moves &= bool(((others == j) | (others == NOBODY)).all()) and len(block) < largest.get(
                    held.pool, 0
                )
                gpus = np.append(gpus, block[others == NOBODY])
            else:
                moves &= capacity == "nodes" and len(held.nodes) == 1
            owner[gpus] = j if moves else STAYS
        return owner

    def least_value(self, pool: str, largest: int, price: Mapping[int, Fraction]) -> Fraction:
        """Sum of the least values of a pool's places, at the prices of its pieces."""
        owner = self.after_reserving({pool: largest})[self.line(pool)].tolist()
        if self.of_pool[pool].capacity == "count":
            return -owner.count(NOBODY) * price.get(1, Fraction(0))
        if self.of_pool[pool].capacity == "nodes":
            nodes = self.places.on_node[self.line(pool)].tolist()
            on_node: dict[int, list[int]] = {}
            for node, holder in zip(nodes, owner, strict=True):
                on_node.setdefault(node, []).append(holder)
            return sum((_node_value(held, price) for held in on_node.values()), Fraction(0))
        begin, total = 0, Fraction(0)
        for size in self.of_pool[pool].sizes.tolist():
            step = min(size, largest)
            total += sum(
                (_block_value(owner[i : i + step], price) for i in range(begin, begin + size, step)),
                Fraction(0),
            )
            begin += size
        return total


def _block_value(owner: list[int], price: Mapping[int, Fraction]) -> Fraction:
    """Least value of an aligned block: that of its halves, or of all jobs leaving, and a free block."""
    size, jobs = len(owner), Counter(owner)
    free, stays = jobs.pop(NOBODY, 0), jobs.pop(STAYS, 0)
    value = (
        Fraction(0)
        if size == 1
        else _block_value(owner[: size // 2], price) + _block_value(owner[size // 2 :], price)
    )
    if stays or (len(jobs) == 1 and not free):
        # A job that fills the block gives as much room as it needs elsewhere.
        return value if stays else Fraction(0)
    leave = sum((1 + price.get(n, Fraction(0)) for n in jobs.values()), Fraction(0))
    worth = max((size // s * price[s] for s in price if s <= size), default=Fraction(0))
    return min(value, leave - worth)


def _node_value(owner: list[int], price: Mapping[int, Fraction]) -> Fraction:
    """Least value of a node: some of its jobs leave, and its free GPUs are cut into the best pieces."""
    jobs = Counter(owner)
    free, sizes = jobs.pop(NOBODY, 0), Counter(n for job, n in jobs.items() if job != STAYS)
    best = [Fraction(0)] * (len(owner) + 1)
    for n in range(1, len(best)):
        best[n] = max([best[n - 1], *(best[n - s] + worth for s, worth in price.items() if s <= n)])
    return min(
        sum((n * (1 + price.get(s, Fraction(0))) for s, n in zip(sizes, leave, strict=True)), Fraction(0))
        - best[free + sum(n * s for s, n in zip(sizes, leave, strict=True))]
        for leave in product(*(range(n + 1) for n in sizes.values()))
    )


class _Replay(_Site):
    """Carries out a rearrangement, step by step."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.number = {name: j for j, name in enumerate(self.jobs.names)}
        self.owner = self.holder.copy()
        for j in self.jobs.running.tolist():
            held = self.held(j)
            block = self.block_around(self.places.gpus(held.nodes), held.pool)
            if block is not None:
                self.owner[block[self.owner[block] == NOBODY]] = j

    def faults(self, found: Rearrangement) -> Iterator[str]:
        """Yield what is wrong with the steps, in their order, and with what fits in the end."""
        now, moved = dict[int, Nodes](), set[int]()
        for step in found.steps:
            told, j = f"job '{step.job}'", self.number.get(step.job)
            if j is None or self.jobs.held(j) is None:
                yield f"{told} does not run"
                continue
            held = self.held(j)
            if step.before != now.get(j, held.nodes) or not (step.before or step.after):
                yield f"{told} does not hold what it leaves: {step.before}"
            if j in moved:
                yield f"{told} moves twice"
            if self.jobs.fixed[j] or held.set is not None:
                yield f"{told} may not move"
            self.owner[self.owner == j] = NOBODY
            now[j] = step.after
            if step.after:
                moved.add(j)
                yield from (f"{told} {fault}" for fault in self._taken(held.pool, held.gpus, step.after, j))
        yield from (f"job '{self.jobs.names[j]}' stops for good" for j in now if not now[j])
        if len(moved) != found.moves:
            yield f"{len(moved)} jobs move, not {found.moves}"
        for kind in found.wanted:
            if (n := sum(one.name == kind.name for one in found.fitted)) != kind.count:
                yield f"'{kind.name}' fits {n} times, not {kind.count}"
        known, kinds = (
            JobConfigurations(self.instance, self.of_pool),
            {kind.name: kind for kind in found.wanted},
        )
        for n, one in enumerate(found.fitted):
            gpus = kinds[one.name].gpus.get(one.pool) if one.name in kinds else None
            if gpus is None:
                yield f"'{one.name}' is not wanted in pool '{one.pool}'"
                continue
            j = self.number.get(one.name)
            if j is not None and not any(row.setting[:2] == (one.pool, gpus) for row in known.of(j)):
                yield f"job '{one.name}' cannot run on {gpus} GPUs of pool '{one.pool}'"
            yield from (
                f"'{one.name}' {fault}"
                for fault in self._taken(one.pool, gpus, one.nodes, len(self.jobs) + n)
            )

    def _taken(self, pool: str, gpus: int, nodes: Nodes, j: int) -> Iterator[str]:
        """Take GPUs for a job; yield what is wrong with them."""
        places = self.places
        listed = [(node, gpu) for node, numbers in nodes.items() for gpu in numbers]
        if any(node not in places.node or gpu >= places.size[places.node[node]] for node, gpu in listed):
            yield f"takes GPUs that do not exist: {nodes}"
            return
        own = places.gpus(nodes)
        if len({*own.tolist()}) != gpus or len(own) != gpus:
            yield f"takes {len(own)} GPUs, not {gpus}"
        if {places.pools[p] for p in places.home[own].tolist()} != {pool}:
            yield f"takes GPUs that are not in pool '{pool}'"
            return
        if self.of_pool[pool].capacity == "blocks":
            block = self.block_around(own, pool)
            if block is None:
                yield f"takes GPUs that are in no block: {nodes}"
                return
            own = block
        elif self.of_pool[pool].capacity == "nodes":
            partly = [
                node for node, numbers in nodes.items() if len(numbers) < self.of_pool[pool].gpus_per_node
            ]
            if len(partly) > 1:
                yield f"takes parts of several nodes: {nodes}"
        if (self.owner[own] != NOBODY).any():
            yield f"takes GPUs that are not free when it is its turn: {nodes}"
        self.owner[own] = j
