"""Benchmarks that replay traces: energy is equal where they say so, and no budget is overspent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import budgets, grounds, online_price, replays, round_objectives
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.replay.jobs.policies.elastic import rank_weights, useful
from wattsched.replay.jobs.policies.rounds import RoundOptions, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits


@pytest.fixture
def case(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> replays.Case:
    """A few hours of ITP on two nodes."""
    monkeypatch.setenv("WATTSCHED_DATA", str(data_dir))
    return replays.Case(replays.GROUNDS[1].shortened(0.1, 2), 220.0)


@pytest.mark.parametrize("enough_at", [3e-5, 1e-3, 5.0])
def test_the_price_of_equal_energy(enough_at: float) -> None:
    def used(price: float) -> float:
        return float(1.0 - 0.1 * np.tanh(np.log(price / enough_at)))

    def replay(price: float, scale: float = 1.0) -> tuple[Any, float]:
        return SimpleNamespace(jct_s=np.array([2.0 - used(price)])), scale * used(price)

    of = replays.Case(replays.GROUNDS[0], 300.0)
    assert replays.ENOUGH <= of.at_equal_use(replay)[1] <= 1.0
    fastest_of_all, _ = of.at_equal_use(lambda price: replay(price, 0.5))
    assert fastest_of_all.jct_s.mean() < 1.0, "a rule that takes twice as much leaves the fastest to ours"


def test_a_case_of_real_jobs(case: replays.Case) -> None:
    found = budgets.compare(0, case, "powerflow")
    assert list(found) == [
        "powerflow",
        *budgets.BASELINES["powerflow"],
        "sizing",
        budgets.EQUAL,
        budgets.FREE,
    ]
    assert found[budgets.EQUAL][1] <= 1.0
    assert all(most <= 1 + 1e-9 for _, _, most in found.values())


def test_ratios_of_held_out_grounds_by_hand() -> None:
    """Geometric means of the ratios over two seeds, and means of the preemptions."""
    rule = replays.Figures(mean_h=4.0, p95_h=8.0, p99_h=9.0, heavy_h=6.0, slowdown=3.0, preemptions=0.25)
    ours = replace(rule, mean_h=1.0, p99_h=18.0, preemptions=0.75)
    line = grounds.row("a", "9", [grounds.Pair(rule, ours, 1.0), grounds.Pair(rule, rule, 0.25)])
    shown = ["0.500", "1.000", "1.00", "1.41", "1.00", "1.00", "0.50"]
    assert list(line) == ["a", "exact", "9", "4.00", *shown, "0.50", "0.25"]


def test_a_month_of_real_jobs(case: replays.Case) -> None:
    """No budget is overspent, and hindsight takes no more than the price that was learned."""
    found = online_price.compared(replace(case, ground=online_price.MONTHS[0].shortened(1, 2)), 0)
    assert set(found) == set(online_price.NAMES)
    assert max(found[name].used for name in online_price.WITHIN) <= 1 + 1e-9
    assert found["hindsight"].energy <= found["learned"].energy * 1.01
    assert found["hindsight"].times.mean_h < found["learned"].times.mean_h
    assert found["bound"].times.mean_h < min(found[name].times.mean_h for name in online_price.WITHIN)


def test_rounds_have_the_values_of_hesrpt_and_the_worst_job() -> None:
    trace = replays.on_sixteen(300.0, 0)
    context, states = PolicyContext(trace), []
    counts = fastest(trace, trace.standard)

    class Watched(round_objectives.ByObjective):
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
        solved = get("highs")(options.program(cost, worst=True), Limits(gap=0.0))
        assert solved.objective == pytest.approx(np.max(cost[solved.x[:-1] > 0.5]))
