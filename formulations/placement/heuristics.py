"""Tasks one by one, in the order of their arrival.

`greedy` takes the node and GPUs where the objective rises least at once. The others are the published rules
(`rules`); `pwr+fgd` is their sum with the weights 100 and 900, `random` draws evenly. They were made for
tasks that arrive one after another, and know nothing of the window's objective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.outcome_search import place_one_by_one
from wattsched.formulations.placement.outcomes import decide
from wattsched.formulations.placement.rules import RULES, Random, Scoring
from wattsched.formulations.placement.state import ClusterState, Factory, PolicyContext, requests_of, serve
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacedTask, PlacementDecision

Heuristic = Callable[[Window, str, Timer], PlacementDecision]


def greedy(window: Window, objective: str, timer: Timer) -> PlacementDecision:
    """Place each task where it costs least at once."""
    return decide(window, *place_one_by_one(window))


def by_policy(factory: Factory) -> Heuristic:
    """Heuristic that asks a policy about one task after another."""

    def placed(window: Window, objective: str, timer: Timer) -> PlacementDecision:
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
