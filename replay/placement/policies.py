r"""Placement policies by name: the published ones, their combinations, and `Bid`.

`Bid` pays for capacity, and draws no more than PWR while PWR hosts everything. A bid is the least watts now
plus the worth of what is used up or spoilt: a placement on node n costs

.. math::
    \Delta P_n + \epsilon \ell_n + \gamma\,(\Phi_n - \Phi_n') + \pi\,(U_n - U_n') + \sigma_n d + \omega_n

where :math:`\Delta P_n` are the watts that it adds, :math:`\ell_n` the vCPUs of active packages that it
leaves over, :math:`\Phi_n - \Phi_n'` what the rest of the node loses for the tasks to come (`NodeValues`),
:math:`U_n - U_n'` the usable capacity that it takes (`UsableCapacity`: more than the task asks for if it
strands GPUs without CPU, or leaves a rest of a GPU that no share fits into), d the GPUs asked for,
:math:`\pi` and :math:`\sigma_n` the `CapacityPrices`, and :math:`\omega_n` is owed when a node that was whole
is broken up (`WholeNodes`). The task goes where it costs least.

Few tasks that arrive do not make the patterns that the duals are of, so :math:`\gamma` rises with what has
arrived, and :math:`\epsilon`, by which the tightest fit wins, falls. What is needed later is bought with
power now: `Shadow` follows PWR on the same tasks, and says how much of it there is. With the last of it
:math:`\gamma`, :math:`\sigma_n` and :math:`\omega_n` fall to 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np

from wattsched.formulations.placement.capacity import CapacityPrices, UsableCapacity, WholeNodes
from wattsched.formulations.placement.heuristics import RULES, Pwr, Random, Scoring
from wattsched.formulations.placement.node_values import NodeValues, Worth
from wattsched.formulations.placement.state import ClusterState, Factory, Placement, PolicyContext, Request
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.reading.inputs import meant
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

LOOK_AHEAD = 0.07
"""Distance that prices look beyond what has arrived, as a part of the cluster's GPU capacity."""

SPARE_W = 0.3
"""Cost of a vCPU left over in active packages when nothing has arrived."""

TRUST = (0.6, 0.9)
"""Weights of the losses that duals give for nodes: when nothing has arrived, and at the end."""

SETTLED = 0.5
"""Part of the capacity that has to arrive until duals are trusted most, and spare vCPUs cost nothing."""

HORIZON = 0.95
"""Demand that GPU models are kept for, as a part of the capacity: once all is used, all is equally dear."""

MOST_RESERVE_W = 42.0
"""Most that a GPU is kept for while PWR hosts everything: light tasks, which lose least, go elsewhere."""

MARGIN, AMPLE = 1.5e-3, 8e-3
"""Parts of its power that must be left to PWR's for the full price of keeping GPU models, and for the full
worth of what nodes lose and of nodes that are whole."""

HOSTS_ALL = 0.995
"""GRAR from which PWR counts as a policy that hosts everything."""

_STEPS = 100  # prices of types of nodes are found anew when this part of the capacity has arrived
_LEVELS = 20  # and duals of the configuration LP, which take longer, when this part has
_DIGITS = 6  # costs are compared to a millionth of a watt, so that rounding decides no tie
_MOST_KEPT = 20_000_000


class Bid:
    """Policy that pays for capacity.

    Parameters
    ----------
    within_pwr : bool
        Keep what later tasks need only as far as no more power is drawn than by PWR, until PWR refuses tasks.
        Otherwise less is refused in the end, and more power drawn.
    """

    def __init__(self, context: PolicyContext, within_pwr: bool = True):
        nodes, power, target = context.nodes, context.power, context.target
        self._context, self._within_pwr, self._power = context, within_pwr, power
        self._gpus = int(nodes.gpus.sum())
        self._capacity = UsableCapacity(target)
        self._prices = CapacityPrices(nodes, power, target)
        self._values = NodeValues(nodes, power, target, self._prices.refused_w)
        self._whole_nodes = WholeNodes(nodes, power)
        self._whole = self._whole_nodes.largest.copy()
        self._needing = 0
        self._breaking_w = np.zeros(len(nodes))
        self._arrived_milli = 0
        self._shadow: Shadow | None = None
        self._step = self._level = -1
        self._kept: dict[Request, _Costs] = {}

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Take the cheapest place that fits, the first of them in a tie."""
        self._look(state)
        costs, arrived = self._refreshed(request, state), self._arrived
        settled = min(1.0, arrived / SETTLED)
        ample = 1.0 if self._limit is None else self._limit.leeway(AMPLE)
        trust = TRUST[0] * (1 - settled) + TRUST[1] * settled * ample
        total_w = costs.watts + SPARE_W * (1 - settled) * costs.spare
        total_w += trust * costs.worth_w + self._capacity_w * costs.capacity
        total_w += ample * self._breaking_w[:, None] * costs.wakes
        total_w += self._payable_w()[:, None] * (request.demand_milli / WHOLE_GPU)
        total_w = total_w.round(_DIGITS)
        node, gpu = divmod(int(total_w.argmin()), total_w.shape[1])
        if total_w[node, gpu] == np.inf:
            return None
        if request.shared:
            return Placement(node, (gpu,))
        return Placement(node, state.first_free_gpus(node, request.gpus))

    def on_decision(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Count the arrived demand, placed or not, and the nodes that are whole."""
        self._arrived_milli += request.demand_milli
        self._prices.count(request.models, request.gpus, request.demand_milli)
        self._needing += request.gpus == self._whole_nodes.size
        if placement is not None and placement.gpus:
            self._whole[placement.node] = False
        if self._needing and request.gpus:
            # As many are expected as came in the past: they are too rare for the target workload.
            soon = LOOK_AHEAD * self._gpus * WHOLE_GPU / self._arrived_milli
            self._breaking_w = self._whole_nodes.rent_w(self._whole, self._needing * soon)
        if self._shadow is not None:
            self._shadow.follow(request, placement, state)

    @property
    def _arrived(self) -> float:
        """GPU asked for so far, as a part of the capacity."""
        return self._arrived_milli / (WHOLE_GPU * self._gpus)

    def _look(self, state: ClusterState) -> None:
        """Update prices once enough has arrived since the last update."""
        if self._shadow is None and self._within_pwr:
            self._shadow = Shadow(self._context, state)
        if (step := int(_STEPS * self._arrived)) != self._step:
            self._step = step
            self._capacity_w = self._prices.capacity_w((step / _STEPS + LOOK_AHEAD) * self._gpus)
            usable = self._capacity.usable(
                self._capacity.gpu_value(state.gpu_free_milli), state.cpu_free_milli
            )
            self._reserve_w = self._prices.reserve_w(usable, (HORIZON - self._arrived) * self._gpus)
        if (level := int(_LEVELS * self._arrived)) != self._level:
            self._level = level
            now = min(1.0, level / _LEVELS)
            self._worth: Worth = self._values.at((now + LOOK_AHEAD * (1 - now)) * self._gpus)
            self._kept.clear()

    def _payable_w(self) -> FloatArray:
        """Price of a GPU of each node for tasks that depend on its type, as far as power allows it."""
        if self._limit is None:
            return self._reserve_w
        return np.minimum(self._reserve_w, MOST_RESERVE_W) * self._limit.leeway(MARGIN)

    @property
    def _limit(self) -> Shadow | None:
        """PWR, while its power limits ours."""
        shadow = self._shadow
        return shadow if shadow is not None and shadow.hosts_all else None

    def _refreshed(self, request: Request, state: ClusterState) -> _Costs:
        """Costs of a request, updated on nodes that have changed since."""
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
        cpu, free = state.cpu_free_milli[nodes], state.gpu_free_milli[nodes]
        cpu_after = cpu - request.cpu_milli
        cpu_w = self._power.cpu_w(cpu_after, nodes) - self._power.cpu_w(cpu, nodes)
        gpu_w = self._power.gpu_full_w[nodes] - self._power.gpu_idle_w[nodes]
        value = self._capacity.gpu_value(free)
        usable = self._capacity.usable(value, cpu)
        left = self._values.left(nodes, cpu, free)
        then = left._replace(units=self._values.units(cpu_after))
        worth_w = self._worth.node_w(left)
        costs.spare[nodes] = self._power.spare_vcpus(cpu_after, nodes)[:, None]
        if not request.shared:
            after = then._replace(free_gpus=then.free_gpus - request.gpus)
            costs.watts[nodes, 0] = cpu_w + gpu_w * request.gpus
            costs.worth_w[nodes, 0] = worth_w - self._worth.node_w(after)
            costs.capacity[nodes, 0] = usable - self._capacity.usable(value - request.gpus, cpu_after)
            costs.wakes[nodes, 0] = request.gpus > 0
            return
        fits, wakes = free >= request.gpu_milli, free == WHOLE_GPU
        rest = np.where(fits, free - request.gpu_milli, 0)
        costs.watts[nodes] = np.where(fits, cpu_w[:, None] + gpu_w[:, None] * wakes, np.inf)
        costs.wakes[nodes] = wakes
        value_after = value[:, None] - self._capacity.share_value[free] + self._capacity.share_value[rest]
        usable_after = self._capacity.usable(value_after, np.broadcast_to(cpu_after[:, None], free.shape))
        costs.capacity[nodes] = usable[:, None] - usable_after
        rests_w, one_less = self._worth.rests_w(then), np.maximum(then.free_gpus - 1, 0)
        free_w = np.where(
            wakes,
            self._worth.free_w(then._replace(free_gpus=one_less))[:, None],
            self._worth.free_w(then)[:, None],
        )
        others_w = rests_w.sum(axis=1, keepdims=True) - rests_w
        after_w = free_w + others_w + self._worth.rests_w(then._replace(rests=rest))
        costs.worth_w[nodes] = worth_w[:, None] - after_w


class Shadow:
    """PWR on the same tasks, from the present state of the policy that it is compared with.

    Attributes
    ----------
    hosts_all : bool
        True if PWR hosts `HOSTS_ALL` of what has arrived, and always did.
    """

    def __init__(self, context: PolicyContext, state: ClusterState):
        self._power, self._gpus = context.power, int(context.nodes.gpus.sum())
        self._pwr, self._state = Scoring([Pwr(context)]), state.copy()
        self._ours_w = self._power.node_w(state.cpu_free_milli, state.free_gpus()).astype(np.float64)
        self._pwr_w = self._ours_w.copy()
        self._left_w, self._drawn_w = 0.0, float(self._ours_w.sum())
        self._arrived_milli = self._refused_milli = 0
        self.hosts_all = True

    def leeway(self, margin: float) -> float:
        """Watts left to PWR's, as a part of a margin of its power, from 0 to 1."""
        return min(1.0, max(0.0, self._left_w / (margin * self._drawn_w)))

    def follow(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Record where the policy put a task, and let PWR place it."""
        if not self.hosts_all:
            return
        if placement is not None:
            self._left_w -= self._grown_w(self._ours_w, placement.node, state)
        pwr = self._pwr.decide(request, self._state)
        self._arrived_milli += request.demand_milli
        if pwr is None:
            self._refused_milli += request.demand_milli
            # Of few tasks, one is much.
            most = (1 - HOSTS_ALL) * max(self._arrived_milli, 0.01 * WHOLE_GPU * self._gpus)
            self.hosts_all = self._refused_milli <= most
            return
        self._state.place(request, pwr)
        grown_w = self._grown_w(self._pwr_w, pwr.node, self._state)
        self._left_w += grown_w
        self._drawn_w += grown_w

    def _grown_w(self, node_w: FloatArray, node: int, state: ClusterState) -> float:
        """Watts by which a node's draw has grown, which `node_w` then has."""
        here = np.array([node])
        now_w = float(self._power.node_w(state.cpu_free_milli[here], state.free_gpus(here), here)[0])
        grown_w = now_w - node_w[node]
        node_w[node] = now_w
        return float(grown_w)


@dataclass
class _Costs:
    """Costs of a request on each node, or for a share on each GPU; infinite watts where it does not fit."""

    watts: FloatArray
    spare: FloatArray
    worth_w: FloatArray
    capacity: FloatArray
    wakes: BoolArray
    placements: int = -1

    @staticmethod
    def unknown(nodes: int, width: int) -> _Costs:
        watts, spare, worth_w, capacity = np.zeros((4, nodes, width))
        return _Costs(watts + np.inf, spare, worth_w, capacity, np.zeros((nodes, width), dtype=bool))


# -- policies by name ------------------------------------------------------------------------------------


_OTHERS: dict[str, Factory] = {
    "random": Random,
    "bid": Bid,
    "bid-reserve": partial(Bid, within_pwr=False),
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
