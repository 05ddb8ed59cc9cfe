"""Factors of jobs by measured watts: how well they are calibrated, and what must not move them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import CHECK
from wattsched.adapters.correction import (
    ERROR,
    FORGET_S,
    MOST_RATIO,
    SETTLE_S,
    SILENT_S,
    Correction,
    Draw,
    Z,
)
from wattsched.adapters.overdraw import Drawing
from wattsched.adapters.readings import Reading

BEGIN_S = 1.8e9


class Load(Drawing):
    """Jobs with their watts on nodes of 1 kW without them."""

    def __init__(self, correction: Correction | None, now_s: float, draws: dict[str, Draw]) -> None:
        self.correction, self.site, self.draws = correction, SimpleNamespace(time_s=now_s), draws
        self.options, self.under = SimpleNamespace(power_domains=[]), {}
        self.foreign_node_w = {"m2": 350.0}
        self.node_w = {node: 1000.0 for draw in draws.values() for node in draw.node_w}
        for draw in draws.values():
            for node, watts in draw.node_w.items():
                self.node_w[node] += watts

    def corrected(self) -> Load:
        """The same with corrected watts."""
        assert self.correction is not None
        draws = {
            name: draw._replace(
                node_w={node: watts * self.correction.factor(name) for node, watts in draw.node_w.items()}
            )
            for name, draw in self.draws.items()
        }
        return Load(self.correction, self.site.time_s, draws)


class Meter:
    """A source that gives what a test put into it."""

    def __init__(self) -> None:
        self.come = list[Reading]()

    def __call__(self) -> Any:
        found, self.come = self.come, []
        return found, []


def jobs(count: int, watts: float = 400.0, **fields: Any) -> dict[str, Draw]:
    return {f"j{i}": Draw({f"n{i}": watts}, **{"begun_s": BEGIN_S} | fields) for i in range(count)}


def seconds(each_s: float, until_s: float, act: Callable[[float], None]) -> None:
    for at in np.arange(0.0, until_s, each_s):
        act(BEGIN_S + float(at))


@pytest.mark.parametrize("swings", [0.1, 0.2, 0.5] if CHECK else [0.2])
@pytest.mark.parametrize("error", [0.05, 0.1, 0.2] if CHECK else [0.1])
def test_quantiles_cover_what_they_say(error: float, swings: float) -> None:
    """About as many of 1,000 jobs are above each quantile as it says, before any and while they are read.

    The error that the site states has two parts: that of the job, and its swing from moment to moment.
    """
    rng, meter = np.random.default_rng(3), Meter()
    correction, draws = Correction(error, meter), jobs(1000)
    swing, widths = swings * error, dict[float, float]()
    factors = np.exp(rng.normal(-(error**2) / 2, math.sqrt(error**2 - swing**2), 1000))

    def act(now_s: float) -> None:
        drawn = factors * np.exp(swing * rng.standard_normal(1000))
        known = [(correction.factor(job), math.log1p(correction.variance(job))) for job in draws]
        means, variances = np.array(known).T
        scores = (np.log(drawn / means) + variances / 2) / np.sqrt(variances)
        widths[now_s - BEGIN_S] = float(np.mean(np.sqrt(variances)))
        for part in (0.5, 0.9, 0.99):
            beyond = np.mean(scores > NormalDist().inv_cdf(part))
            assert beyond < 1 - part + 0.03, (now_s - BEGIN_S, part, beyond)
            # Before swings are known, they are taken to be half of the error.
            assert beyond > (1 - part) / 3 or swings < 0.5, (now_s - BEGIN_S, part, beyond)
        meter.come += [Reading(now_s, 400.0 * w, job) for w, job in zip(drawn, draws, strict=True)]
        correction.update(Load(correction, now_s, draws))

    seconds(30.0, 901.0, act)
    assert widths[0] == pytest.approx(error, rel=0.01)
    assert widths[900] < 1.2 * swing + 0.2 * error


def test_the_margin_covers_the_sum_of_independent_errors() -> None:
    rng, correction = np.random.default_rng(1), Correction(0.1)
    watts = rng.choice([400.0, 800.0, 3200.0], 30)
    draws = {f"j{i}": Draw({f"n{i}": float(w)}) for i, w in enumerate(watts)}
    load = Load(correction, BEGIN_S, draws)
    margin_w = load.margin_w()[""]
    assert margin_w == pytest.approx(Z * 0.1 * math.sqrt(sum(watts**2)), rel=0.01)
    drawn_w = rng.normal(1.0, 0.1, (200_000, 30)) @ watts
    # The normal law has 1 in 10,000 beyond 3.72; the logarithmic one a few more.
    assert 1e-5 < np.mean(drawn_w > sum(watts) + margin_w) < 1.5e-4
    assert Load(None, BEGIN_S, draws).margin_w() == {"": 0.0}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(0, 3))
def test_late_readings_tell_what_they_would_have_told_at_once(late_s: list[int], order: int) -> None:
    """Readings come up to a minute late, and in another order within what comes at once."""

    def told(delays: list[int]) -> tuple[float, float]:
        meter, draws = Meter(), jobs(1)
        correction = Correction(0.1, meter)
        readings = [Reading(BEGIN_S + 20 + 15 * i, 400.0 + 7 * i, "j0") for i in range(len(delays))]
        # As a meter does it: no reading overtakes another.
        at_s = np.maximum.accumulate([one.time_s + late for one, late in zip(readings, delays, strict=True)])
        due = [*zip(at_s, readings, strict=True)]

        def act(now_s: float) -> None:
            meter.come = [one for at, one in due if now_s - 5 < at <= now_s][:: (-1) ** order]
            correction.update(Load(correction, now_s, draws))

        seconds(5.0, 20 + 15 * len(late_s) + 70, act)
        return correction.factor("j0"), correction.variance("j0")

    assert told(late_s) == pytest.approx(told([0] * len(late_s)), rel=1e-3)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=20))
def test_a_reading_counts_for_the_settings_that_held_at_its_time(reads: list[tuple[int, int]]) -> None:
    """The settings change at 100 s, the job draws what its model says, and readings come late."""
    meter = Meter()
    correction = Correction(0.1, meter)
    due = [
        (BEGIN_S + at + late, Reading(BEGIN_S + at, 400.0 if at < 100 else 200.0, "j0")) for at, late in reads
    ]

    def act(now_s: float) -> None:
        meter.come = [one for at, one in due if now_s - 5 < at <= now_s]
        correction.update(Load(correction, now_s, jobs(1, 400.0 if now_s < BEGIN_S + 100 else 200.0)))

    seconds(5.0, 260.0, act)
    assert correction.factor("j0") == pytest.approx(1.0, abs=0.011)
    assert all("do not count" in fault or fault == "none has come yet" for fault in correction.faults)


def test_readings_of_another_run_and_of_the_first_seconds_do_not_count() -> None:
    meter = Meter()
    correction = Correction(0.1, meter)
    first = Reading(BEGIN_S + 2, 900.0, "j0")  # while it begins
    meter.come = [first, Reading(BEGIN_S + 20, 900.0, "j0", run=1), Reading(BEGIN_S + 20, 900.0, "other")]
    correction.update(Load(correction, BEGIN_S + 30, jobs(1, run=2)))
    assert correction.factor("j0") == pytest.approx(1.0)
    meter.come = [Reading(BEGIN_S + 20, 500.0, "j0", run=2)]
    correction.update(Load(correction, BEGIN_S + 40, jobs(1, run=2)))
    assert 1.15 < correction.factor("j0") < 1.26
    assert correction.measured("j0") == pytest.approx(1.25)


def test_margins_widen_when_readings_stop_and_somebody_is_told() -> None:
    meter = Meter()
    correction, draws = Correction(0.1, meter), jobs(4)
    margins, silent = [Load(correction, BEGIN_S, draws).margin_w()[""]], list[bool]()

    def act(now_s: float) -> None:
        if now_s < BEGIN_S + 300:
            meter.come = [Reading(now_s, 400.0, job) for job in draws]
        correction.update(load := Load(correction, now_s, draws))
        margins.append(load.margin_w()[""])
        silent.append(correction.silent_s > SILENT_S)

    seconds(10.0, 300 + 3 * FORGET_S, act)
    read_w = margins[31]
    assert read_w < margins[0] / 2
    assert all(after > before for before, after in pairwise(margins[31:]))
    assert margins[-1] > 0.95 * margins[0]
    assert silent.index(True) == pytest.approx(30 + SILENT_S / 10, abs=1)
    # On an empty cluster nobody has anything to say.
    correction.update(Load(correction, BEGIN_S + 1e4, {}))
    assert correction.silent_s == 0


def test_a_nodes_own_reading_corrects_its_jobs_where_none_of_them_is_read() -> None:
    meter = Meter()
    correction = Correction(0.1, meter)
    draws = {"a": Draw({"n": 300.0}), "b": Draw({"n": 100.0}), "c": Draw({"m": 400.0})}
    draws |= {"beside": Draw({"m2": 400.0})}

    def act(now_s: float) -> None:
        # The server and what else is on the node draw 1 kW by the model.
        meter.come = [Reading(now_s, 1000.0 + 440.0, "", "n"), Reading(now_s, 1440.0, "", "m")]
        meter.come += [Reading(now_s, 380.0, "c"), Reading(now_s, 1300.0, "", "m2")]
        correction.update(Load(correction, now_s, draws))

    seconds(10.0, 200.0, act)
    assert correction.factor("c") == pytest.approx(0.95, abs=0.01)  # its own reading goes before its node's
    assert correction.factor("beside") > 0.99  # of whose node somebody else draws a part
    for job in ("a", "b"):
        assert 1.05 < correction.factor(job) < 1.12
        assert correction.variance(job) > correction.variance("c")


def test_readings_that_do_not_count_are_counted_by_their_reason() -> None:
    meter = Meter()
    correction, now_s = Correction(0.1, meter), BEGIN_S + 100.0
    draws = {"a": Draw({"n": 300.0}, begun_s=BEGIN_S, run=1), "beside": Draw({"m2": 400.0}, begun_s=now_s)}
    correction.update(Load(correction, now_s - 50.0, draws))
    assert correction.faults == ["none has come yet"]
    rows = [
        (now_s, "a", ""),
        (BEGIN_S + 1, "a", ""),
        (BEGIN_S - 9, "a", ""),
        (now_s, "old", ""),
        (now_s, "a", "m"),
    ]
    rows += [(now_s, "", "m2"), (now_s, "", "far"), (BEGIN_S + 20, "", "n")]
    meter.come = [Reading(time_s, 310.0, job, node) for time_s, job, node in rows]
    meter.come.append(Reading(now_s, 310.0, "a", run=2))
    correction.update(Load(correction, now_s, draws))
    (told,) = correction.faults
    counts, _, reasons = told.partition(": ")
    assert counts == "8 of 9 do not count"
    assert sorted(reasons.split(", 1 ")) == sorted(
        [
            "2 from before their job was seen unchanged for 5 s",
            "from before their node was seen unchanged for 5 s",
            "of another run of their job",
            "of jobs that do not run",
            "of nodes without their job, 2 of nodes without our jobs, or with others'",
        ]
    )
    # Nothing new is nothing to tell, once some have come.
    correction.update(Load(correction, now_s + 10.0, draws))
    assert correction.faults == []


def test_jobs_that_were_never_read_lean_towards_the_mean_of_the_others() -> None:
    meter = Meter()
    correction, draws = Correction(0.1, meter), jobs(40)

    def act(now_s: float) -> None:
        meter.come = [Reading(now_s, 440.0, job) for job in draws]
        correction.update(Load(correction, now_s, draws))

    seconds(10.0, 100.0, act)
    assert 1.06 < correction.factor("new") < 1.1
    assert correction.variance("new") == pytest.approx(0.01, rel=0.05)


def test_a_job_that_pauses_is_not_taken_to_draw_little_for_ever() -> None:
    meter = Meter()
    correction, draws = Correction(0.1, meter), jobs(1)

    def act(now_s: float) -> None:
        meter.come = [Reading(now_s, 400.0 if now_s < BEGIN_S + 100 else 60.0, "j0")]
        correction.update(Load(correction, now_s, draws))

    seconds(10.0, 600.0, act)
    assert correction.factor("j0") == pytest.approx(1.0, abs=0.02)
    assert correction.measured("j0") == pytest.approx(0.15)
    assert correction.silent_s < SILENT_S


WATTS = st.floats(1e-6, 1e9)
NAMES = st.sampled_from(["", "j0", "j1", "n0", "n1", "x"])


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(-1e4, 1e4), WATTS, NAMES, NAMES, st.one_of(st.none(), st.integers(0, 2))))
)
def test_whatever_is_measured_factors_stay_within_bounds(rows: list[tuple[Any, ...]]) -> None:
    meter = Meter()
    correction, draws = Correction(ERROR, meter), jobs(2, run=1)
    for i in range(3):
        now_s = BEGIN_S + 100 * i
        meter.come = [Reading(now_s + at, watts, job, node, 0.0, run) for at, watts, job, node, run in rows]
        load = Load(correction, now_s, draws)
        correction.update(load)
        for job in draws:
            assert 0.5 < correction.factor(job) < 2 * MOST_RATIO
            assert 0 < correction.variance(job) < math.inf
        assert math.isfinite(load.corrected().margin_w()[""])
        assert len(correction.faults) <= 9


def test_a_clock_that_is_set_back_makes_margins_wide_again() -> None:
    meter = Meter()
    correction, draws = Correction(0.1, meter), jobs(3)
    widest_w = Load(correction, BEGIN_S, draws).margin_w()[""]
    meter.come = [Reading(BEGIN_S + 50, 400.0, job) for job in draws]
    correction.update(load := Load(correction, BEGIN_S + 60, draws))
    assert load.margin_w()[""] < 0.7 * widest_w
    correction.update(load := Load(correction, BEGIN_S - 3600, jobs(3, begun_s=BEGIN_S - 7200)))
    assert load.margin_w()[""] == pytest.approx(widest_w)
    meter.come = [Reading(BEGIN_S - 3600, 400.0, job) for job in draws]
    correction.update(load := Load(correction, BEGIN_S - 3590, jobs(3, begun_s=BEGIN_S - 7200)))
    assert load.margin_w()[""] < 0.7 * widest_w
    meter.come = [Reading(BEGIN_S, 400.0, "j0")]
    correction.update(Load(correction, BEGIN_S - 3580 + SETTLE_S, draws))
    assert "is 3,575 s in the future" in correction.faults[0]
