r"""Checks rearrangements: every step finds its GPUs free, all that is wanted fits, and no fewer moves do.

At prices :math:`\lambda_{ps} \ge 0` of pieces of s GPUs of pool p, every rearrangement has at least

.. math:: \sum_t n_t \min_p \sum_s d_{tps} \lambda_{ps} + \sum_i v_i

moves, where each of the :math:`n_t` wanted jobs of kind t takes :math:`d_{tps}` pieces. The value :math:`v_i`
of place i is the least of its moves, plus the prices of the pieces that these jobs need elsewhere, less those
of the pieces that it gives. Places are nodes, single GPUs in pools of counts, and in pools of blocks those of
the largest wanted size, and smaller structural ones: jobs that are as large need not move.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.rearrangement import Nodes, Rearrangement, Wanted
from wattsched.topology.arrays import IntArray
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.pools import block_of, places_of, pools_of

NOBODY, STAYS = -1, -2
ZERO = Fraction(0)


def least_moves(instance: Instance, wanted: list[Wanted], prices: Mapping[str, float]) -> int:
    """Return the number of moves that no rearrangement can do without, as prices of pieces prove."""
    site = _Site(instance)
    price: dict[str, dict[int, Fraction]] = {pool: {} for pool in site.of_pool}
    for name, value in prices.items():
        pool, _, size = name.removeprefix("piece:").rpartition(":")
        if pool in price and size.isdecimal() and 0.0 < value < math.inf:
            price[pool][int(size)] = Fraction(value)
    cost, largest = ZERO, dict[str, int]()
    for kind in wanted:
        sizes = {pool: site.pieces(pool, gpus) for pool, gpus in kind.gpus.items()}
        of_pool = [sum((price[pool].get(s, ZERO) for s in every), ZERO) for pool, every in sizes.items()]
        cost += kind.count * min(of_pool)
        largest |= {pool: max(largest.get(pool, 1), *every) for pool, every in sizes.items()}
    values = [site.least_value(pool, size, price[pool]) for pool, size in largest.items()]
    return max(0, math.ceil(cost + sum(values)))


def rearrangement_faults(instance: Instance, found: Rearrangement) -> list[str]:
    """Return what is wrong with a rearrangement, a sentence each; none for one that is right."""
    site = _Site(instance)
    if faults := [*site.faults_of_wanted(found.wanted)]:
        return faults
    proven, moves = least_moves(instance, found.wanted, found.prices), found.moves
    if found.proven_bound > proven:
        faults.append(f"proven_bound is {found.proven_bound}, but {proven} are proven")
    if moves is None:
        return [*faults, *["there are steps without a number of moves"] * bool(found.steps or found.fitted)]
    if not found.proven_bound <= found.bound <= moves or (found.reason == "optimal" and found.bound < moves):
        faults.append(
            f"bound {found.bound} contradicts proven_bound, or that {moves} moves are {found.reason}"
        )
    return [*faults, *site.faults_of_steps(found), *site.faults_of_fitted(found)]


class _Site:
    """The GPUs of a round and who has each; steps of a rearrangement change it."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.jobs = instance, instance.by_column()
        self.places, self.of_pool = places_of(instance.cluster), pools_of(instance.cluster)
        self.number = {name: j for j, name in enumerate(self.jobs.names)}
        self.held = {j: held for j in self.jobs.running.tolist() if (held := self.jobs.held(j)) is not None}
        self.owner = np.where(self.places.available, NOBODY, STAYS)
        for j, held in self.held.items():
            self.owner[self.places.gpus(held.nodes)] = j
        # Jobs that may leave a place of their own, and how large it is.
        self.sizes = dict[int, int]()
        for j, held in self.held.items():
            place = self.place(held.nodes, held.pool)
            if place is None or not np.isin(self.owner[place], (j, NOBODY)).all():
                self.owner[self.places.gpus(held.nodes) if place is None else place] = STAYS
                continue
            self.owner[place] = j
            if self.of_pool[held.pool].capacity != "count" and not self.jobs.fixed[j] and held.set is None:
                self.sizes[j] = len(place)

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

    def place(self, nodes: Nodes, pool: str) -> IntArray | None:
        """GPUs that a job takes for itself in a block or on a node; None where they are in several."""
        gpus = self.places.gpus(nodes)
        if self.of_pool[pool].capacity != "blocks":
            return gpus if len(nodes) == 1 else None
        begin, aligned = self.places.reserved(gpus, np.array([0]), np.array([len(gpus)]))
        return self.line(pool)[begin[0] : begin[0] + int(block_of(len(gpus)))] if aligned[0] else None

    def least_value(self, pool: str, largest: int, price: Mapping[int, Fraction]) -> Fraction:
        """Sum of the least values of a pool's places, at the prices of its pieces."""
        one, line = self.of_pool[pool], self.line(pool)
        movers = [j for j, size in self.sizes.items() if one.capacity == "nodes" or size < largest]
        owner = np.where(np.isin(self.owner[line], [NOBODY, *movers]), self.owner[line], STAYS)
        if one.capacity == "blocks":
            step = np.minimum(one.sizes, largest)
            parts = np.split(owner, np.cumsum(np.repeat(step, one.sizes // step))[:-1])
            return sum((_block_value(part.tolist(), price) for part in parts), ZERO)
        on = self.places.on_node[line] if one.capacity == "nodes" else np.arange(len(line))
        order = np.argsort(on, kind="stable")
        parts = np.split(owner[order], np.flatnonzero(np.diff(on[order])) + 1)
        return sum((_node_value(part.tolist(), price) for part in parts), ZERO)

    def faults_of_wanted(self, wanted: list[Wanted]) -> Iterator[str]:
        """Yield what is wrong with what is wanted: a pool, or the smallest size of a job of the round."""
        known = JobConfigurations(self.instance, self.of_pool)
        for kind in wanted:
            if not kind.gpus or not kind.gpus.keys() <= self.of_pool.keys():
                yield f"'{kind.name}' is wanted in pools that the cluster does not have: {[*kind.gpus]}"
            if (j := self.number.get(kind.name)) is not None:
                rows = sorted((row.setting[:2] for row in known.of(j)), reverse=True)
                if j in self.held or kind.count > 1 or kind.gpus != dict(rows):
                    yield f"job '{kind.name}' runs, or its smallest size is another: {kind.gpus}"
        if len({kind.name for kind in wanted}) < len(wanted):
            yield "a name is wanted twice"

    def faults_of_steps(self, found: Rearrangement) -> Iterator[str]:
        """Carry out the steps, and yield what is wrong with them."""
        now, moved = dict[int, Nodes](), set[int]()
        for step in found.steps:
            told, j = f"job '{step.job}'", self.number.get(step.job, NOBODY)
            if j not in self.sizes:
                yield f"{told} may not move"
                continue
            held = self.held[j]
            if step.before != now.get(j, held.nodes) or not (step.before or step.after) or j in moved:
                yield f"{told} does not hold what it leaves, or moves twice: {step.before}"
            self.owner[self.owner == j] = NOBODY
            now[j] = step.after
            if step.after:
                moved.add(j)
                yield from self._taken(told, held.pool, held.gpus, step.after, j)
        yield from (f"job '{self.jobs.names[j]}' stops for good" for j in now if not now[j])
        if len(moved) != found.moves:
            yield f"{len(moved)} jobs move, not {found.moves}"

    def faults_of_fitted(self, found: Rearrangement) -> Iterator[str]:
        """Give those that are wanted their GPUs, and yield what is wrong with that."""
        fits, kinds = Counter(one.name for one in found.fitted), {kind.name: kind for kind in found.wanted}
        if fits != {kind.name: kind.count for kind in found.wanted}:
            yield f"other jobs fit than are wanted: {dict(fits)}"
            return
        for n, one in enumerate(found.fitted):
            if (gpus := kinds[one.name].gpus.get(one.pool)) is None:
                yield f"'{one.name}' is not wanted in pool '{one.pool}'"
            else:
                yield from self._taken(f"'{one.name}'", one.pool, gpus, one.nodes, len(self.jobs) + n)

    def _taken(self, told: str, pool: str, gpus: int, nodes: Nodes, j: int) -> Iterator[str]:
        """Take GPUs for a job; yield what is wrong with them."""
        places, one = self.places, self.of_pool[pool]
        listed = {(places.node.get(node, NOBODY), gpu) for node, numbers in nodes.items() for gpu in numbers}
        known = all(node >= 0 and gpu < places.size[node] for node, gpu in listed)
        if not known or {places.pools[places.pool[node]] for node, _ in listed} != {pool}:
            yield f"{told} takes GPUs that pool '{pool}' does not have: {nodes}"
            return
        if not len(listed) == sum(map(len, nodes.values())) == gpus:
            yield f"{told} takes other than {gpus} GPUs: {nodes}"
            return
        place = self.place(nodes, pool)
        partly = sum(len(numbers) < one.gpus_per_node for numbers in nodes.values())
        if (one.capacity == "blocks" and place is None) or (one.capacity == "nodes" and partly > 1):
            yield f"{told} takes GPUs that are in no block, or of several nodes in part: {nodes}"
            return
        own = places.gpus(nodes) if place is None else place
        if (self.owner[own] != NOBODY).any():
            yield f"{told} takes GPUs that are not free when it is its turn: {nodes}"
        self.owner[own] = j


def _block_value(owner: list[int], price: Mapping[int, Fraction]) -> Fraction:
    """Least value of an aligned block: that of its halves, or of all jobs leaving, and a free block."""
    size, jobs = len(owner), Counter(owner)
    _, stays = jobs.pop(NOBODY, 0), jobs.pop(STAYS, 0)
    if size in jobs.values():  # such a job needs as much room elsewhere
        return ZERO
    half = size // 2
    value = _block_value(owner[:half], price) + _block_value(owner[half:], price) if half else ZERO
    if stays:
        return value
    leave = sum((1 + price.get(n, ZERO) for n in jobs.values()), ZERO)
    worth = max((size // s * price[s] for s in price if s <= size), default=ZERO)
    return min(value, leave - worth)


def _node_value(owner: list[int], price: Mapping[int, Fraction]) -> Fraction:
    """Least value of a node: some of its jobs leave, and its free GPUs are cut into the best pieces."""
    jobs = Counter(owner)
    free, sizes = jobs.pop(NOBODY, 0), Counter(n for job, n in jobs.items() if job != STAYS)
    best = [ZERO] * (len(owner) + 1)
    for n in range(1, len(best)):
        best[n] = max([best[n - 1], *(best[n - s] + worth for s, worth in price.items() if s <= n)])
    return min(
        sum((n * (1 + price.get(s, ZERO)) for s, n in zip(sizes, leave, strict=True)), ZERO)
        - best[free + sum(n * s for s, n in zip(sizes, leave, strict=True))]
        for leave in product(*(range(n + 1) for n in sizes.values()))
    )
