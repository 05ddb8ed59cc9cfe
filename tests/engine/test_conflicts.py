"""Sets of limits that contradict each other: against trying all decisions, and forged.

CONFLICT_CASES=500 CONFLICT_SEED=7 pytest tests/engine/test_conflicts.py is a campaign.
"""

from __future__ import annotations

import copy
import os
from functools import cache
from random import Random
from typing import Any

import pytest

import wattsched
from tests.brute_force import conflicts as brute
from tests.strategies.effort import examples
from tests.strategies.infeasible import MAKERS
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.result import Result
from wattsched.solving import conflicts

pytestmark = pytest.mark.usefixtures("explained")

CASES = int(os.environ.get("CONFLICT_CASES", examples(24)))
SEED = int(os.environ.get("CONFLICT_SEED", "0"))
PROBLEMS = tuple(MAKERS)


@cache
def infeasible(number: int) -> tuple[Any, Result]:
    """Instance without a decision, of the three problems by turns, and its result."""
    rng = Random(SEED * 1_000_003 + number)
    while True:
        instance = MAKERS[PROBLEMS[number % 3]](rng)
        if instance is None:
            continue
        result = wattsched.solve(instance, conflict=60.0)
        if result.termination.reason == "infeasible":
            return instance, result


@pytest.mark.parametrize("number", range(CASES))
def test_each_member_is_needed_and_its_least_value_is_least(number: int) -> None:
    instance, result = infeasible(number)
    verdict = wattsched.check(instance, result)
    assert (verdict.faults, verdict.claimed, verdict.infeasible) == ([], False, True)
    assert result.conflict is not None
    assert result.conflict.minimal
    document, members = instance.model_dump(mode="json"), result.conflict.members
    names = {member.limit for member in members}
    assert names <= brute.limits(document)
    alone = dict.fromkeys(brute.limits(document) - names)
    assert not brute.feasible(brute.changed(document, alone))
    for member in members:
        assert brute.feasible(brute.changed(document, alone | {member.limit: None})), member.limit
        if member.value is None:
            continue
        others: dict[str, float | None] = {} if member.enough else alone
        if member.limit.endswith(("least_goodput", "least_progress")) and (member.needed or 0.0) < 1e-6:
            continue  # demands of nothing; some decisions have less than that, by what changes cost
        assert member.needed is not None
        # By trying all, budgets are kept to their last digits.
        enough, short = brute_value(member, 3e-6), brute_value(member, -2e-4)
        assert brute.feasible(brute.changed(document, others | {member.limit: enough})), member
        assert not brute.feasible(brute.changed(document, others | {member.limit: short})), member
        if member.insufficient is not None:
            less = others | {member.limit: member.insufficient}
            assert not brute.feasible(brute.changed(document, less)), member


def brute_value(member: Any, share: float) -> float:
    """The least value that suffices, and a share of it more; of numbers of GPUs one step less, or none."""
    if member.unit in ("GPUs", "units"):
        return member.needed if share > 0 else member.insufficient
    lower = member.limit.endswith(("least_goodput", "least_progress"))
    return member.needed + (-share if lower else share) * max(abs(member.needed), abs(member.value))


def _without_a_member(conflict: dict[str, Any], choice: Random) -> bool:
    """A smaller set, which leaves a decision."""
    conflict["members"].remove(choice.choice(conflict["members"]))
    return bool(conflict["members"])


def _too_small_a_change(conflict: dict[str, Any], choice: Random) -> bool:
    """A value halfway to the least one, which is said not to suffice just below."""
    member = _numbered(conflict, choice)
    if member is None or member["unit"] in ("GPUs", "units"):
        return False
    member["needed"] = (member["needed"] + member["value"]) / 2
    member["insufficient"] = member["needed"] + (member["value"] - member["needed"]) * 1e-4
    return True


def _too_large_a_change(conflict: dict[str, Any], choice: Random) -> bool:
    """A value that is far easier than it need be, and is said to be least."""
    member = _numbered(conflict, choice)
    if member is None or member["limit"].endswith(("least_goodput", "least_progress")):
        return False
    member["needed"] = member["needed"] * 2 + 2
    member["insufficient"] = member["needed"] * (1 - 9e-5)
    if member["unit"] in ("GPUs", "units"):
        member["insufficient"] = member["needed"] - 1
    return True


def _another_value(conflict: dict[str, Any], choice: Random) -> bool:
    member = _numbered(conflict, choice)
    if member is None:
        return False
    member["value"] += 1
    return True


def _no_witness(conflict: dict[str, Any], choice: Random) -> bool:
    choice.choice(conflict["members"])["decision"] = None
    return True


def _enough(conflict: dict[str, Any], choice: Random) -> bool:
    """One change is said to leave a decision of the whole instance, and does not."""
    several = [member for member in conflict["members"] if not member["enough"]]
    if several:
        choice.choice(several)["enough"] = True
    return bool(several)


def _no_proof(conflict: dict[str, Any], choice: Random) -> bool:
    if conflict["certificate"] is None:  # a look at each job proves it
        return False
    conflict["certificate"] = {"prices": {}, "bound": 0.0, "price_bound": None, "tree": []}
    return True


def _unknown(conflict: dict[str, Any], choice: Random) -> bool:
    choice.choice(conflict["members"])["limit"] = choice.choice(["budgets.watts", "jobs.nobody.can_wait", 7])
    return True


def _twice(conflict: dict[str, Any], choice: Random) -> bool:
    conflict["members"].append(choice.choice(conflict["members"]))
    return True


def _numbered(conflict: dict[str, Any], choice: Random) -> dict[str, Any] | None:
    members = [member for member in conflict["members"] if member["needed"] is not None]
    return choice.choice(members) if members else None


FORGERIES = (
    _without_a_member,
    _too_small_a_change,
    _too_large_a_change,
    _another_value,
    _no_witness,
    _enough,
    _no_proof,
    _unknown,
    _twice,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forged_sets_are_refused(forge: Any) -> None:
    forged = 0
    for number in range(CASES):
        instance, result = infeasible(number)
        document = copy.deepcopy(result.model_dump(mode="json"))
        if not forge(document["conflict"], Random(number)):
            continue
        verdict = verdict_on(instance, document)
        assert any(fault.startswith("conflict:") for fault in verdict.faults), (number, document["conflict"])
        forged += 1
    assert forged


def test_a_set_that_nothing_needs_is_refused() -> None:
    """The instance is changed so that another limit is a member; a feasible result has no set."""
    instance, result = infeasible(0)
    document = result.model_dump(mode="json")
    assert document["conflict"] is not None
    others = brute.limits(instance.model_dump(mode="json")) - {m.limit for m in result.conflict.members}
    more = copy.deepcopy(document)
    more["conflict"]["members"].append(
        more["conflict"]["members"][0] | {"limit": sorted(others)[0], "value": None, "needed": None}
    )
    assert verdict_on(instance, more).faults
    feasible = copy.deepcopy(document) | {"termination": {"reason": "no_solution", "limit": "time"}}
    told = "conflict: only a result that says 'infeasible' can have one"
    assert told in verdict_on(instance, feasible).faults


def test_no_time_is_told() -> None:
    instance, result = infeasible(0)
    assert wattsched.solve(instance, conflict=0).conflict is None
    found = wattsched.solve(instance, conflict=0.02)
    assert found.conflict is None
    told = f"{result.termination.detail}; limits that contradict each other were not found"
    assert (found.termination.reason, found.termination.detail) == ("infeasible", told)
    assert wattsched.check(instance, found).infeasible


def test_without_time_for_the_jobs_their_demands_all_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are found; of jobs, all that they demand is said, and that some of it may not be needed."""
    real, calls = conflicts._Search.smallest, []

    def smallest(self: Any, kept: list[str], added: bool, open: list[str]) -> list[str]:
        calls.append(open)
        if open and open[0].startswith("jobs."):
            raise conflicts.CutError
        found: list[str] = real(self, kept, added, open)
        return found

    monkeypatch.setattr(conflicts._Search, "smallest", smallest)
    for number in range(0, CASES, 3):
        instance = infeasible(number)[0]
        result = wattsched.solve(instance, conflict=60.0)
        assert calls
        assert result.conflict is not None
        demands = {
            name for name in brute.limits(instance.model_dump(mode="json")) if name.startswith("jobs.")
        }
        if demands and result.conflict.members[-1].limit.startswith("jobs."):
            assert not result.conflict.minimal
            assert "perhaps not all of them" in str(result) or len(result.conflict.members) == 1
        assert verdict_on(instance, result.model_dump(mode="json")).faults == []


def test_the_words_name_amounts_in_units() -> None:
    """A power cap, a deadline and a job that must run, which do not go together."""
    table = {"gpus": [2, 4], "pool": ["A", "A"], "power_w": [600.0, 1200.0], "completion_s": [900.0, 500.0]}
    instance = Instance.model_validate(
        {
            "budgets": {"power_w": 1500.0},
            "cluster": {
                "gpu_types": {"A": {"idle_power_w": 50.0}},
                "nodes": [{"name": "n", "gpu_type": "A", "gpus": 8}],
            },
            "tables": {"t": table},
            "jobs": [
                {"name": "train", "options": "t", "can_wait": False, "deadline_s": 600.0},
                {"name": "test", "options": "t", "can_wait": False},
                {"name": "later", "options": "t"},
            ],
        }
    )
    words = str(wattsched.solve(instance))
    assert "power cap                1.5 kW  needs 1.9 kW, 400 W more" in words
    assert "deadline of job 'train'  10 min  needs 15 min, 5 min more" in words
    assert "job 'test' may not wait" in words
    assert "may not wait" not in words.replace("job 'test' may not wait", "")
