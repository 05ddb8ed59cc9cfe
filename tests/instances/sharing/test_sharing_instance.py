"""Faults of instances of `sharing` are told together, each with its field and value."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from wattsched.instances.sharing.instance import SharingInstance
from wattsched.results.documents import instance_of
from wattsched.results.problems import problem

GOOD: dict[str, Any] = {
    "problem": "sharing",
    "unit_types": [{"name": "node", "count": 2, "gpus": 8, "idle_power_w": 300.0, "full_power_w": 2000.0}],
    "classes": [
        {"name": "a", "alone": {"node": {"epoch_s": 60.0, "utilisation_pct": 30.0}}},
        {"name": "b", "alone": {"node": {"epoch_s": 90.0, "utilisation_pct": 50.0}}},
    ],
    "sets": [{"unit_type": "node", "classes": ["a", "b"], "slowdown": [1.1, 1.2]}],
    "jobs": [{"name": "one", "job_class": "a"}, {"name": "two", "job_class": "b", "deadline_s": 500.0}],
}


def test_the_document_without_faults_has_none() -> None:
    instance = instance_of(GOOD)
    assert isinstance(instance, SharingInstance)
    assert instance.unit_types[0].row == "nodes:node"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("jobs", 1, "deadline_s"), -5.0, "job 'two': deadline_s -5 is in the past"),
        (("jobs", 1, "deadline_s"), 0.0, "deadline_s 0 is in the past"),
        (("jobs", 1, "name"), "one", "duplicate job 'one'"),
        (("jobs", 0, "job_class"), "c", "job 'one' names the unknown class 'c'"),
        (("jobs", 0, "remaining_epochs"), float("nan"), "remaining_epochs"),
        (
            ("classes", 0, "alone"),
            {"gpu": {"epoch_s": 1.0, "utilisation_pct": 1.0}},
            "unknown unit type 'gpu'",
        ),
        (("classes", 0, "alone", "node", "epoch_s"), -1.0, "epoch_s"),
        (("classes", 0, "alone", "node", "utilisation_pct"), 101.0, "utilisation_pct"),
        (("sets", 0, "classes"), ["a", "z"], "sets[0] names the unknown class 'z'"),
        (("sets", 0, "slowdown"), [1.1], "sets[0].slowdown has 1 numbers for 2 classes"),
        (("sets", 0, "classes"), ["a", "a"], "two jobs of class 'a' have 1.1 and 1.2"),
        (("sets", 0, "slowdown"), [0.0, 1.0], "slowdown"),
        (("unit_types", 0, "full_power_w"), 100.0, "full_power_w 100 is below idle_power_w 300"),
        (("unit_types", 0, "sleep_power_w"), 3e3, "sleep_power_w 3000 is above full_power_w 2000"),
        (("unit_types", 0, "power_exponent"), float("nan"), "power_exponent"),
        (("budgets",), {"carbon_g": 5.0}, "carbon_g_per_kwh"),
        (("alpha",), 1.5, "alpha"),
        (("limits",), {"jobs_per_set": 9}, "jobs_per_set"),
        (("limit",), 3, "limit"),
        (("unit_types", 0, "pool"), "p", "unit type 'node' names the unknown pool 'p'"),
        (("pools",), [{"name": "node", "gpus": 4}], "'node' is the name of a pool and of a unit type"),
    ],
)
def test_faults_name_field_and_value(path: tuple[Any, ...], value: Any, told: str) -> None:
    document = copy.deepcopy(GOOD)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ValidationError) as caught:
        SharingInstance.model_validate(document)
    assert told in str(caught.value)


def test_all_faults_are_told_at_once() -> None:
    document = copy.deepcopy(GOOD)
    document["jobs"][0]["job_class"] = "c"
    document["jobs"][1]["deadline_s"] = -1.0
    document["sets"] *= 2
    with pytest.raises(ValidationError) as caught:
        SharingInstance.model_validate(document)
    told = str(caught.value)
    assert all(part in told for part in ("unknown class 'c'", "in the past", "is given 2 times"))


def test_what_the_fields_mean_together() -> None:
    document = {**GOOD, "objective": "speed", "limits": {"utilisation_pct": 40.0}}
    faults = problem("sharing").faults_in(SharingInstance.model_validate(document))
    assert len(faults) == 2
    assert "'speed' is not known" in faults[0]
    assert faults[1].startswith("job 'two': class 'b' is above limits.utilisation_pct")
