"""Policies with Gavel's protocol, asked as its simulator asks, against optima by hand."""

from __future__ import annotations

from functools import total_ordering
from typing import Any

import pytest

from wattsched.adapters.gavel import MaxMinFairness, MaxSumThroughput, MinTotalDuration


@total_ordering
class JobId:
    """An identifier as the simulator has it: no text, no number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobId) and self._number == other._number

    def __lt__(self, other: JobId) -> bool:
        return self._number < other._number

    def __repr__(self) -> str:
        return str(self._number)


A, B, C = (JobId(i) for i in range(3))
ONE = {A: 1, B: 1, C: 1}
RATES = {A: {"h": 4.0, "g": 1.0}, B: {"h": 1.0, "g": 1.0}, C: {"h": 1.0, "g": 1.0}}


def test_max_min_fairness_on_two_types() -> None:
    policy = MaxMinFairness()
    found = policy.get_allocation(RATES, ONE, {A: 1.0, B: 1.0, C: 1.0}, {"h": 1, "g": 1})
    assert found is not None
    assert found[A] == pytest.approx({"h": 1 / 2.1, "g": 0.0})
    assert sum(found[B].values()) == pytest.approx(1.6 / 2.1)
    assert policy.last is not None
    assert policy.last.bound == pytest.approx(1.6 / 2.1)


def test_a_priority_of_two_is_worth_twice_the_time_and_two_workers_half_of_it() -> None:
    rates = {A: {"g": 1.0}, B: {"g": 1.0}}
    found = MaxMinFairness().get_allocation(rates, ONE, {A: 2.0, B: 1.0}, {"g": 1})
    assert found is not None
    assert [found[A]["g"], found[B]["g"]] == pytest.approx([2 / 3, 1 / 3])
    wide = MaxMinFairness("max-min").get_allocation(rates, {A: 2, B: 1}, {A: 1.0, B: 1.0}, {"g": 2})
    assert wide is not None
    assert [wide[A]["g"], wide[B]["g"]] == pytest.approx([0.5, 1.0])


def test_the_least_total_duration_is_exact() -> None:
    policy = MinTotalDuration()
    rates = {A: {"g": 1.0}, B: {"g": 2.0}}
    found = policy.get_allocation(rates, ONE, {A: 100, B: 600}, {"g": 1})
    assert found is not None
    assert policy.last is not None
    assert policy.last.objective == pytest.approx(400.0)
    assert [found[A]["g"], found[B]["g"]] == pytest.approx([0.25, 0.75])


def test_the_largest_sum_gives_the_fast_type_to_who_is_fast() -> None:
    found = MaxSumThroughput().get_allocation(RATES, ONE, {"h": 1, "g": 1})
    assert found is not None
    assert found[A] == pytest.approx({"h": 1.0, "g": 0.0})
    assert found[B]["g"] + found[C]["g"] == pytest.approx(1.0)


def test_names_are_those_by_which_the_simulator_asks() -> None:
    names = [policy.name for policy in (MaxMinFairness, MinTotalDuration, MaxSumThroughput)]
    assert names == ["MaxMinFairness_Perf", "MinTotalDuration_Perf", "ThroughputSumWithPerf"]


def test_what_cannot_be_shared() -> None:
    assert MaxMinFairness().get_allocation({}, {}, {}, {"g": 1}) is None
    idle = MaxSumThroughput().get_allocation({A: {"g": 1.0}}, {A: 8}, {"g": 4})
    assert idle == {A: {"g": 0.0}}
    pair: Any = {A: {"g": [1.0, 2.0]}}
    with pytest.raises(ValueError, match="is a pair of jobs"):
        MaxSumThroughput().get_allocation(pair, ONE, {"g": 1})
    unknown: Any = "x"
    with pytest.raises(ValueError, match="ties: 'x' is not known"):
        MaxSumThroughput(unknown)


@pytest.mark.parametrize(
    ("rates", "factors", "words"),
    [
        ({(A, B): {"g": [1.0, 1.0]}}, {(A, B): 1}, "is a pair of jobs"),
        ({A: {"h": 1.0}}, {A: 1}, "job 0 has none on 'g'"),
        ({A: {"g": 1.0}}, {}, "scale_factors: job 0 is missing"),
    ],
)
def test_what_is_missing_is_told(rates: Any, factors: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MaxSumThroughput().get_allocation(rates, factors, {"g": 1})


def test_a_job_that_is_nearly_done_beside_a_long_one() -> None:
    found = MinTotalDuration().get_allocation(
        {A: {"g": 40.0, "h": 10.0}, B: {"g": 15.0, "h": 15.0}}, ONE, {A: 1e9, B: 1}, {"g": 1, "h": 1}
    )
    assert found is not None
    assert found[A]["g"] > 0.9
