"""Faults of shifting instances name field and value."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from wattsched.instances.errors import InputError
from wattsched.results.documents import instance_of

GOOD: dict[str, Any] = {
    "problem": "shifting",
    "slots": 3,
    "carbon_g_per_kwh": [100.0, 50.0, 80.0],
    "pools": {"a": {"gpus": 4, "idle_power_w": 50.0}},
    "jobs": [
        {
            "name": "x",
            "remaining_work": 3600.0,
            "options": {"gpus": [1, 2], "pool": ["a", "a"], "power_w": [200.0, 400.0], "rate": [1.0, 1.8]},
        }
    ],
}


def faults(change: Any) -> str:
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(InputError) as error:
        instance_of(document)
    return str(error.value)


def job(**fields: Any) -> Any:
    return lambda document: document["jobs"][0].update(fields)


def top(**fields: Any) -> Any:
    return lambda document: document.update(fields)


def _unequal(**fields: Any) -> Any:
    """Slots of 100, 900 and 500 s, and a number more than there are slots."""

    def change(document: dict[str, Any]) -> None:
        document["slot_s"] = [100.0, 900.0, 500.0, 9000.0]
        job(**fields)(document)

    return change


def options(**fields: Any) -> Any:
    return lambda document: document["jobs"][0]["options"].update(fields)


def both_hold(gpus: int) -> Any:
    def change(document: dict[str, Any]) -> None:
        first = {**document["jobs"][0], "current": {"gpus": gpus, "pool": "a"}}
        document["jobs"] = [first, {**first, "name": "y"}]

    return change


def test_two_running_jobs_may_hold_all_of_a_pool() -> None:
    document = copy.deepcopy(GOOD)
    both_hold(2)(document)
    assert len(instance_of(document).jobs) == 2


def test_a_good_instance_is_read() -> None:
    assert instance_of(copy.deepcopy(GOOD)).slots == 3


@pytest.mark.parametrize(("slot_s", "arrival_s"), [(0.1, 0.2), (30.1, 60.2), ([0.1, 0.7, 0.1], 0.8)])
def test_jobs_may_arrive_at_the_begin_of_the_last_slot(slot_s: float | list[float], arrival_s: float) -> None:
    """Begins of slots are sums, which are rounded."""
    document = copy.deepcopy(GOOD)
    top(slot_s=slot_s)(document)
    job(arrival_s=arrival_s * (1 + 1e-12), remaining_work=1.0)(document)
    assert instance_of(document).slots == 3


def test_options_may_be_a_list_of_rows() -> None:
    columns = GOOD["jobs"][0]["options"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    document = copy.deepcopy(GOOD)
    document["jobs"][0]["options"] = rows
    assert instance_of(document) == instance_of(copy.deepcopy(GOOD))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (top(carbon_g_per_kwh=[1.0, 2.0]), "carbon_g_per_kwh has 2 numbers but the horizon has 3 slots"),
        (top(slot_s=[60.0, 60.0]), "slot_s has 2 numbers but the horizon has 3 slots"),
        (top(slot_s=[60.0, 0.0, 60.0]), "slot_s[1]: must be greater than 0, got 0.0"),
        (top(power_w=[60.0, 0.0, 60.0]), "power_w[1]: must be greater than 0, got 0.0"),
        (top(slot_s=[]), "slot_s: must not be empty"),
        (top(slot_s="1 h"), "slot_s: must be a valid number, got '1 h'"),
        (top(carbon_g_per_kwh=[1.0, -2.0, 3.0]), "carbon_g_per_kwh[1]"),
        (top(price_per_kwh=[0.1]), "price_per_kwh has 1 numbers"),
        (top(budgets={"money": 3.0}), "budgets.money needs the forecast 'price_per_kwh'"),
        (top(objective="money"), "objective 'money' needs the forecast"),
        (top(objective="foo"), "objective: 'foo' is not known, choose one of mean-completion, carbon"),
        (job(deadline_s=-5.0), "deadline_s -5 is past"),
        (job(arrival_s=7200.0, deadline_s=7000.0), "deadline_s 7000 is past when it arrives, at 7200"),
        (job(arrival_s=9000.0), "arrival_s 9000 leaves no slot"),
        (job(restart_s=3600.0), "restart_s 3600 leaves nothing"),
        (
            _unequal(arrival_s=1100.0),
            "1100 leaves no slot of the horizon, the last one begins at 1000",
        ),
        (_unequal(restart_s=900.0), "restart_s 900 leaves nothing of a slot of 900 s"),
        (job(arrival_s=100.0, current={"gpus": 1, "pool": "a"}), "contradicts 'current'"),
        (job(current={"gpus": 1, "pool": "b"}), "current.pool 'b' is unknown"),
        (job(current={"gpus": 5, "pool": "a"}), "current.gpus 5 is more than pool 'a' has, 4"),
        (both_hold(3), "pool 'a': the running jobs hold 6 GPUs, it has 4"),
        (job(options=[]), "options: a list of options must hold one object per option"),
        (job(options=[{"gpus": 1, "pool": "a", "rate": 1.0}]), "jobs[0].options[0].power_w: is missing"),
        (job(options="t"), "options names the unknown table 't'"),
        (job(remaining_work=1e-9), "remaining_work 1e-09 takes"),
        (options(gpus=[8, 16]), "no option fits into its pool"),
        (options(pool=["a", "b"]), "row 1: unknown pool 'b'"),
        (options(power_w=[20.0, 400.0]), "row 0: power_w 20 is less than the 50 W of idle GPUs"),
        (options(rate=None, completion_s=[1.0, 2.0]), "needs 'rate'"),
        (lambda document: document["jobs"].append(document["jobs"][0]), "duplicate job name 'x'"),
        (top(surprise=1), "surprise"),
    ],
)
def test_faults_are_named(change: Any, words: str) -> None:
    assert words in faults(change)
    assert "list[" not in faults(change)
