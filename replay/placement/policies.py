r"""Placement policies by name: the published ones, and `Bid`, which pays for capacity.

A bid is the least watts now plus the worth of the capacity that is used up or spoilt: a placement on node n
costs

.. math:: \Delta P_n + \pi\,(U_n - U_n') + \sigma_n d + \omega_n + \epsilon_n

where :math:`\Delta P_n` are the watts that it adds, :math:`U_n - U_n'` is the usable capacity that it takes
from the node (`UsableCapacity`: more than the task asks for if it strands GPUs without CPU, or leaves a rest
of a GPU that no share fits into), d the GPUs asked for, and :math:`\pi` and :math:`\sigma_n` are the
`CapacityPrices` at the demand that will have arrived a little later, or at the horizon; :math:`\omega_n` is
owed when a node that was whole is broken up (`WholeNodes`), and :math:`\epsilon_n` is next to nothing: for
vCPUs of active packages that are left over, and for CPU beside a free GPU that a task without GPU takes. The
task goes where it costs least.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np

from wattsched.formulations.placement.capacity import CapacityPrices, Prices, UsableCapacity, WholeNodes
from wattsched.formulations.placement.heuristics import RULES, Random, Scoring
from wattsched.formulations.placement.state import (
    ClusterState,
    Factory,
    Placement,
    PolicyContext,
    Request,
)
from wattsched.inputs import meant
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

LOOK_AHEAD = 0.07
"""How much further than what has arrived prices look, as a part of the cluster's GPU capacity."""

SPARE_W = 0.3
"""Cost of a vCPU left over in active packages: where CPU costs nothing more, the tightest fit wins."""

BESIDE_W = 1.0
"""Price of a vCPU beside a GPU that is still of use, for tasks without GPU."""

HORIZON = 0.95
"""Demand that `reserving` prepares for, as a part of the capacity: once all is used, all is equally dear."""

_STEPS = 100  # prices are found anew when this part of the capacity has arrived
_DIGITS = 6  # costs are compared to a millionth of a watt, so that rounding decides no tie
_MOST_KEPT = 20_000_000


class Bid:
    """Policy that pays for capacity.

    Parameters
    ----------
    context : PolicyContext
        What is known before the first task.
    reserving : bool
        Whether types of nodes that some tasks depend on are priced as at the `HORIZON` from the beginning.
        Less is refused in the end, and more power is drawn until then.
    """

    def __init__(self, context: PolicyContext, reserving: bool = False):
        self._power = context.power
        self._capacity = UsableCapacity(context.target)
        self._capacity_prices = CapacityPrices(context.nodes, context.power, context.target)
        self._whole_nodes = WholeNodes(context.nodes, context.power)
        self._gpus = int(context.nodes.gpus.sum())
        self._kept_w: FloatArray | None = None
        if reserving:
            self._kept_w = self._capacity_prices.at(HORIZON * self._gpus).reserve_w
        self._arrived_milli = 0
        self._found: dict[int, Prices] = {}
        self._whole = self._whole_nodes.largest.copy()
        self._needing = 0
        self._breaking_w = np.zeros(len(context.nodes))
        self._kept: dict[Request, _Costs] = {}

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Take the cheapest place that fits, the first of them in a tie."""
        costs = self._refreshed(request, state)
        prices, gpus = self._prices(), request.demand_milli / WHOLE_GPU
        reserve_w = prices.reserve_w[:, None] * gpus
        breaking_w = self._breaking_w[:, None] * costs.wakes
        total_w = costs.watts + prices.capacity_w * costs.capacity + reserve_w + breaking_w
        total_w = total_w.round(_DIGITS)
        node, gpu = divmod(int(total_w.argmin()), total_w.shape[1])
        if total_w[node, gpu] == np.inf:
            return None
        if request.shared:
            return Placement(node, (gpu,))
        return Placement(node, state.first_free_gpus(node, request.gpus))

    def on_decision(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Count what arrived, whether it was placed or not, and what nodes are whole."""
        self._arrived_milli += request.demand_milli
        self._needing += request.gpus == self._whole_nodes.size
        if placement is not None and placement.gpus:
            self._whole[placement.node] = False
        if self._needing and request.gpus:
            # As many are expected as came in the past: they are too rare for the target workload.
            soon = LOOK_AHEAD * self._gpus * WHOLE_GPU / self._arrived_milli
            self._breaking_w = self._whole_nodes.rent_w(self._whole, self._needing * soon)

    def _prices(self) -> Prices:
        step = _STEPS * self._arrived_milli // (WHOLE_GPU * self._gpus)
        if step not in self._found:
            soon = step / _STEPS + LOOK_AHEAD
            prices = self._capacity_prices.at(soon * self._gpus)
            if self._kept_w is not None and soon < HORIZON:
                prices = Prices(prices.capacity_w, self._kept_w)
            self._found = {step: prices}
        return self._found[step]

    def _refreshed(self, request: Request, state: ClusterState) -> _Costs:
        """Costs of a request that are true now: those of nodes that changed are found anew."""
        costs = self._kept.get(request)
        if costs is None:
            width = state.gpu_free_milli.shape[1] if request.shared else 1
            if len(self._kept) * state.gpu_free_milli.size > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            costs = self._kept[request] = _Costs.unknown(len(state.nodes), width)
        if costs.placements < state.placements:
            changed = np.flatnonzero(state.changed > costs.placements)
            self._find(costs, changed, request, state)
            costs.placements = state.placements
        return costs

    def _find(self, costs: _Costs, nodes: IntArray, request: Request, state: ClusterState) -> None:
        costs.watts[nodes] = np.inf
        nodes = nodes[state.fits(request, nodes)]
        if not nodes.size:
            return
        cpu = state.cpu_free_milli[nodes]
        cpu_after = cpu - request.cpu_milli
        packages_w = self._power.cpu_w(cpu_after, nodes) - self._power.cpu_w(cpu, nodes)
        cpu_w = packages_w + SPARE_W * self._power.spare_vcpus(cpu_after, nodes)
        gpu_w = self._power.gpu_full_w[nodes] - self._power.gpu_idle_w[nodes]
        free = state.gpu_free_milli[nodes]
        value = self._capacity.gpu_value(free)
        before = self._capacity.usable(value, cpu)
        if not request.gpus:
            cpu_w = cpu_w + BESIDE_W * np.minimum(value, 1.0) * (request.cpu_milli / 1000)
        if not request.shared:
            after = self._capacity.usable(value - request.gpus, cpu_after)
            costs.watts[nodes, 0] = cpu_w + gpu_w * request.gpus
            costs.capacity[nodes, 0] = before - after
            costs.wakes[nodes, 0] = request.gpus > 0
            return
        fits = free >= request.gpu_milli
        rest = np.where(fits, free - request.gpu_milli, 0)
        value_after = value[:, None] - self._capacity.share_value[free] + self._capacity.share_value[rest]
        after = self._capacity.usable(value_after, np.broadcast_to(cpu_after[:, None], free.shape))
        wakes = free == WHOLE_GPU
        costs.watts[nodes] = np.where(fits, cpu_w[:, None] + gpu_w[:, None] * wakes, np.inf)
        costs.wakes[nodes] = wakes
        costs.capacity[nodes] = before[:, None] - after


@dataclass
class _Costs:
    """What a request costs on each node, or for a share on each GPU; infinite watts where it does not fit."""

    watts: FloatArray
    capacity: FloatArray
    wakes: BoolArray
    placements: int = -1

    @staticmethod
    def unknown(nodes: int, width: int) -> _Costs:
        shape = (nodes, width)
        return _Costs(np.full(shape, np.inf), np.zeros(shape), np.zeros(shape, dtype=bool))


_OTHERS: dict[str, Factory] = {
    "random": Random,
    "bid": Bid,
    "bid-reserve": partial(Bid, reserving=True),
}
"""Name to how to make a policy that does not only score."""
WEIGHTS = 1000
"""Sum of the weights of a combination."""


def names() -> list[str]:
    """Names of the policies; two of the scoring ones can also be combined."""
    return [*RULES, *_OTHERS]


def policy_factory(name: str) -> Factory:
    """Find how to make a policy by its name, or by two names and weights such as ``pwr+fgd:100/900``.

    Raises
    ------
    ValueError
        If there is no such policy, or the weights do not sum to `WEIGHTS`.
    """
    if name in _OTHERS:
        return _OTHERS[name]
    if name in RULES:
        return lambda context: Scoring([RULES[name](context)])
    found = re.fullmatch(r"([a-z-]+)\+([a-z-]+):(\d{1,4})/(\d{1,4})", name, flags=re.ASCII)
    if found is None:
        known = names()
        told = meant(name, known) or f"; there are {', '.join(known)}, and combinations like pwr+fgd:100/900"
        raise ValueError(f"there is no policy '{name}'{told}")
    parts, weights = found.groups()[:2], [int(weight) for weight in found.groups()[2:]]
    for part in parts:
        if part not in RULES:
            told = meant(part, RULES) or f"; those that do are {', '.join(RULES)}"
            raise ValueError(f"'{part}' in '{name}' does not score{told}")
    if sum(weights) != WEIGHTS:
        raise ValueError(f"the weights of '{name}' must sum to {WEIGHTS}, got {sum(weights)}")
    return lambda context: Scoring([RULES[part](context) for part in parts], weights)
