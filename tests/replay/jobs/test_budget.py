"""Budgets: never overspent by any policy, spent while there is work, and no work is lost under them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import (
    BASE_W,
    BUSY_W,
    IDLE_W,
    Scripted,
    cluster_of,
    every_policy,
    linear,
    poisson_jobs,
    trace_by_hand,
    traces,
)
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Carbon, PerKwh, Sleep
from wattsched.replay.jobs.budget import PACINGS, Budget, Ledger, Pacing
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.sizing import Sizing
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts
from wattsched.replay.jobs.simulation import Replay, simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations

WAVES = Carbon(np.arange(0.0, 40_000.0, 300.0), 200.0 + 150.0 * np.cos(np.arange(134)))
MARKET = PerKwh(WAVES.time_s, WAVES.values - 200.0)
SUN = Carbon(WAVES.time_s, np.maximum(WAVES.values - 200.0, 0.0))
"""Half of the time power costs nothing."""


def standing_w(trace: Trace) -> float:
    gpus = sum(int(pool.available.sum()) for pool in trace.pools)
    return gpus * IDLE_W + sum(node.base_power_w for node in trace.cluster.nodes)


def policy(trace: Trace, name: str, budget: Budget, round_s: float) -> Policy:
    return policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0), round_s, gap=0.01, budget=budget))


def run(trace: Trace, name: str, budget: Budget, round_s: float = 0.0, sleep: Sleep | None = None) -> Outcome:
    decider = policy(trace, name, budget, round_s)
    return simulate(trace, decider, name=name, round_s=round_s, sleep=sleep, budget=budget)


def spent_again(outcome: Outcome) -> Sequence[float]:
    """What every period took, from the log of the power alone."""
    assert outcome.ledger is not None
    budget = outcome.ledger.budget
    times = np.append(outcome.meter.power.time_s, outcome.end_s)
    watts = np.array(outcome.meter.power.values)
    found = []
    for begin_s in outcome.ledger.begin_s:
        inside = np.clip(times, begin_s, begin_s + budget.period_s)
        found.append(float(budget.per_kwh.per_watt(inside[:-1], inside[1:]) @ watts))
    return found


@pytest.mark.parametrize("name", every_policy())
@settings(max_examples=examples(5))
@given(
    trace=traces(),
    share=st.floats(0.2, 1.2),
    period_s=st.sampled_from([900.0, 7200.0]),
    per_kwh=st.sampled_from([Carbon.constant(J_PER_KWH), WAVES, SUN, MARKET]),
    round_s=st.sampled_from([0.0, 60.0]),
    sleep=st.sampled_from([None, Sleep(30.0, 5.0, 7.0)]),
    pacing=st.sampled_from(PACINGS),
)
def test_no_period_is_overspent_and_no_job_is_lost(
    name: str,
    trace: Trace,
    share: float,
    period_s: float,
    per_kwh: PerKwh,
    round_s: float,
    sleep: Sleep | None,
    pacing: Pacing,
) -> None:
    idle_w = standing_w(trace)
    gpus = sum(int(pool.available.sum()) for pool in trace.pools)
    # Above the idle draw there is a share of what all GPUs could draw, at the dearest hour.
    watts = idle_w + share * gpus * (BUSY_W - IDLE_W)
    amount = watts * period_s * float(per_kwh.values.max()) / J_PER_KWH
    outcome = run(trace, name, Budget("carbon_g", amount, period_s, per_kwh, pacing), round_s, sleep)
    assert np.all(np.isfinite(outcome.jobs.end_s))
    assert outcome.jobs.done == pytest.approx(trace.work, rel=1e-9)
    assert outcome.ledger is not None
    assert np.all(np.array(outcome.ledger.spent) <= amount * (1 + 1e-9))
    assert spent_again(outcome) == pytest.approx(outcome.ledger.spent, rel=1e-9, abs=1e-9 * amount)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sizing", "powerflow", "greenflow", "srtf", "elastic"])
@pytest.mark.parametrize("per_kwh", [Carbon.constant(J_PER_KWH), WAVES], ids=["energy", "carbon"])
def test_a_budget_is_spent_while_there_is_work(name: str, per_kwh: Carbon) -> None:
    """Forty jobs wait from the start; whoever is short of power leaves less than 1 % of it."""
    jobs = poisson_jobs(40, 3, gap_s=1.0, median_s=4000.0)
    trace = trace_of_durations(homogeneous_cluster(4, 8, "A100"), jobs, seed=3)
    period_s, watts = 7200.0, 32 * 50 + 4 * 200 + 0.4 * 32 * 225
    begin_s = float(trace.arrival_s[0])
    amount = watts * float(per_kwh.per_watt(begin_s, begin_s + period_s))
    budget = Budget("carbon_g", amount, period_s, per_kwh)
    replay = Replay(trace, policy(trace, name, budget, 60.0), name=name, round_s=60.0, budget=budget)
    while replay.time_s < begin_s + period_s:
        assert replay.step()
    outcome = replay.outcome()
    assert outcome.ledger is not None
    assert 0.99 < outcome.ledger.spent[0] / amount <= 1 + 1e-9, outcome.ledger


def test_what_is_earned_at_a_negative_price_is_there_to_be_spent() -> None:
    """Before, plans do not count on it; the books do, when it comes."""
    market = PerKwh(np.array([0.0, 1800.0]), np.array([1.0, -1.0]))
    ledger = Ledger(Budget("money", 10.0, 3600.0, market), 0.0, 1000.0)
    assert ledger.whole == pytest.approx(10.0 - 0.5)
    ledger.advance(1800.0, 1000.0, False)
    ledger.advance(2700.0, 3000.0, False)
    assert ledger.spent == [pytest.approx(0.5 - 0.75)]
    assert ledger.allowance().left == pytest.approx(10.25)
    assert ledger.next_s(1e9) == 3600.0


def test_free_power_has_no_price() -> None:
    """At an intensity of zero nothing limits the draw, and the price of later is that of other hours."""
    trace = trace_of_durations(homogeneous_cluster(2, 8, "V100"), poisson_jobs(30, 3, gap_s=60.0), seed=3)
    sun = Carbon(np.arange(0.0, 80_000.0, 600.0), np.where(np.arange(134) % 3, 300.0, 0.0))
    budget = Budget("carbon_g", 400.0, 3600.0, sun)
    sizing = policy(trace, "sizing", budget, 60.0)
    simulate(trace, sizing, name="sizing", round_s=60.0, budget=budget)
    assert isinstance(sizing, Sizing)
    assert 0 < sizing.price.later < 1e6


@pytest.mark.slow
@pytest.mark.parametrize("pacing", PACINGS)
def test_a_budget_may_be_spent_when_a_free_hour_begins(pacing: Pacing) -> None:
    """Then nothing tells what a watt is worth, and jobs wait for the next period."""
    trace = trace_by_hand(cluster_of(8), *[(0.0, 5000.0, 1, linear(1)) for _ in range(8)])
    hours = Carbon(3600.0 * np.arange(200), np.where(np.arange(200) % 2, 0.0, 300.0))
    amount = 2.0 * standing_w(trace) * float(hours.per_watt(0.0, 3600.0))
    outcome = run(trace, "sizing", Budget("carbon_g", amount, 7200.0, hours, pacing))
    assert outcome.budget_used()[0].max() <= 1 + 1e-9


def test_a_ledger_by_hand() -> None:
    """10 W idle for 100 s of 3,000 J leave 2,000 J, which 50 W spend in 50 s."""
    ledger = Ledger(Budget.of_energy(3000.0, 100.0), 0.0, 10.0)
    assert ledger.allowance().even_w == pytest.approx(30.0)
    assert ledger.next_s(30.0) == pytest.approx(100.0)
    assert ledger.next_s(50.0) == pytest.approx(50.0)
    ledger.advance(20.0, 50.0, True)
    assert ledger.allowance().left == pytest.approx(2000.0)
    assert ledger.allowance().even_w == pytest.approx(25.0)
    # Beyond the idle draw 1,200 J are left for 80 s, of 2,000 J for 100 s.
    assert ledger.allowance().ahead == pytest.approx(15 / 20)
    ledger.advance(50.0, 50.0, True)
    assert ledger.allowance().exhausted
    assert ledger.next_s(10.0) == 100.0
    ledger.advance(100.0, 10.0, False)
    assert ledger.begin_s == [0.0, 100.0]
    assert ledger.spent == pytest.approx([3000.0, 0.0])
    assert ledger.short == [False, True]


@pytest.mark.parametrize("name", ["fifo", "srtf", "powerflow", "greenflow", "sizing"])
def test_a_hard_total_limits_nothing_until_it_is_spent(name: str) -> None:
    """Unpaced eight jobs run side by side for 750 s, until only the idle draw is left of the period."""
    trace = trace_by_hand(cluster_of(8), *[(0.0, 1000.0, 1, linear(1)) for _ in range(8)])
    idle_w, over_w = standing_w(trace), 8 * (BUSY_W - IDLE_W)
    amount = 2000.0 * idle_w + 750.0 * over_w
    hard, paced = (run(trace, name, Budget.of_energy(amount, 2000.0, pacing)) for pacing in ("none", "even"))
    assert hard.ledger is not None
    assert hard.ledger.spent[0] == pytest.approx(amount)
    # All stop at 750 s, and go on with the next period.
    assert hard.jobs.end_s == pytest.approx(np.full(8, 2250.0), abs=30.0)
    assert hard.meter.power.values[0] == pytest.approx(idle_w + over_w)
    assert paced.meter.power.values[0] < idle_w + over_w


@pytest.mark.parametrize("name", ["srtf", "powerflow", "greenflow"])
def test_who_learns_no_price_spends_evenly(name: str) -> None:
    trace = trace_by_hand(cluster_of(8), *[(0.0, 1000.0, 1, linear(1)) for _ in range(8)])
    amount = 2000.0 * standing_w(trace) + 750.0 * 8 * (BUSY_W - IDLE_W)
    even, *others = (
        run(trace, name, Budget.of_energy(amount, 2000.0, pacing)) for pacing in ("even", "price", "plan")
    )
    assert all(np.array_equal(even.jobs.end_s, other.jobs.end_s) for other in others)


def test_busy_hours_draw_more_at_a_price_that_is_learned() -> None:
    """Eight jobs come after a quiet half of the period, with energy left for them later."""
    jobs = [(0.0, 100.0, 1, linear(1)), *[(5000.0, 1000.0, 1, linear(1)) for _ in range(8)]]
    trace = trace_by_hand(cluster_of(8), *jobs)
    amount = 10_000.0 * standing_w(trace) + 9000.0 * (BUSY_W - IDLE_W)
    even, priced = (
        run(trace, "sizing", Budget.of_energy(amount, 10_000.0, pacing)) for pacing in ("even", "price")
    )
    assert priced.jct_s.mean() < 0.9 * even.jct_s.mean()
    assert all(outcome.budget_used()[0].max() <= 1 + 1e-9 for outcome in (even, priced))


def test_power_follows_the_intensity() -> None:
    """What is spent evenly is a constant draw; in proportion to time it is less where a kWh costs more."""
    per_kwh = Carbon(np.array([0.0, 1800.0]), np.array([100.0, 300.0]))
    ledger = Ledger(Budget("carbon_g", 100.0, 3600.0, per_kwh), 0.0, 10.0)
    assert ledger.allowance().even_w == pytest.approx(500.0)
    assert ledger.allowance().in_proportion_w == pytest.approx(10.0 + 2 * 490.0)


@pytest.mark.parametrize("name", ["sizing", "greenflow"])
def test_more_is_done_in_a_clean_hour(name: str) -> None:
    """A joule of the second hour costs a fifth, and jobs draw several times as much then."""
    per_kwh = Carbon(np.array([0.0, 3600.0]), np.array([500.0, 100.0]))
    trace = trace_by_hand(cluster_of(8), *[(0.0, 7000.0, 1, linear(1)) for _ in range(8)])
    per_watt = float(per_kwh.per_watt(0.0, 7200.0))
    amount = per_watt * standing_w(trace) + 0.5 * per_watt * 4 * (BUSY_W - IDLE_W)
    outcome = run(trace, name, Budget("carbon_g", amount, 7200.0, per_kwh))
    hours = np.append(outcome.meter.power.time_s, outcome.end_s)
    used_j = [
        float(
            np.diff(np.clip(hours, begin_s, begin_s + 3600.0))
            @ (np.array(outcome.meter.power.values) - 130.0)
        )
        for begin_s in (0.0, 3600.0)
    ]
    assert used_j[1] > 3 * used_j[0] > 0


def test_an_idle_cluster_above_its_budget_is_refused() -> None:
    trace = trace_by_hand(cluster_of(2), (0.0, 10.0, 1, linear(1)))
    idle_j = (2 * IDLE_W + BASE_W) * 100.0
    with pytest.raises(ValueError, match=r"budget: energy_j is 6.3 kJ .* idle cluster alone takes 7 kJ"):
        run(trace, "sizing", Budget.of_energy(0.9 * idle_j, 100.0))


def test_a_budget_has_only_so_many_periods() -> None:
    with pytest.raises(ValueError, match=r"arrives after 1e\+12 s, more than 1,000,000 periods of 60 s"):
        Ledger(Budget.of_energy(3000.0, 60.0), 0.0, 10.0, last_s=1e12)


def test_whoever_ignores_an_exhausted_budget_is_refused() -> None:
    trace = trace_by_hand(cluster_of(2), (0.0, 500.0, 1, linear(1)), (0.0, 500.0, 1, linear(1)))
    budget = Budget.of_energy(100.0 * 100.0, 100.0)
    with pytest.raises(ValueError, match="when the budget is spent"):
        simulate(trace, Scripted(lambda state: Decision(state.request[:, 0])), budget=budget)


@pytest.mark.parametrize("field", ["amount", "period_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_impossible_budgets_are_refused(field: str, value: float) -> None:
    sizes = {"amount": 1.0, "period_s": 1.0} | {field: value}
    with pytest.raises(ValueError, match=field):
        Budget("money", **sizes, per_kwh=WAVES)
