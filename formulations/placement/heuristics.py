"""Tasks one by one, in the order of their arrival: greedily, or as published rules say.

`greedy` takes the node and GPUs where the objective rises least at once. The published rules score nodes for
a task, and the best node takes it: FGD (Weng et al., USENIX ATC 2023), PWR (Lettich et al., CCGrid 2025) and
the baselines of FGD's evaluation; ``pwr+fgd`` is their sum with the weights 100 and 900, `Random` draws
evenly. Scores are whole numbers from 0 to 100, as in Kubernetes, so that many nodes tie; then the first wins.
The rules were made for tasks that arrive one after another, and know nothing of a window's objective.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.fragmentation import Fragmentation
from wattsched.formulations.placement.outcome_search import place_one_by_one
from wattsched.formulations.placement.outcomes import decide
from wattsched.formulations.placement.state import (
    ClusterState,
    Factory,
    Placement,
    PolicyContext,
    Request,
    requests_of,
    serve,
)
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacedTask, PlacementDecision
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.topology.arrays import BoolArray, IntArray

BEST = 100
"""Highest score of a node; the lowest is 0."""
MOST_KEPT = 30_000_000
"""Scores to keep at most: the oldest request is forgotten beyond."""
LARGEST_CPU_MILLI = 128_000
LARGEST_GPU_MILLI = 8000
"""CPU and GPU of the largest node in FGD's artifact, to which all nodes are compared."""


class Rule(ABC):
    """Scores nodes for a request; the higher the better."""

    @abstractmethod
    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each of these nodes, on all of which the task fits, shape (S,).

        It must depend on nothing that changes without a placement on that node.
        """

    def normalise(self, scores: IntArray) -> IntArray:
        """Scores of all nodes on which the task fits on the scale from 0 to `BEST`, shape (S,)."""
        return scores

    def gpu(self, request: Request, state: ClusterState, node: int) -> int:
        """GPU of the chosen node for a share of a GPU: the fullest that has room, unless a rule differs."""
        free = state.gpu_free_milli[node]
        return int(np.where(free >= request.gpu_milli, free, np.iinfo(np.int64).max).argmin())

    def on_decision(self, request: Request, placement: Placement, state: ClusterState) -> None:
        """Learn of a placement; nothing is to be learnt by rules that read all they need from the state."""
        return


def stretched(scores: IntArray, if_equal: int) -> IntArray:
    """Scores stretched so that the lowest becomes 0 and the highest `BEST`, rounded down, shape (S,)."""
    low = scores.min()
    span = scores.max() - low
    return (scores - low) * BEST // span if span else np.full_like(scores, if_equal)


@dataclass
class _Kept:
    """Scores of one request by rule and node, on nodes where it `fits`, true after so many placements."""

    fits: BoolArray
    scores: IntArray
    placements: int = -1


class Scoring:
    """Policy that takes the node with the highest weighted sum of the scores of rules.

    Nodes are compared only where there is a choice, so a single node that fits is taken whatever its score.

    Parameters
    ----------
    rules : sequence of Rule
        At least one.
    weights : sequence of int
        Weight of each rule. The rule with the largest, the last of them in a tie, chooses the GPU in a node.
    """

    def __init__(self, rules: Sequence[Rule], weights: Sequence[int] = (1,)):
        self.rules = list(zip(weights, rules, strict=True))
        # Of equal weights `max` takes the first, so the last is put there.
        _, self._leading = max(reversed(self.rules), key=lambda pair: pair[0])
        self._kept: dict[Request, _Kept] = {}

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Take the best node that fits."""
        kept = self._refreshed(request, state)
        nodes = np.flatnonzero(kept.fits)
        if not nodes.size:
            return None
        scores = [
            weight * rule.normalise(row[nodes])
            for (weight, rule), row in zip(self.rules, kept.scores, strict=True)
        ]
        node = int(nodes[np.sum(scores, axis=0).argmax()])
        if request.shared:
            return Placement(node, (self._leading.gpu(request, state, node),))
        return Placement(node, state.first_free_gpus(node, request.gpus))

    def on_decision(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Let the rules know of a placement."""
        if placement is not None:
            for _weight, rule in self.rules:
                rule.on_decision(request, placement, state)

    def _refreshed(self, request: Request, state: ClusterState) -> _Kept:
        """Scores of a request that are true now: only those of nodes are computed that have changed."""
        kept = self._kept.get(request)
        if kept is None:
            if len(self._kept) * len(self.rules) * len(state.nodes) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            size = len(state.nodes)
            kept = _Kept(np.zeros(size, dtype=bool), np.zeros((len(self.rules), size), dtype=np.int64))
            self._kept[request] = kept
        if kept.placements < state.placements:
            changed = np.flatnonzero(state.changed > kept.placements)
            fits = state.fits(request, changed)
            kept.fits[changed] = fits
            nodes = changed[fits]
            if nodes.size:
                for (_weight, rule), row in zip(self.rules, kept.scores, strict=True):
                    row[nodes] = rule.score(request, state, nodes)
            kept.placements = state.placements
        return kept


class Fgd(Rule):
    """FGD: place where fragmentation falls most.

    Score: fall of the node's fragmentation in GPUs, through a sigmoid onto 0 to 100, rounded down.

    A share is tried on each GPU, and the best of them counts, the first in a tie.
    """

    def __init__(self, context: PolicyContext):
        self._fragmentation = Fragmentation(
            context.target, context.nodes.models, int(context.nodes.gpus.max())
        )

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        if request.shared:
            best: IntArray = self._by_gpu(request, state, nodes).max(axis=1)
            return best
        drop = self._fragmentation.drop_by_whole(
            state.nodes.model[nodes],
            state.cpu_free_milli[nodes],
            state.gpu_free_milli[nodes],
            request.cpu_milli,
            request.gpus,
        )
        return self._squashed(drop)

    def gpu(self, request: Request, state: ClusterState, node: int) -> int:
        """GPU with the best score."""
        return int(self._by_gpu(request, state, np.array([node]))[0].argmax())

    def _by_gpu(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each GPU of the nodes for a share, -1 where it does not fit, shape (S, G)."""
        gpu_free_milli = state.gpu_free_milli[nodes]
        drop = self._fragmentation.drop_by_share(
            state.nodes.model[nodes],
            state.cpu_free_milli[nodes],
            gpu_free_milli,
            request.cpu_milli,
            request.gpu_milli,
        )
        return np.where(gpu_free_milli >= request.gpu_milli, self._squashed(drop), -1)

    def _squashed(self, drop: IntArray) -> IntArray:
        """Scores from 0 to `BEST` of falls of scaled fragmentation, of the same shape."""
        gpus = drop / (1000 * self._fragmentation.scale)
        return (BEST / (1 + np.exp(-gpus))).astype(np.int64)


class Pwr(Rule):
    """PWR: place where power rises least.

    Score: fall of the node's power in watts, never above 0, stretched over the nodes that fit.
    """

    def __init__(self, context: PolicyContext):
        self._power = context.power

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Fall of each node's power in whole watts; `normalise` stretches these."""
        cpu_free_milli = state.cpu_free_milli[nodes]
        cpu_w = self._power.cpu_w(cpu_free_milli - request.cpu_milli, nodes) - self._power.cpu_w(
            cpu_free_milli, nodes
        )
        waking_w = self._power.gpu_full_w[nodes] - self._power.gpu_idle_w[nodes]
        if request.shared:
            gpu_w = np.where(_busy_with_room(request, state.gpu_free_milli[nodes]).any(axis=1), 0, waking_w)
        else:
            gpu_w = request.gpus * waking_w
        return -cpu_w - gpu_w

    def normalise(self, scores: IntArray) -> IntArray:
        """Stretch the watts from 0 to `BEST`, all of which equal ones get."""
        return stretched(scores, if_equal=BEST)

    def gpu(self, request: Request, state: ClusterState, node: int) -> int:
        """First GPU that is busy anyway and has room, else the first that is free."""
        free = state.gpu_free_milli[node]
        busy = _busy_with_room(request, free)
        return int((busy if busy.any() else free == WHOLE_GPU).argmax())


def _busy_with_room(request: Request, gpu_free_milli: IntArray) -> BoolArray:
    """Mask of GPUs that are in use and have room for the share."""
    return (gpu_free_milli >= request.gpu_milli) & (gpu_free_milli < WHOLE_GPU)


class BestFit(Rule):
    """BestFit: place where the least is left over.

    Score: 100 less the mean of the CPU and the GPU left over, in percent of the largest node's.

    Rounded down, then stretched over the nodes that fit.
    """

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        cpu_left = state.cpu_free_milli[nodes] - request.cpu_milli
        gpu_left = state.gpu_free_milli[nodes].sum(axis=1) - request.demand_milli
        left = 0.5 * (cpu_left / LARGEST_CPU_MILLI) + 0.5 * (gpu_left / LARGEST_GPU_MILLI)
        score: IntArray = ((1 - left) * BEST).astype(int)
        return score

    def normalise(self, scores: IntArray) -> IntArray:
        """Stretch the scores."""
        return stretched(scores, if_equal=0)


class DotProduct(Rule):
    """DotProd: place where demand and free resources are least aligned (after Tetris, SIGCOMM 2014).

    Score: 100 less the mean over CPU and GPU of free times asked, each a part of the largest node's.

    As in FGD's artifact, which turns the sign of Tetris' alignment; in percent, rounded down.
    """

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        cpu = state.cpu_free_milli[nodes] / LARGEST_CPU_MILLI * (request.cpu_milli / LARGEST_CPU_MILLI)
        gpu_free_milli = state.gpu_free_milli[nodes].sum(axis=1)
        gpu = gpu_free_milli / LARGEST_GPU_MILLI * (request.demand_milli / LARGEST_GPU_MILLI)
        score: IntArray = (BEST * (1 - (cpu + gpu) / 2)).astype(int)
        return score


class GpuPacking(Rule):
    """GpuPacking: first GPUs in use, then free GPUs of nodes in use, then empty nodes.

    Score by the case; a node without any GPU in use is empty, and tasks without GPU score 0 everywhere.

    * A GPU in use has room for the share: 100 less a tenth of its free percents, at least 50.
    * Free GPUs of a node that has others in use: 50 less their number, at least 33.
    * An empty node: 33 less its GPUs, at least their number.
    """

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        if not request.gpus:
            return np.zeros(len(nodes), dtype=np.int64)
        free = state.gpu_free_milli[nodes]
        gpus = state.nodes.gpus[nodes]
        fullest = np.where(free >= request.gpu_milli, free, WHOLE_GPU).min(axis=1)
        in_use = np.maximum(BEST - fullest * 100 // WHOLE_GPU // 10, BEST // 2)
        beside = max(BEST // 2 - request.gpus, BEST // 3)
        empty = np.maximum(BEST // 3 - gpus, gpus)
        used = np.where(fullest < WHOLE_GPU, in_use, beside)
        return np.where((free == WHOLE_GPU).sum(axis=1) == gpus, empty, used)


class GpuClustering(Rule):
    """GpuClustering: keep tasks of one size together.

    Score by the sizes of the GPU tasks on the node, a size being a share or a number of GPUs.

    75 if all are of the task's size, 50 if some are, 25 if there are none and 0 otherwise; to which the used
    GPU is added, as a part of 25 for the largest node. Tasks without GPU score 0 everywhere.
    """

    def __init__(self, context: PolicyContext):
        sizes = 1 + int(context.nodes.gpus.max())
        # Whether the node has tasks of the size: column 0 for shares, column k for k GPUs.
        self._has = np.zeros((len(context.nodes), sizes), dtype=bool)

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        if not request.gpus:
            return np.zeros(len(nodes), dtype=np.int64)
        sizes = self._has[nodes].sum(axis=1)
        alike = self._has[nodes, _size(request)]
        kinship = np.where(alike, np.where(sizes == 1, 3, 2), np.where(sizes == 0, 1, 0))
        used = LARGEST_GPU_MILLI - state.gpu_free_milli[nodes].sum(axis=1)
        score: IntArray = BEST // 4 * used // LARGEST_GPU_MILLI + BEST // 4 * kinship
        return score

    def on_decision(self, request: Request, placement: Placement, state: ClusterState) -> None:
        """Remember the size."""
        if request.gpus:
            self._has[placement.node, _size(request)] = True


def _size(request: Request) -> int:
    """Column of the request's size in `GpuClustering`: 0 for a share, else its number of GPUs."""
    return 0 if request.shared else request.gpus


class Random:
    """Random: any node that fits, and any GPU in it. A policy, not a rule: it draws evenly."""

    def __init__(self, context: PolicyContext):
        # Streams 0 and 1 of the seed are those of the tasks and of the node order.
        self._random = np.random.default_rng([context.seed, 2])

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Draw a node, and a GPU for a share."""
        nodes = np.flatnonzero(state.fits(request))
        if not nodes.size:
            return None
        node = int(self._random.choice(nodes))
        if request.shared:
            gpus = np.flatnonzero(state.gpu_free_milli[node] >= request.gpu_milli)
            return Placement(node, (int(self._random.choice(gpus)),))
        return Placement(node, state.first_free_gpus(node, request.gpus))

    def on_decision(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Learn nothing of it."""


RULES: Mapping[str, Callable[[PolicyContext], Rule]] = {
    "fgd": Fgd,
    "pwr": Pwr,
    "best-fit": lambda context: BestFit(),
    "dot-product": lambda context: DotProduct(),
    "gpu-packing": lambda context: GpuPacking(),
    "gpu-clustering": GpuClustering,
}
"""Name to how to make the rule. Rules can be combined: ``pwr+fgd:100/900``."""

Heuristic = Callable[[Window, str, Timer], PlacementDecision]


def greedy(window: Window, objective: str, timer: Timer) -> PlacementDecision:
    """Place each task where it costs least at once."""
    used = place_one_by_one(window)
    return decide(window, used, np.ones(len(used), dtype=np.int64))


def by_policy(factory: Factory) -> Heuristic:
    """Heuristic that asks a policy about one task after another."""

    def placed(window: Window, objective: str, timer: Timer) -> PlacementDecision:
        """Serve tasks in their order; those that the policy refuses, and all once time is over, wait."""
        policy = factory(PolicyContext(window.nodes, window.power, window.target, seed=0))
        state, names = ClusterState(window.nodes), window.nodes.names
        state.cpu_free_milli = window.cpu_free_milli.copy()
        state.memory_free_mib = window.memory_free_mib.copy()
        state.gpu_free_milli = window.gpu_free_milli.copy()
        decision = PlacementDecision(placed=[], waiting=[])
        requests = requests_of(window.tasks)
        for task, profile in zip(window.instance.tasks, window.profile, strict=True):
            placement = None if timer.over() else serve(policy, requests[profile], state)
            if placement is None:
                decision.waiting.append(task.name)
            else:
                one = PlacedTask(task=task.name, node=names[placement.node], gpus=list(placement.gpus))
                decision.placed.append(one)
        return decision

    return placed


def _sum_of(*weighted: tuple[str, int]) -> Heuristic:
    weights = [weight for _name, weight in weighted]
    return by_policy(lambda context: Scoring([RULES[name](context) for name, _weight in weighted], weights))


HEURISTICS: Mapping[str, Heuristic] = {
    "greedy": greedy,
    "pwr+fgd": _sum_of(("pwr", 100), ("fgd", 900)),
    **{name: _sum_of((name, 1)) for name in RULES},
    "random": by_policy(Random),
}
