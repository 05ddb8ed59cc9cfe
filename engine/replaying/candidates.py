"""Candidates are the clusters that one may have instead of today's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import naming, require_known, require_range
from wattsched.instances.gpu_names import stated_gpu_type
from wattsched.reading.inputs import listed, notice
from wattsched.replaying.price_sheet import PriceSheet
from wattsched.topology.cluster import Cluster, Node
from wattsched.topology.pools import pools_of

MOST = 10_000
"""Candidates."""


class Candidate(NamedTuple):
    """Numbers of nodes, in the order of a site's pools, and a cap on the whole cluster, None for none."""

    nodes: tuple[int, ...]
    power_w: float | None


@dataclass(frozen=True)
class Site:
    """Today's cluster, and the prices of it and of what could be had."""

    cluster: Cluster
    prices: PriceSheet

    def __post_init__(self) -> None:
        if domains := self.cluster.power_domains:
            told = f"has the power domain '{domains[0].name}'"
            raise ValueError(f"cluster: {told}, and capacity plans know one cap, on the whole cluster")
        if lacking := [pool for pool in self.owned if pool not in self.prices.nodes]:
            raise ValueError(f"prices: nodes lacks the cluster's {listed(lacking)}; 0 is a price, too")
        for pool, nodes in self.owned.items():
            price, sizes = self.prices.nodes[pool], sorted({node.gpus for node in nodes})
            if "gpus" in price.model_fields_set and [price.gpus] != sizes:
                found = ", ".join(map(str, sizes))
                told = f"is {price.gpus}, and the cluster's nodes of this pool have {found}"
                raise ValueError(f"prices: nodes.{pool}.gpus {told}")

    @cached_property
    def owned(self) -> dict[str, list[Node]]:
        """Nodes of today by pool, each with the pool as its label."""
        nodes = {node.name: node for node in self.cluster.nodes}
        return {
            pool.name: [nodes[name].model_copy(update={"pool": pool.name}) for name in pool.nodes]
            for pool in pools_of(self.cluster)
        }

    @cached_property
    def pools(self) -> tuple[str, ...]:
        """Pools of today, and types that can be bought."""
        return tuple(dict.fromkeys([*self.owned, *self.prices.nodes]))

    @cached_property
    def _new(self) -> dict[str, Cluster]:
        """One node of each type that is not there today."""
        with naming("prices"):
            kinds = {pool: stated_gpu_type(pool) for pool in self.pools if pool not in self.owned}
        return {
            pool: homogeneous_cluster(1, self.prices.nodes[pool].gpus, name, kind=kind)
            for pool, (name, kind) in kinds.items()
        }

    @property
    def today(self) -> tuple[int, ...]:
        """Number of nodes of each pool."""
        return tuple(len(self.owned.get(pool, ())) for pool in self.pools)

    def candidates(
        self, nodes: Mapping[str, Sequence[int]], caps_w: Sequence[float | None]
    ) -> Iterator[Candidate]:
        """Yield all combinations of numbers of nodes, other pools being as today, and caps."""
        there = dict(zip(self.pools, self.today, strict=True))
        for pool, counts in nodes.items():
            require_known("nodes: pool of the cluster or the price sheet", pool, self.pools)
            require_range(min(counts, default=-1) >= 0, f"nodes: {pool}", "0 or more", [*counts])
            if self.prices.nodes[pool].bought_year is None and max(counts) > there[pool]:
                told = f"there are {there[pool]}, and the prices have no bought_year for more"
                raise ValueError(f"nodes: {pool}: {told}, got {max(counts)}")
        every = [nodes.get(pool, [n]) for pool, n in there.items()]
        many = prod(map(len, every)) * len(caps_w)
        require_range(many <= MOST, "nodes", f"{MOST:,} candidates at most, caps included", f"{many:,}")
        if all(0 in counts for counts in every):
            notice("left out: the candidate without nodes")
        for counts in product(*every):
            yield from (Candidate(counts, power_w) for power_w in caps_w if any(counts))

    def with_nodes(self, nodes: Sequence[int], *, flat: bool = False) -> Cluster:
        """Build the cluster of so many nodes of each pool; `flat`: without groups, for the largest blocks."""
        kept = list[Node]()
        for pool, n in zip(self.pools, nodes, strict=True):
            owned = self.owned.get(pool, [])
            model = owned[-1] if owned else self._new[pool].nodes[0].model_copy(update={"parent": None})
            names = (f"{pool}-more{i}" for i in range(n - len(owned)))
            changes = {"pool": pool, "unavailable": []}
            kept += [*owned[:n], *(model.model_copy(update={"name": name, **changes}) for name in names)]
        if flat:
            kept = [node.model_copy(update={"parent": None}) for node in kept]
        types = {name: kind for one in self._new.values() for name, kind in one.gpu_types.items()}
        return self.cluster.model_copy(
            update={"nodes": kept, "gpu_types": {**types, **self.cluster.gpu_types}}
        )

    def hardware_year(self, nodes: Sequence[int]) -> float:
        """Return what so many nodes of each pool cost in a year."""
        cost = 0.0
        for pool, n, there in zip(self.pools, nodes, self.today, strict=True):
            price = self.prices.nodes[pool]
            cost += price.owned_year * min(n, there) + (price.bought_year or 0.0) * max(n - there, 0)
        return cost
