"""`greedy`: each task goes where it costs least at once, in the order of their arrival."""

from __future__ import annotations

from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.outcome_search import place_one_by_one
from wattsched.formulations.placement.outcomes import decide
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacementDecision


def greedy(window: Window, objective: str, timer: Timer) -> PlacementDecision:
    """Decide by the changes of power and fragmentation that each task causes at once."""
    return decide(window, *place_one_by_one(window))
