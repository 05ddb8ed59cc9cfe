"""Shares of time against optima by hand, another solver and every point of a grid; and forged ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import wattsched
from tests.strategies.effort import examples
from wattsched.solving.shares import TimeShares, shares_of
from wattsched.verification.time_shares import check_shares

TWO = {"pool": ["G", "H"] * 3, "gpus": 1, "rate": [1.0, 4.0, 1.0, 1.0, 1.0, 1.0], "start": [0, 2, 4, 6]}
"""One job is four times as fast on H, two do not care."""

rates = st.floats(0.25, 8.0)


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of rounds with up to five jobs on two types."""
    n = draw(st.integers(1, 5))
    options = [draw(st.integers(1, 4)) for _ in range(n)]
    m = sum(options)
    column = {
        name: draw(st.lists(values, min_size=m, max_size=m))
        for name, values in {
            "pool": st.sampled_from("GH"),
            "gpus": st.sampled_from([1, 2, 3, 8]),
            "rate": st.one_of(st.just(0.0), rates),
            "power_w": st.floats(50.0, 400.0),
        }.items()
    }
    per_job = {name: draw(st.lists(rates, min_size=n, max_size=n)) for name in ("weight", "remaining_work")}
    return {
        "available": {"G": draw(st.integers(0, 4)), "H": draw(st.integers(1, 4))},
        "jobs": [f"j{i}" for i in range(n)],
        "start": np.cumsum([0, *options]),
        "objective": draw(st.sampled_from(["max-min", "goodput", "makespan"])),
        "power_cap_w": draw(st.one_of(st.none(), st.floats(60.0, 900.0))),
        **column,
        **per_job,
    }


def by_scipy(found: TimeShares) -> float:
    """Optimal objective by a program that is written down here."""
    of = found.instance
    n, m, worth = len(of.jobs), of.n_options, of.rate / of.demand[of.job]
    fits = (of.gpus <= of.available[of.type_of]) & (of.power_w <= of.power_cap_w) & (of.rate > 0)
    counts = [j for j in range(n) if fits[of.job == j].any()]
    if not counts:
        return 0.0
    rows = [(of.job == j).astype(float) for j in range(n)]
    limits = [1.0] * n
    rows += [np.where(of.type_of == k, of.gpus, 0.0) for k in range(len(of.types))]
    limits += of.available.tolist()
    if np.isfinite(of.power_cap_w):
        rows, limits = [*rows, of.power_w], [*limits, of.power_cap_w]
    table = [np.append(row, 0.0) for row in rows]
    for j in counts if of.objective != "goodput" else []:
        table, limits = [*table, np.append(np.where(of.job == j, -worth, 0.0), 1.0)], [*limits, 0.0]
    cost = np.append(-worth, 0.0) if of.objective == "goodput" else np.append(np.zeros(m), -1.0)
    bounds = [(0.0, float(fit)) for fit in fits] + [(0.0, None if of.objective != "goodput" else 0.0)]
    best = -linprog(cost, A_ub=np.array(table), b_ub=limits, bounds=bounds).fun
    return 1.0 / best if of.objective == "makespan" else best


def test_the_fastest_type_goes_to_who_gains_most() -> None:
    """1.6 h = (2 - h) / 2, so that h = 1 / 2.1, of a reference that is half of both rates."""
    found = wattsched.time_shares({"G": 1, "H": 1}, ["a", "b", "c"], **TWO)
    assert found.by_job()["a"] == pytest.approx({"G": 0.0, "H": 1 / 2.1})
    assert (found.objective, found.bound) == pytest.approx((1.6 / 2.1, 1.6 / 2.1))
    assert found.progress == pytest.approx([1.6 / 2.1] * 3)


def test_what_the_least_does_not_need_goes_to_others() -> None:
    """The slow job is the least whatever the others have; of these one gains twice as much as the other."""
    asked = {"pool": ["S", "G", "G"], "gpus": 1, "rate": [1.0, 20.0, 10.0], "reference": [10.0, 10.0, 10.0]}
    shares = {
        ties: wattsched.time_shares({"S": 1, "G": 1}, ["s", "a", "b"], **asked, ties=ties).progress
        for ties in ("goodput", "max-min")
    }
    assert shares["goodput"] == pytest.approx([0.1, 1.8, 0.1])
    assert shares["max-min"] == pytest.approx([0.1, 2 / 3, 2 / 3])


def test_a_job_that_fits_nowhere_has_no_time_and_does_not_count() -> None:
    found = wattsched.time_shares({"A": 4}, ["a", "b"], pool="A", gpus=[2, 8], rate=1.0)
    assert list(found.dropped) == ["b"]
    assert found.objective == pytest.approx(1.0)
    assert found.share.tolist() == [1.0, 0.0]


def test_without_jobs_nothing_is_shared() -> None:
    found = wattsched.time_shares({"A": 4}, [], pool="A", gpus=[], rate=[])
    assert (found.objective, found.bound, found.by_job()) == (0.0, 0.0, {})


@settings(max_examples=examples(150), deadline=None)
@given(rounds(), st.sampled_from(["goodput", "max-min", "any"]))
def test_shares_are_optimal_and_their_bound_proves_it(asked: dict[str, Any], ties: Any) -> None:
    found = wattsched.time_shares(**asked, ties=ties)
    assert found.objective == pytest.approx(by_scipy(found), rel=1e-6)
    assert found.gap <= 1e-6
    assert (found.share >= 0).all()


@settings(max_examples=examples(50), deadline=None)
@given(rounds(), st.lists(st.floats(0.0, 3.0), min_size=8, max_size=8))
def test_any_prices_prove_a_bound_and_shares_beyond_a_limit_are_refused(
    asked: dict[str, Any], prices: list[float]
) -> None:
    found = wattsched.time_shares(**asked)
    of, n = found.instance, len(found.instance.jobs)
    q = 0.01 * prices[7] if np.isfinite(of.power_cap_w) else 0.0
    told = check_shares(of, found.share.tolist(), prices[:n], prices[5:7], q)
    assert not told.faults
    if np.isfinite(told.bound):
        better = told.bound - found.objective if of.objective != "makespan" else found.objective - told.bound
        assert better >= -1e-6 * found.objective
    for share in (found.share + 1.0, found.share - 1.1):
        assert check_shares(of, share.tolist(), prices[:n], prices[5:7], q).faults
    assert check_shares(of, [], prices[:n], prices[5:7], q).faults


def test_all_of_the_lexicographic_order_is_optimal() -> None:
    """Three jobs that each need a type of their own, which others do not: each has all that there is."""
    asked: dict[str, Any] = {"pool": list("ABC"), "gpus": 1, "rate": [1.0, 2.0, 3.0], "reference": 1.0}
    found = wattsched.time_shares(dict.fromkeys("ABC", 1), list("abc"), **asked, ties="max-min")
    assert found.progress == pytest.approx([1.0, 2.0, 3.0])
    tighter = replace(found.instance, power_cap_w=100.0, power_w=np.full(3, 100.0))
    assert shares_of(tighter, "max-min").progress == pytest.approx([6 / 11] * 3)


@pytest.mark.parametrize("ties", ["goodput", "max-min"])
@pytest.mark.parametrize("seed", range(5))
def test_ties_of_many_jobs_with_demands_of_all_sizes(seed: int, ties: Any) -> None:
    rng, n = np.random.default_rng(seed), 80
    found = wattsched.time_shares(
        {"G": 12, "H": 12, "K": 12}, [str(j) for j in range(n)],
        start=3 * np.arange(n + 1), pool=["G", "H", "K"] * n,
        gpus=np.repeat(rng.choice([1, 2, 4, 8], n), 3), rate=10.0 ** rng.uniform(-1, 2, 3 * n),
        objective="makespan", remaining_work=10.0 ** rng.uniform(1, 7, n), ties=ties,
    )  # fmt: skip
    assert found.gap <= 1e-6


FAR_APART: dict[str, Any] = {
    **{"pool": ["G", "H", "G", "H"], "gpus": 1, "start": [0, 2, 4], "rate": [40.0, 10.0, 15.0, 15.0]},
    "objective": "makespan",
}


def test_jobs_of_very_different_lengths_share() -> None:
    found = wattsched.time_shares({"G": 1, "H": 1}, ["a", "b"], remaining_work=[1e9, 1.0], **FAR_APART)
    assert found.objective == pytest.approx(1e9 / 40, rel=1e-6)
    assert found.gap <= 1e-6


def test_what_doubles_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match="too far apart"):
        wattsched.time_shares({"G": 1, "H": 1}, ["a", "b"], remaining_work=[1e12, 1.0], **FAR_APART)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"pool": ["A", "X"]}, "pool: 'X' is no type that is available"),
        ({"gpus": [1]}, "gpus: has 1 values for 2 options"),
        ({"rate": [1.0, float("nan")]}, "rate: must be at least 0 and finite, got nan"),
        ({"weight": 0.0}, "weight: must be positive and finite, got 0.0"),
        ({"start": [0, 1]}, "start: must be 3 ascending numbers"),
        ({"start": "ab"}, "start must be a sequence of whole numbers"),
        ({"jobs": ["a", "a"]}, "duplicate job 'a'"),
        ({"objective": "speed"}, "objective: 'speed' is not known"),
        ({"objective": "makespan"}, "remaining_work: must be given"),
        ({"power_cap_w": 10.0}, "power_cap_w: needs power_w, the watts of the options"),
        ({"ties": "none"}, "ties: 'none' is not known"),
    ],
)
def test_faults_are_told_by_name(wrong: dict[str, Any], words: str) -> None:
    right = {"available": {"A": 2}, "jobs": ["a", "b"], "pool": "A", "gpus": 1, "rate": [1.0, 2.0]}
    with pytest.raises((ValueError, TypeError), match=words):
        wattsched.time_shares(**{**right, **wrong})
