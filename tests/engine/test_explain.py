"""Explanations of waiting jobs: against all decisions of small rounds, and as they are checked.

EXPLAINED_CASES=500 EXPLAINED_SEED=7 pytest tests/engine/test_explain.py is a campaign.
"""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.sizing_explanations import WAITING_COUNTS, Row, Truth, random_round
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from wattsched.explaining.start import starts_by_limits
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.explanation import Alternative, Change, Explanation
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on_explanation
from wattsched.results.result import Result

CASES = int(os.environ.get("EXPLAINED_CASES", examples(20)))
SEED = int(os.environ.get("EXPLAINED_SEED", "0"))


def faults_of(instance: Instance, result: Result, found: Explanation) -> list[str]:
    """Faults of an explanation that was written to a file and read again."""
    read = Explanation.model_validate(json.loads(found.model_dump_json()))
    document = json.loads(result.model_dump_json())
    return verdict_on_explanation(instance, document, read).faults


def rows_of(document: dict[str, Any], result: Result) -> dict[str, Row | None]:
    """Row of its table that each job has by a result."""
    found: dict[str, Row | None] = {job["name"]: None for job in document["jobs"]}
    tables = {job["name"]: job["options"] for job in document["jobs"]}
    for one in result.decision.jobs:
        table = tables[one.job]
        i = list(zip(table["pool"], table["gpus"], strict=True)).index((one.pool, one.gpus))
        found[one.job] = one.pool, one.gpus, table["rate"][i], table["power_w"][i]
    return found


@pytest.mark.parametrize("number", range(CASES))
def test_against_all_decisions(number: int) -> None:
    """The least watts and GPUs, and whether the job can run at all, of every job of a round that waits."""
    document = random_round(random.Random(SEED * 1_000_003 + number))
    instance = Instance.model_validate(document)
    try:
        result = wattsched.solve(instance, gap=1e-6)
    except wattsched.InputError:
        return
    if result.decision is None:
        return
    rows = rows_of(document, result)
    for name in rows:
        found = wattsched.explain(instance, result, name)
        assert faults_of(instance, result, found) == []
        assert found.unanswered == ([] if found.alternatives or found.state == "runs" else ["several"])
        if rows[name] is not None:
            assert found.state == "runs"
            continue
        truth = Truth(document, rows, name)
        if name in result.dropped:
            assert found.state == "never"
        else:
            _compare(truth, found)
        _compare_requests(truth, found)


def _compare(truth: Truth, found: Explanation) -> None:
    """Compare watts and GPUs with those that all decisions need."""
    cap = truth.document["budgets"].get("power_w", math.inf)
    by_change = {json.dumps(one.change.without_budgets.model_dump()): one for one in found.alternatives}

    def alternative(**fields: Any) -> Alternative | None:
        return by_change.get(json.dumps(Change(**fields).model_dump()))

    def same(one: Alternative | None, watts: float) -> None:
        energy = "energy_j" in truth.document["budgets"]
        if one is None:
            assert energy or watts == math.inf
            return
        raised = max(0.0, watts - cap) if cap < math.inf else 0.0
        assert one.least.get("power_w", 0.0) <= raised + 1e-6 * watts
        assert one.change.power_w >= raised - 1e-6 * watts
        if not energy:
            assert one.change.power_w == pytest.approx(raised, abs=1e-6 * watts)
            assert one.proven or raised < 1e-3 * watts

    watts = truth.least_w()
    if watts < math.inf:
        same(alternative(), watts)
    else:
        assert alternative() is None
        counts = truth.document["objective"] in WAITING_COUNTS
        latest_s = truth.own_waits_s if counts else math.inf
        rows = [row for row in truth.rows(truth.job) if truth.seconds(truth.job, row) <= latest_s]
        deadline_s = truth.job.get("deadline_s", math.inf)
        for pool in {row[0] for row in rows if truth.seconds(truth.job, row) <= deadline_s}:
            changed = [one for one in found.alternatives if not one.change.tenant_gpus]
            one = next((one for one in changed if one.change.gpus.keys() == {pool}), None)
            fewest = next((n for n in range(1, 9) if truth.least_w({pool: n}) < math.inf), None)
            assert (one is not None) == (fewest is not None)
            if one is not None:
                assert one.change.gpus[pool] == fewest
                assert one.least.get("gpus", fewest) == fewest
                same(one, truth.least_w({pool: one.change.gpus[pool]}))
                assert one.proven or "energy_j" in truth.document["budgets"]
        if "tenant" in truth.job:
            changed = [one for one in found.alternatives if not one.change.gpus]
            one = next((one for one in changed if one.change.tenant_gpus), None)
            # More than the job has at most, and its tenant has, is not looked for.
            most = max(row[1] for row in rows) + truth.document["tenants"]["t"]["gpus"] if rows else 0
            fewest = next((n for n in range(1, most + 1) if truth.least_w(quota=n) < math.inf), None)
            assert (one is not None) == (fewest is not None)
            if one is not None:
                assert one.change.tenant_gpus == fewest
                same(one, truth.least_w(quota=one.change.tenant_gpus))
    if truth.document["objective"] in WAITING_COUNTS and not _free(found):
        one = alternative(later=True)
        if one is not None or not found.alternatives:  # what needs no less than others is left out
            same(one, truth.least_w(later=True))


def _free(found: Explanation) -> bool:
    """Whether the job can run without any change, so that none is looked for."""
    return any(one.change == Change() for one in found.alternatives)


def _compare_requests(truth: Truth, found: Explanation) -> None:
    """Compare what the job may ask for."""
    asked = truth.job.get("min_gpus")
    if asked is not None and not _free(found):
        mine = next((one for one in found.alternatives if one.change.min_gpus is not None), None)
        counts = sorted({gpus for gpus in truth.job["options"]["gpus"] if gpus < asked}, reverse=True)
        most = next((gpus for gpus in counts if truth.possible(min_gpus=gpus)), None)
        assert (None if mine is None else mine.change.min_gpus) == most
        assert mine is None or mine.proven
    if (deadline_s := truth.job.get("deadline_s")) is not None and not _free(found):
        mine = next((one for one in found.alternatives if one.change.deadline_s is not None), None)
        late = sorted(s for row in truth.rows(truth.job) if (s := truth.seconds(truth.job, row)) > deadline_s)
        soonest = next((s for s in late if truth.possible(deadline_s=s)), None)
        assert (None if mine is None else mine.change.deadline_s) == pytest.approx(soonest)


ROUNDS = small_instances(min_jobs=2) | instances_with_sets() | sleeping(small_instances(min_jobs=2))


@settings(max_examples=examples(25))
@given(ROUNDS, st.sampled_from(sorted(OBJECTIVES)))
def test_every_explanation_is_accepted(instance: Instance, goal: str) -> None:
    """Whatever a round has: sets, tenants, sleeping nodes, power domains, prices of changes, budgets."""
    instance = instance.model_copy(update={"objective": goal})
    result = wattsched.solve(instance)
    for name in [] if result.decision is None else result.decision.waiting:
        found = wattsched.explain(instance, result, name)
        assert faults_of(instance, result, found) == []
        assert found.unanswered == ([] if found.alternatives or found.state == "runs" else ["several"])


def test_a_session_explains_its_last_decision() -> None:
    cluster = {
        "gpu_types": {"A100": {"idle_power_w": 50.0}},
        "nodes": [{"name": "n", "gpu_type": "A100", "gpus": 2}],
    }
    session = wattsched.Session(cluster, objective="goodput")
    options = {"gpus": [2, 2, 2], "pool": "A100", "power_w": [600.0] * 3, "rate": [1.0] * 3}
    session.upsert(["a", "b/c", "d"], weight=[3.0, 1.0, 1.0], start=[0, 1, 2, 3], **options)
    with pytest.raises(ValueError, match="solve comes first"):
        session.explain("a")
    decision = session.solve(prove=None)
    assert session.explain("a").state == "runs"
    found = session.explain("b/c")
    assert found.alternatives[0].change == Change(gpus={"A100": 2})
    assert found.alternatives[0].proven
    assert found.sentence.startswith(
        "b/c waits for 2 GPUs on one node: none is free; a (weight 3) goes first"
    )
    assert faults_of(decision.instance, decision.result, found) == []
    assert decision.explain("b/c").alternatives == found.alternatives


def test_a_power_domain_is_raised_by_just_enough() -> None:
    """By hand: behind `feed` 1,100 W are drawn with one job, and 200 W idle; another one takes 500 W more."""
    nodes = [{"name": name, "gpu_type": "A100", "gpus": 4} for name in "ab"]
    domains = [{"name": "feed", "members": ["a"], "power_cap_w": 1100.0}]
    domains.append({"name": "other", "members": ["b"], "power_cap_w": 300.0})
    cluster = {"gpu_types": {"A100": {"idle_power_w": 50.0}}, "nodes": nodes, "power_domains": domains}
    table = {"gpus": [2], "pool": ["A100"], "power_w": [600.0], "rate": [1.0]}
    jobs = [{"name": name, "weight": weight, "options": table} for name, weight in (("x", 2.0), ("y", 1.0))]
    instance = Instance.model_validate({"cluster": cluster, "jobs": jobs, "objective": "goodput"})
    result = wattsched.solve(instance, gap=0.0)
    found = wattsched.explain(instance, result, "y")
    raised = [one.change.power_domains for one in found.alternatives]
    assert raised == [{"feed": pytest.approx(100.0)}, {"other": pytest.approx(400.0)}]
    assert all(one.proven for one in found.alternatives)
    assert "100 W more behind feed" in found.sentence
    assert faults_of(instance, result, found) == []


def test_the_expected_start_follows_from_the_work_that_is_left() -> None:
    """By hand: b is complete after 861 s, a after 2,297 s; then `short` goes first. Rounds have 300 s."""
    cluster = {
        "capacity": "nodes",
        "gpu_types": {"A100": {"idle_power_w": 50.0}},
        "nodes": [{"name": "g1", "gpu_type": "A100", "gpus": 8}],
    }

    def job(name: str, gpus: int, seconds: float, **said: Any) -> dict[str, Any]:
        table = {"gpus": [gpus], "pool": ["A100"], "power_w": [300.0 * gpus], "rate": [2.0]}
        return {"name": name, "options": table, "remaining_work": 2 * seconds, **said}

    def runs(gpus: list[int]) -> dict[str, Any]:
        current = {"gpus": 4, "pool": "A100", "nodes": {"g1": gpus}}
        return {"current": current, "preemptible": False, "can_wait": False}

    jobs = [job("a", 4, 2297.0, **runs([0, 1, 2, 3])), job("b", 4, 861.0, **runs([4, 5, 6, 7]))]
    jobs += [job("short", 8, 308.0, weight=3.0), job("train", 8, 1000.0)]
    known = {"cluster": cluster, "objective": "total-completion", "round_s": 300.0}
    instance = Instance.model_validate({**known, "jobs": jobs})
    result = wattsched.solve(instance)
    found = wattsched.explain(instance, result, "train", durations=(0.5, 1.0))
    assert found.start is not None
    assert (found.start.earliest_s, found.start.latest_s) == (1200.0 + 300.0, 2400.0 + 600.0)
    assert found.sentence.endswith("it is expected to start in 25 min to 50 min, if no others come")
    assert (faults_of(instance, result, found), found.unanswered) == ([], [])
    assert wattsched.explain(instance, result, "train").start is None
    # By limits of time, the first of two that is over lets nobody start; the second one does.
    limits_s = {"a": 1000.0, "b": 1500.0, "short": 600.0}
    starts = starts_by_limits(instance, result.decision, limits_s, Timer(60.0))
    assert starts == {"short": 1500.0, "train": 2100.0}
    assert starts_by_limits(instance, result.decision, {"a": 1000.0}, Timer(60.0)) == {}
    # Nothing is expected where no work is stated.
    without = [{name: value for name, value in one.items() if name != "remaining_work"} for one in jobs]
    instance = Instance.model_validate({**known, "jobs": without})
    found = wattsched.explain(instance, wattsched.solve(instance), "train", durations=(1.0, 1.0))
    assert (found.start, found.unanswered) == (None, [])
    with pytest.raises(ValueError, match="durations"):
        wattsched.explain(instance, result, "train", durations=(2.0, 1.0))


def test_refuses_what_it_cannot_explain() -> None:
    document = random_round(random.Random(1))
    instance = Instance.model_validate(document)
    result = wattsched.solve(instance)
    with pytest.raises(ValueError, match="job: 'nobody' is not in the round"):
        wattsched.explain(instance, result, "nobody")
    with pytest.raises(ValueError, match="a valid decision"):
        wattsched.explain(instance, wattsched.Decision(jobs=[], waiting=[]), "j0")
    with pytest.raises(ValueError, match="sizing"):
        wattsched.explain(wattsched.generate("sharing", jobs=2), result, "j0")
    number: Any = 3
    with pytest.raises(TypeError, match="job must be a name"):
        wattsched.explain(instance, result, number)
