"""Clusters that one may have instead of today's: `Candidate`, `Site`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import require_known, require_range
from wattsched.instances.gpu_names import stated_gpu_type
from wattsched.reading.inputs import listed
from wattsched.replaying.price_sheet import PriceSheet
from wattsched.topology.cluster import Cluster, GpuType, Node
from wattsched.topology.pools import pools_of


@dataclass(frozen=True)
class Candidate:
    """Numbers of nodes, in the order of the pools of a `Site`, and a power cap.

    Attributes
    ----------
    nodes : tuple of int
    power_w : float or None
        Of the whole cluster; None for no cap.
    """

    nodes: tuple[int, ...]
    power_w: float | None


@dataclass(frozen=True)
class Site:
    """Today's cluster, the prices, and what could be had for them."""

    cluster: Cluster
    prices: PriceSheet

    def __post_init__(self) -> None:
        if self.cluster.power_domains:
            told = f"has the power domain '{self.cluster.power_domains[0].name}'"
            raise ValueError(f"cluster: {told}, and here one cap is for the whole cluster")
        if lacking := [pool for pool in self.owned if pool not in self.prices.nodes]:
            raise ValueError(f"prices: nodes lacks the cluster's {listed(lacking)}; 0 is a price, too")

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
        """Pools that the prices name, those of today in their order first."""
        return tuple([*(pool for pool in self.owned if pool in self.prices.nodes), *self._new])

    @cached_property
    def _new(self) -> dict[str, tuple[Node, GpuType]]:
        """A node of each type that is not there today, and the type."""
        found = {}
        for name, price in self.prices.nodes.items():
            if name not in self.owned:
                gpu_type, kind = stated_gpu_type(name)
                (node,) = homogeneous_cluster(1, price.gpus, gpu_type, kind=kind).nodes
                found[name] = node.model_copy(update={"parent": None, "pool": name}), kind
        return found

    @property
    def today(self) -> tuple[int, ...]:
        """Number of nodes of each pool."""
        return tuple(len(self.owned.get(pool, ())) for pool in self.pools)

    def candidates(
        self, nodes: Mapping[str, Sequence[int]], caps_w: Sequence[float | None]
    ) -> Iterator[Candidate]:
        """Yield all combinations of numbers of nodes, of other pools today's, and caps; a GPU at least."""
        for pool, counts in nodes.items():
            require_known("nodes: pool", pool, self.pools)
            require_range(min(counts, default=-1) >= 0, f"nodes: {pool}", "0 or more", [*counts])
            price, most = self.prices.nodes[pool], len(self.owned.get(pool, ()))
            if price.bought_year is None and max(counts) > most:
                told = f"{max(counts)} nodes, the cluster has {most}, and the prices have no bought_year"
                raise ValueError(f"nodes: {pool}: {told}")
        every = [nodes.get(pool, [n]) for pool, n in zip(self.pools, self.today, strict=True)]
        for counts, power_w in product(product(*every), caps_w):
            if any(counts):
                yield Candidate(counts, power_w)

    def with_nodes(self, nodes: Sequence[int], *, flat: bool = False) -> Cluster:
        """Build the cluster of so many nodes of each pool; `flat`: all of them without groups above."""
        kept = list[Node]()
        for pool, n in zip(self.pools, nodes, strict=True):
            owned = self.owned.get(pool, [])
            model = owned[-1] if owned else self._new[pool][0]
            more = [
                model.model_copy(update={"name": f"{pool}-more{i}", "unavailable": []})
                for i in range(n - len(owned))
            ]
            kept += [*owned[:n], *more]
        if flat:
            kept = [node.model_copy(update={"parent": None}) for node in kept]
        types = {self._new[pool][0].gpu_type: self._new[pool][1] for pool in self._new}
        update = {"nodes": kept, "gpu_types": {**types, **self.cluster.gpu_types}}
        return self.cluster.model_copy(update=update)

    def hardware_year(self, nodes: Sequence[int]) -> float:
        """Return what so many nodes of each pool cost in a year."""
        cost = 0.0
        for pool, n, there in zip(self.pools, nodes, self.today, strict=True):
            price = self.prices.nodes[pool]
            cost += price.owned_year * min(n, there) + (price.bought_year or 0.0) * max(n - there, 0)
        return cost
