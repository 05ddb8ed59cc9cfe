"""Objectives in order, the k best decisions and frontiers of rounds, against trying all decisions."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.sizing import MAXIMISED
from tests.brute_force.sizing_orders import Tried, decisions
from tests.strategies.instances import small_instances
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem
from wattsched.solving.k_best import k_best_of, verdict_on_k_best
from wattsched.solving.tradeoffs import pareto_of, verdict_on_pareto

OBJECTIVES = tuple(problem("sizing").objectives)
MANY = settings(
    max_examples=int(os.environ.get("WATTSCHED_ORDERS", "15")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SLACK = 1e-6


def cost(name: str, value: float) -> float:
    return -value if name in MAXIMISED else value


def within(name: str, value: float, limit: float) -> bool:
    return cost(name, value) <= cost(name, limit) + SLACK * max(1.0, abs(limit))


def best(tried: list[Tried], name: str) -> float:
    return min((one.values[name] for one in tried), key=lambda value: cost(name, value))


@st.composite
def rounds(draw: st.DrawFn) -> Instance:
    """A small round in which changes cost nothing, so that which GPUs jobs have does not matter."""
    instance = draw(small_instances(max_jobs=3))
    jobs = [job.model_copy(update={"change_cost": None}) for job in instance.jobs]
    return instance.model_copy(update={"change_cost": 0.0, "jobs": jobs})


@MANY
@given(rounds(), st.permutations(OBJECTIVES), st.sampled_from([0.0, 0.01, 0.3]))
def test_each_objective_is_the_best_within_what_those_before_may_lose(
    instance: Instance, order: list[str], tolerance: float
) -> None:
    names = order[:3]
    tried = list(decisions(instance, tuple(names)))
    result = wattsched.solve(instance, objective=names, tolerance=tolerance, gap=1e-9)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    if not tried:
        assert result.termination.reason == "infeasible"
        return
    for stage in [*result.stages, result]:
        name = stage.objective_name
        assert stage.termination.reason == "optimal"
        expected = best(tried, name)
        assert cost(name, stage.objective) == pytest.approx(cost(name, expected), rel=SLACK, abs=SLACK)
        limit = result.limits.get(name, stage.objective)
        tried = [one for one in tried if within(name, one.values[name], limit)]


@MANY
@given(rounds(), st.sampled_from(OBJECTIVES), st.integers(1, 3))
def test_the_k_best_are_each_the_best_that_differs(instance: Instance, name: str, differ: int) -> None:
    tried = list(decisions(instance, (name,)))
    found = wattsched.k_best(instance, 4, differ=differ, objective=name, gap=1e-9)
    again = k_best_of(found.model_dump(mode="json"))
    assert verdict_on_k_best(instance, again).faults == []
    values = [cost(name, result.objective) for result in found.decided]
    assert all(one <= later + SLACK * max(1.0, abs(one)) for one, later in pairwise(values))
    if differ == 1 and tables_are_plain(instance):
        expected = sorted(cost(name, one.values[name]) for one in tried)[:4]
        assert values == pytest.approx(expected, rel=SLACK, abs=SLACK)
    if len(values) < 4:
        assert found.results[-1].termination.reason == "infeasible"


def tables_are_plain(instance: Instance) -> bool:
    """Whether what a job is said to do names one row: two of a type and of a pool may be of one node."""
    return not any(node.pool for node in instance.cluster.nodes)


@MANY
@given(rounds(), st.permutations(OBJECTIVES))
def test_no_decision_is_better_in_both_objectives_than_a_point(instance: Instance, order: list[str]) -> None:
    names = order[0], order[1]
    tried = list(decisions(instance, names))
    assume(tried)
    found = wattsched.pareto(instance, 4, objectives=names, gap=1e-9)
    verdict = verdict_on_pareto(instance, pareto_of(found.model_dump(mode="json")))
    assert (verdict.faults, verdict.claimed) == ([], False)
    points = [[cost(name, point.value(name)) for name in names] for point in found.points]
    known = [[cost(name, one.values[name]) for name in names] for one in tried]
    for place, end in ((0, points[0]), (1, points[-1])):
        assert end[place] == pytest.approx(min(values[place] for values in known), rel=1e-5, abs=1e-5)
    for point in points:
        less = [[value + 1e-4 * max(1.0, abs(value)) for value in values] for values in known]
        assert not any(all(a < b for a, b in zip(values, point, strict=True)) for values in less)


def test_what_a_round_forbids_itself_holds_for_all_that_is_found() -> None:
    instance = wattsched.generate("uniform", jobs=6, gpus=8, seed=3)
    first, second, third = wattsched.k_best(instance, 3).decided
    without = instance.model_copy(update={"unlike": [first.decision]})
    found = wattsched.k_best(without, 2)
    assert [one.objective for one in found.decided] == pytest.approx([second.objective, third.objective])
    assert verdict_on_k_best(without, found).faults == []
    assert verdict_on_k_best(without, wattsched.k_best(instance, 2)).faults
    with pytest.raises(ValueError, match="'unlike', says 1"):
        wattsched.k_best(without, 2, differ=2)
    limited = {"budgets": instance.budgets.model_copy(update={"objectives": {"energy": 1e9}})}
    with pytest.raises(ValueError, match="limits 'energy' itself"):
        wattsched.pareto(instance.model_copy(update=limited), 2, objectives=["energy", "goodput"])
