"""Rounds of a replay have the values that the engine's objectives give them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.replay.jobs.policies.elastic import rank_weights, useful
from wattsched.replay.jobs.policies.rounds import RoundOptions, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("round_objectives")


def test_rounds_have_the_values_of_hesrpt_and_the_worst_job(script: ModuleType) -> None:
    trace = script.sixteen(300.0, 0)
    context, states = PolicyContext(trace), []
    counts = fastest(trace, trace.standard)

    class Watched(script.ByObjective):
        def decide(self, state: State) -> Decision:
            states.append(state)
            return super().decide(state)

    simulate(trace, Watched(context, OBJECTIVES["work-value"], 300.0), name="work-value")
    assert len(states) > 40
    for state in states[::5]:
        options = RoundOptions.of(state, counts, 300.0)
        # heSRPT's weights at p = 1/2: no two jobs are equally large.
        seconds = state.remaining / options.reference_rate
        speed = options.rate / options.reference_rate[options.job]
        value = rank_weights(seconds, 0.5)[options.job] * speed * useful(options)
        assert -OBJECTIVES["work-value"].cost(options) == pytest.approx(value)
        cost = OBJECTIVES["makespan"].cost(options)
        solved = find_solver("highs")(options.program(cost, worst=True), Limits(gap=0.0))
        assert solved.objective == pytest.approx(np.max(cost[solved.x[:-1] > 0.5]))
