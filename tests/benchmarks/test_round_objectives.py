"""Rounds of a replay have the values that the engine's objectives give them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.replay.jobs.menus import fastest
from wattsched.replay.jobs.policies.rounds import columns_of, program_of
from wattsched.replay.jobs.policies.worth import completion, progress, rank_weights, useful_share
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.replay.jobs.simulation import simulate
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("round_objectives")


def test_values_are_those_of_the_replays_own_policies(script: ModuleType) -> None:
    trace = script.sixteen(300.0, 0)
    setting, views = Setting(trace), []
    counts = fastest(trace.menus, trace.menus.standard)

    class Watched(script.ByObjective):
        def decide(self, view: View) -> Decision:
            views.append(view)
            return super().decide(view)

    simulate(trace, Watched(setting, OBJECTIVES["work-value"], 300.0), name="work-value")
    assert len(views) > 40
    for view in views[::5]:
        columns = columns_of(view, counts, 300.0)
        options = script.options_of(view, columns, 300.0)
        assert OBJECTIVES["progress"].cost(options) == pytest.approx(progress(view, columns))
        assert OBJECTIVES["total-completion"].cost(options) == pytest.approx(completion(view, columns))
        # heSRPT's weights at p = 1/2: no two jobs are equally large.
        seconds = view.remaining / options.reference_rate
        speed = options.rate / options.reference_rate[columns.owner]
        value = rank_weights(seconds, 0.5)[columns.owner] * speed * useful_share(view, columns)
        assert -OBJECTIVES["work-value"].cost(options) == pytest.approx(value)
        worst = program_of(view, columns, OBJECTIVES["makespan"].cost(options))
        solved = find_solver("highs")(script.with_worst(worst), Limits(gap=0.0))
        assert solved.objective == pytest.approx(np.max(worst.cost[solved.x[:-1] > 0.5]))
