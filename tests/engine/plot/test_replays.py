"""Plots of replays: means keep the integral, and what is drawn."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.replay import cluster_of, linear, trace_by_hand
from wattsched.plot.replays import MOST_STEPS, replay_figure
from wattsched.plot.style import unit_of_time
from wattsched.replay.jobs.accounts import StepLog
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate

STEPS = st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 9.0)), min_size=1, max_size=20)


@given(STEPS, st.integers(1, 30))
def test_means_keep_the_integral(steps: list[tuple[float, float]], most: int) -> None:
    ends = np.cumsum([seconds for seconds, _ in steps])
    times, values = np.append(0.0, ends[:-1]), np.array([value for _, value in steps])
    edges, means = StepLog(times.tolist(), values.tolist()).means(0.0, float(ends[-1]), most)
    assert (edges[0], edges[-1]) == (0.0, ends[-1])
    assert len(means) == min(most, len(steps))
    total = float(values @ np.diff(np.append(times, ends[-1])))
    assert float(means @ np.diff(edges)) == pytest.approx(total, abs=1e-6)
    for edge, until, mean in zip(edges, edges[1:], means, strict=False):
        inside = (times < until) & (np.append(times[1:], np.inf) > edge)
        assert values[inside].min() - 1e-9 <= mean <= values[inside].max() + 1e-9


def test_what_comes_before_the_first_time_is_zero() -> None:
    edges, means = StepLog([4.0], [8.0]).means(0.0, 8.0, 1)
    assert (edges.tolist(), means.tolist()) == ([0.0, 8.0], [4.0])


def outcome(policy: str, n: int, budget: Budget | None = None) -> Outcome:
    trace = trace_by_hand(cluster_of(4), *((40.0 * i, 50.0, 1 + i % 2, linear(4)) for i in range(n)))
    context = PolicyContext(trace, round_s=10.0, budget=budget)
    return simulate(trace, policy_of(policy, context), name=policy, round_s=10.0, budget=budget)


def test_of_long_replays_the_gpus_in_use_are_drawn_in_means_and_the_power_as_it_is() -> None:
    pytest.importorskip("matplotlib")
    _, power, occupancy = replay_figure([outcome("fifo", 200)]).axes
    assert len(occupancy.patches[0].get_data().values) == MOST_STEPS
    assert len(power.patches[0].get_data().values) > MOST_STEPS


@pytest.mark.parametrize(
    ("longest_s", "unit"),
    [(90.0, "seconds"), (3600.0, "minutes"), (7200.0, "minutes"), (9e4, "hours"), (9e5, "days")],
)
def test_times_are_no_small_fractions_of_their_unit(longest_s: float, unit: str) -> None:
    assert unit_of_time(longest_s)[0] == unit


def test_a_line_per_policy_in_every_part_and_the_budget() -> None:
    pytest.importorskip("matplotlib")
    budget = Budget.of_energy(4e4, 100.0)
    figure = replay_figure([outcome("fifo", 5, budget), outcome("srtf", 5, budget)])
    completion, power, occupancy = figure.axes
    assert [line.get_label() for line in completion.lines] == ["fifo", "srtf"]
    assert [line.get_ydata()[-1] for line in completion.lines] == pytest.approx([100.0, 100.0])
    assert (len(power.patches), len(occupancy.patches)) == (3, 2)
    # 40 kJ in 100 s are 400 W.
    assert set(power.patches[-1].get_data().values.tolist()) == {400.0}
    assert power.get_ylabel() == "power of the cluster, W"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "fifo", "srtf", "even budget",
    ]  # fmt: skip


def test_gpus_are_free_between_jobs_that_are_far_apart() -> None:
    """No round follows the end of the last job, and yet its GPUs are free then."""
    pytest.importorskip("matplotlib")
    trace = trace_by_hand(cluster_of(4), *((36_000.0 * i, 14_400.0, 4, linear(4)) for i in range(2)))
    figure = replay_figure([simulate(trace, policy_of("fifo", PolicyContext(trace)), name="fifo")])
    drawn = figure.axes[2].patches[0].get_data()
    assert drawn.values.tolist()[:3] == pytest.approx([100.0, 0.0, 100.0])
    assert drawn.edges.tolist()[:4] == pytest.approx([0.0, 1.0, 10.0, 11.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("arrivals_s", [(0.0,), (0.0, 1e5 / 3)])
def test_a_single_completion_time_is_drawn_without_a_warning(arrivals_s: tuple[float, ...]) -> None:
    """Twice the same but for rounding, too."""
    pytest.importorskip("matplotlib")
    trace = trace_by_hand(cluster_of(4), *((arrival_s, 1e5 / 7, 1, linear(4)) for arrival_s in arrivals_s))
    figure = replay_figure([simulate(trace, policy_of("fifo", PolicyContext(trace)), name="fifo")])
    least, most = figure.axes[0].get_xlim()
    assert least < 1e5 / 7 / 3600 / 1.5 < 1e5 / 7 / 3600 * 1.5 < most
    figure.savefig(io.BytesIO())
