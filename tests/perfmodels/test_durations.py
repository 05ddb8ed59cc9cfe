"""Durations learned from runs, against Kaplan and Meier's estimate, known distributions and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.perfmodels import durations
from wattsched.perfmodels.durations import EDGES_S, INTERVALS, LENGTHS_S, Coverage, Durations

ONE = np.zeros(1, dtype=np.int64)


def fitted(duration_s, ended=None, groups=()) -> Durations:
    duration_s = np.array(duration_s, dtype=float)
    ended = np.ones(len(duration_s), dtype=bool) if ended is None else np.array(ended)
    groups = [np.array(group) for group in groups]
    return Durations.fit(duration_s, ended, np.zeros(len(duration_s)), groups)


runs = st.lists(st.tuples(st.integers(1, INTERVALS - 2), st.booleans()), min_size=1, max_size=30)


@given(runs)
def test_without_a_prior_it_is_kaplan_meiers_estimate(drawn) -> None:
    # Runs that have not ended came to the end of an interval, so that they were at risk in all of it.
    duration_s = [EDGES_S[edge] for edge, _ in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durations, "ROOT_RUNS", 1e-12)
        found = fitted(duration_s, [ended for _, ended in drawn]).survival[0]
    survival = 1.0
    for edge in sorted({edge for edge, ended in drawn if ended}):
        ends = sum(ended and own == edge for own, ended in drawn)
        at_risk = sum(own >= edge for own, _ in drawn)
        survival *= 1 - ends / at_risk
        assert found[edge] == pytest.approx(survival, abs=1e-6)


def test_much_data_outweighs_the_coarser_group_and_none_is_the_coarser_group() -> None:
    draw = np.random.default_rng(1)
    short, long = draw.exponential(100.0, 4000), draw.exponential(10_000.0, 4000)
    group = np.repeat([0, 1, 2], [4000, 4000, 1])
    unseen = np.append(np.concatenate([short, long]), 0.0)
    found = fitted(unseen, group < 2, [group])
    ages, all_groups = np.zeros(3), np.arange(3)
    median_s = found.quantile_s(all_groups, ages, 0.5)
    assert median_s[:2] == pytest.approx([100 * np.log(2), 10_000 * np.log(2)], rel=0.06)
    together = fitted(unseen, group < 2)
    assert median_s[2] == pytest.approx(together.quantile_s(ONE, np.zeros(1), 0.5)[0])


def test_of_an_exponential_the_index_and_the_rest_do_not_depend_on_the_age() -> None:
    draw = np.random.default_rng(2)
    found = fitted(draw.exponential(2000.0, 50_000))
    ages = np.array([0.0, 500.0, 3000.0])
    groups = np.zeros(3, dtype=np.int64)
    assert found.gittins_s(groups, ages) == pytest.approx([2000.0] * 3, rel=0.1)
    rest_s = found.quantile_s(groups, ages, 0.5) - ages
    assert rest_s == pytest.approx([2000.0 * np.log(2)] * 3, rel=0.1)


def test_of_one_duration_the_index_is_the_rest() -> None:
    found = fitted([5000.0] * 100_000)
    ages = np.array([0.0, 1000.0, 4000.0])
    # Up to an interval of 10 % of the duration.
    assert found.gittins_s(np.zeros(3, dtype=np.int64), ages) == pytest.approx(5000.0 - ages, abs=500.0)


def test_of_nothing_who_has_run_longer_has_more_left() -> None:
    ages = np.array([0.0, 60.0, 600.0, 6000.0, 600_000.0])
    index_s = Durations.unknown().gittins_s(np.zeros(5, dtype=np.int64), ages)
    assert np.all(np.diff(index_s) > 0)
    # Lomax's hazard is 2 / (600 + t), and falls: the best is to look again at once.
    assert index_s[2:] == pytest.approx((600.0 + ages[2:]) / 2, rel=0.12)


@given(runs, st.floats(0.0, 1e6))
def test_the_index_is_the_least_over_all_times_to_set_aside(drawn, age_s) -> None:
    found = fitted([EDGES_S[edge] * 0.97 for edge, _ in drawn], [ended for _, ended in drawn])
    survival = found.survival[0]

    def least(begin: int) -> float:
        served, best = 0.0, np.inf
        for b in range(begin, INTERVALS):
            served += LENGTHS_S[b] * (survival[b] + survival[b + 1]) / 2
            if survival[begin] > survival[b + 1]:
                best = min(best, served / (survival[begin] - survival[b + 1]))
        return best

    at = int(np.clip(np.searchsorted(EDGES_S, age_s) - 1, 0, INTERVALS - 2))
    part = (age_s - EDGES_S[at]) / LENGTHS_S[at]
    expected = least(at) + (least(at + 1) - least(at)) * part
    assert found.gittins_s(ONE, np.array([age_s]))[0] == pytest.approx(expected, rel=1e-6)


@given(runs, st.floats(0.0, 1e6), st.floats(0.01, 0.99))
def test_a_quantile_is_where_the_conditional_survival_is(drawn, age_s, share) -> None:
    found = fitted([EDGES_S[edge] * 0.97 for edge, _ in drawn], [ended for _, ended in drawn])

    def survival(time_s: float) -> float:
        edges_s = np.append(EDGES_S, EDGES_S[-1] + LENGTHS_S[-1])
        return float(np.interp(time_s, edges_s, found.survival[0]))

    at_s = found.quantile_s(ONE, np.array([age_s]), share)[0]
    assert at_s >= age_s - 1e-6 * age_s
    if at_s < EDGES_S[-1]:
        assert survival(at_s) == pytest.approx(survival(age_s) * (1 - share), rel=1e-6)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_coverage_comes_back_when_durations_change(share) -> None:
    draw, coverage = np.random.default_rng(3), Coverage(share)
    model = fitted(draw.exponential(1000.0, 5000))
    covered = []
    for duration_s in np.concatenate([draw.exponential(4000.0, 2000), draw.exponential(300.0, 2000)]):
        covered.append(bool(duration_s <= model.quantile_s(ONE, np.zeros(1), coverage.level)[0]))
        coverage.saw(covered=covered[-1])
    assert np.mean(covered) == pytest.approx(share, abs=0.02)
