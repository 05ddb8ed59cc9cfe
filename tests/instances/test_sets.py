"""Sets of jobs that may share GPUs: bad input, options, and what the checker refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import wattsched
from wattsched.formulations.sizing.data import expand
from wattsched.formulations.sizing.matching import matching_options
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import instance_of
from wattsched.verification.sizing.checker import check

GPU = {"gpus": [1, 2], "pool": ["A", "A"], "rate": [1.0, 1.5], "power_w": [200.0, 390.0]}
ROUND: dict[str, Any] = {
    "objective": "goodput",
    "cluster": {
        "gpu_types": {"A": {"idle_power_w": 50.0}, "B": {"idle_power_w": 20.0}},
        "nodes": [
            {"name": "n", "gpu_type": "A", "gpus": 2, "base_power_w": 100.0},
            {"name": "m", "gpu_type": "B", "gpus": 1},
        ],
    },
    "tables": {"all": GPU},
    "jobs": [{"name": name, "options": "all", "remaining_work": 400.0} for name in "abcd"],
    "sets": [
        {"name": "ab", "pool": "A", "gpus": 1, "power_w": 240.0, "rates": {"a": 0.9, "b": 0.8}},
        {"name": "abc", "pool": "A", "gpus": 2, "power_w": 450.0, "rates": {"a": 1.4, "b": 1.3, "c": 1.2}},
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The round with one field replaced, as ``sets.0.gpus``."""
    content: Any = copy.deepcopy(ROUND)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = content
    for step in steps:
        place = place[step]
    place[last] = value
    return dict(content)


# --- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("sets.0.rates", {"a": 1.0}, "sets[0].rates: must have at least 2 entries, it has 1"),
        ("sets.0.rates", {"a": 1.0, "x": 1.0}, "set 'ab' names the unknown job 'x'"),
        ("sets.0.rates", {"a": 1.0, "b": 0.0}, "sets[0].rates.b: must be greater than 0, got 0.0"),
        ("sets.0.power_w", -1.0, "sets[0].power_w: must be greater than or equal to 0, got -1.0"),
        ("sets.0.gpus", 0, "sets[0].gpus: must be greater than or equal to 1, got 0"),
        ("sets.0.batch_sizes", {"c": 64}, "batch_sizes names 'c', but rates does not"),
        ("sets.1.name", "ab", "duplicate set name 'ab'"),
        ("sets.0.pool", "AA", "set 'ab': pool 'AA' is no pool or GPU type of the cluster (did you mean"),
        ("sets.0.gpus", 3, "set 'ab': needs 4 GPUs in one block but the largest block of 'A' is 2"),
        ("sets.0.pool", "B", None),
        ("jobs.0.max_gpus", 1, "set 'abc': 2 GPUs are above the max_gpus 1 of 'a'"),
        ("jobs.0.min_gpus", 2, "set 'ab': 1 GPUs are below the min_gpus 2 of 'a'"),
        ("jobs.0.pools", ["A"], None),
    ],
)
def test_faults_are_named(path: str, value: Any, said: str | None) -> None:
    if said is None:
        instance_of(changed(path, value))
        return
    with pytest.raises(InputError) as caught:
        instance_of(changed(path, value))
    assert any(said in fault for fault in caught.value.faults), caught.value.faults


def test_a_set_that_not_all_of_its_jobs_may_use() -> None:
    content = changed("sets.0.pool", "B")
    content["jobs"][0] |= {"pools": ["A"]}
    with pytest.raises(InputError, match="set 'ab': not all of its jobs may use 'B'"):
        instance_of(content)


def test_jobs_that_keep_their_gpus_share_none() -> None:
    held = {"gpus": 1, "pool": "A", "nodes": {"n": [0]}}
    content = changed("jobs.0", {**ROUND["jobs"][0], "preemptible": False, "current": held})
    with pytest.raises(InputError, match="set 'ab': job 'a' keeps its GPUs"):
        instance_of(content)
    content["sets"], content["jobs"][0]["current"]["set"] = [], "now"
    with pytest.raises(InputError, match=r"job 'a' shares its GPUs \(current.set\) and so cannot keep them"):
        instance_of(content)


def test_jobs_may_hold_the_same_gpus_in_one_set_only() -> None:
    held = {"gpus": 1, "pool": "A", "nodes": {"n": [0]}}

    def running(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        content = changed("jobs.0", {**ROUND["jobs"][0], "current": held | first})
        content["jobs"][1] |= {"current": held | second}
        return content

    instance_of(running({"set": "now"}, {"set": "now"}))
    for first, second in (({}, {}), ({"set": "now"}, {}), ({"set": "now"}, {"set": "other"})):
        with pytest.raises(InputError, match="jobs 'a' and 'b' both hold GPU 0 of node 'n'"):
            instance_of(running(first, second))
    with pytest.raises(InputError, match="jobs 'a' and 'b' are now in the set 'now' on different GPUs"):
        instance_of(running({"set": "now"}, {"set": "now", "nodes": {"n": [1]}}))


# --- options ----------------------------------------------------------------------------------------


def test_options_of_a_set() -> None:
    options = expand(instance_of(ROUND))
    shared = options.shared
    names = [options.job_sets[s].declared.name for s in options.job_set[shared]]
    assert names == ["ab", "abc", "ab", "abc", "abc"]
    assert options.block[shared].tolist() == [1, 2, 0, 0, 0]
    assert options.gpus[shared].tolist() == [1, 2, 1, 2, 2]
    assert options.power_w[shared] == pytest.approx([120.0, 150.0, 120.0, 150.0, 150.0])
    assert options.idle_w[shared] == pytest.approx([25.0, 100 / 3, 25.0, 100 / 3, 100 / 3])
    # Waiting is the last option, and judged by what a job can do alone.
    assert options.waiting[options.start[1:] - 1].all()
    assert options.completion_s[options.waiting] == pytest.approx([300 + 400 / 1.5] * 4)


def test_a_gpu_type_stands_for_each_of_its_pools() -> None:
    content = copy.deepcopy(ROUND)
    content["cluster"]["nodes"].append({"name": "k", "gpu_type": "A", "gpus": 4})
    options = expand(instance_of(content))
    offered = [(one.declared.name, options.pools[one.pool].name) for one in options.job_sets]
    assert offered == [("ab", "Ax2"), ("ab", "Ax4"), ("abc", "Ax2"), ("abc", "Ax4")]


def test_who_shares_the_gpus_that_it_holds_does_not_restart() -> None:
    content = changed("sets", ROUND["sets"][:1])
    for member in content["jobs"][:2]:
        member |= {"restart_s": 50.0, "current": {"gpus": 1, "pool": "A", "set": "ab", "nodes": {"n": [1]}}}
    instance = instance_of(content)
    result = wattsched.solve(instance, objective="progress")
    again = {assignment.job: assignment for assignment in result.decision.jobs} if result.decision else {}
    assert again["a"].set == again["b"].set == "ab"
    assert again["a"].nodes == again["b"].nodes == {"n": [1]}
    assert result.totals is not None
    assert (result.totals["restarts"], result.totals["migrations"]) == (0, 0)


def test_an_answer_is_a_start_for_the_next_round() -> None:
    instance = instance_of(ROUND)
    result = wattsched.solve(instance)
    assert result.decision is not None
    options = expand(instance)
    chosen = matching_options(options, result.decision)
    assert options.shared[chosen].any()
    assert (chosen >= 0).all()
    assert wattsched.solve(instance, initial_solution=result).objective == pytest.approx(result.objective)


# --- the checker ------------------------------------------------------------------------------------


def job(name: str, gpus: int, numbers: list[int], formed: str | None = None) -> dict[str, Any]:
    return {"job": name, "gpus": gpus, "pool": "A", "set": formed, "nodes": {"n": numbers}}


def told(*jobs: dict[str, Any], budgets: dict[str, float] | None = None) -> list[str]:
    """What the checker finds in a decision, in which all other jobs wait."""
    named = {assignment["job"] for assignment in jobs}
    decision = {"jobs": list(jobs), "waiting": [name for name in "abcd" if name not in named]}
    instance = Instance.model_validate(ROUND | {"budgets": budgets or {}})
    return check(instance, Decision.model_validate(decision)).faults


AB = [job("a", 1, [0], "ab"), job("b", 1, [0], "ab")]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (AB[:1], "set 'ab' is formed without its job 'b'"),
        ([AB[0], job("b", 1, [1])], "set 'ab' is formed without its job 'b'"),
        ([AB[0], job("b", 1, [1], "ab")], "jobs 'a' and 'b' of set 'ab' have different GPUs"),
        ([*AB, job("c", 1, [0], "ab")], "job 'c' is not in the set 'ab'"),
        ([*AB, job("c", 1, [0])], "jobs 'c' and 'a' both use GPU 0 of node 'n'"),
        ([job("a", 1, [0]), job("b", 1, [0])], "jobs 'a' and 'b' both use GPU 0 of node 'n'"),
        ([one | {"set": "xy"} for one in AB], "job 'a' is in the set 'xy', which is not declared"),
        (
            [job("a", 2, [0, 1], "ab"), job("b", 2, [0, 1], "ab")],
            "job 'a' has no configuration in a set 'ab' with 2 GPUs in pool 'A'",
        ),
        (
            [AB[0] | {"frequency_mhz": 900}, AB[1]],
            "job 'a' has no configuration in a set 'ab' with 1 GPUs in pool 'A', frequency_mhz 900",
        ),
        (
            [one | {"nodes": {"n": [0, 1]}} for one in AB],
            "job 'a' has 2 GPUs in its nodes, its configuration 1",
        ),
    ],
)
def test_false_sets_are_refused(jobs: list[dict[str, Any]], said: str) -> None:
    assert said in told(*jobs)


def test_sets_obey_the_budgets() -> None:
    ab = job("a", 1, [0], "ab"), job("b", 1, [0], "ab")
    needs = 100 + 20 + 50 + 240
    assert told(*ab, budgets={"power_w": needs}) == []
    assert "the decision needs 410 W, the budget is 409 W" in told(*ab, budgets={"power_w": needs - 1.0})[0]
    assert told(*ab, budgets={"energy_j": 300.0 * needs}) == []
    assert "budgets.energy_j" in told(*ab, budgets={"energy_j": 300.0 * needs - 1})[0]


def test_a_set_whose_deadline_cannot_be_met_is_not_formed() -> None:
    content = changed("sets", ROUND["sets"][:1])
    content["jobs"][1] |= {"deadline_s": 450.0, "can_wait": False}
    result = wattsched.solve(instance_of(content), gap=0.0)
    assert result.decision is not None
    assert not any(assignment.set for assignment in result.decision.jobs)
    # With the job alone too late as well, nothing is left.
    content["jobs"][1] |= {"deadline_s": 100.0}
    assert wattsched.solve(instance_of(content)).termination.reason == "infeasible"


def test_infeasible_by_a_set() -> None:
    """One job could be in time only in a set that the other would be late in, so that it is not formed."""
    slow = {"gpus": [1], "pool": ["A"], "rate": [0.5], "power_w": [200.0]}
    content = changed("sets", ROUND["sets"][:1])
    content["jobs"] = [
        {"name": "a", "options": slow, "remaining_work": 400.0, "deadline_s": 500.0, "can_wait": False},
        {"name": "b", "options": "all", "remaining_work": 400.0, "deadline_s": 450.0},
    ]
    result = wattsched.solve(instance_of(content))
    assert result.termination.reason == "infeasible"
    assert "no option of job 'a' can be used: its deadline of 500 s" in result.termination.detail
    assert not result.claimed
