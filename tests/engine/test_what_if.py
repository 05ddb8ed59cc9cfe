"""What a round's decision would be after changes: the changed rounds, and what is said of the difference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wattsched
from tests.strategies.instances import small_instances
from wattsched import plot
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.changes import changed, changed_number
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.pools import pools_of


def small(**fields: Any) -> Instance:
    """Two nodes of four GPUs under a cap; a job that runs, one that stays where it is, and a new one."""
    table = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "power_w": [200.0, 380.0, 700.0]}
    table["completion_s"] = [1000.0, 550.0, 300.0]
    held = {"gpus": 2, "pool": "A"}
    document: dict[str, Any] = {
        "budgets": {"power_w": 1500.0},
        "cluster": {
            "gpu_types": {"A": {"idle_power_w": 20.0}},
            "nodes": [{"name": n, "gpu_type": "A", "gpus": 4, "base_power_w": 50.0} for n in ("n0", "n1")],
            "power_domains": [{"name": "rack", "members": ["n0", "n1"], "power_cap_w": 900.0}],
        },
        "tables": {"t": table},
        "jobs": [
            {"name": "runs", "options": "t", "current": {**held, "nodes": {"n0": [0, 1]}}},
            {
                "name": "stays",
                "options": "t",
                "preemptible": False,
                "current": {**held, "nodes": {"n0": [2, 3]}},
            },
            {"name": "new", "options": "t", "weight": 2.0},
        ],
    }
    return Instance.model_validate(document | fields)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+2kW", 3000.0),
        ("-10%", 900.0),
        ("=5 kW", 5000.0),
        ("5000", 5000.0),
        ("+0.5", 1000.5),
        ("none", None),
        ("=none", None),
        ("50%", 500.0),
    ],
)
def test_changes_are_read(text: str, value: float | None) -> None:
    assert changed_number("power_w", 1000.0, text, "power") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "two", "+", "+2 kg", "nan", "=inf", "+-3", "2mw"])
def test_what_is_no_change_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"power_w: .* is no change"):
        changed_number("power_w", 1000.0, text, "power")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gpus": {"A": "-9"}}, "gpus.A: '-9' of 8 leaves no whole number of GPUs from 0 on"),
        ({"gpus": {"A": "-7"}}, "gpus.A: 7 cannot go, jobs that keep theirs leave 6"),
        ({"gpus": {"A": "+0.5"}}, "gpus.A: '+0.5' of 8 leaves no whole number of GPUs from 0 on"),
        ({"gpus": {"A": "+6"}}, "gpus.A: more come in nodes of 4, got '+6'"),
        ({"gpus": {"B": "1"}}, "gpus: 'B' is not known, choose one of A"),
        ({"remove": ["run"]}, "remove: 'run' is not known"),
        ({"changes": {"watts": "1"}}, "changes: 'watts' is not known"),
        ({"changes": {"power_w": "-2kW"}}, "budgets.power_w: must be greater than 0, got -500"),
        ({"changes": {"energy_j": "+1"}}, "energy_j: '+1' changes a limit that the round does not have"),
        ({"changes": {"carbon_g": "=5"}}, "a carbon budget needs 'carbon_g_per_kwh'"),
    ],
)
def test_bad_changes_name_field_and_value(change: dict[str, Any], told: str) -> None:
    with pytest.raises((InputError, ValueError)) as caught:
        wattsched.what_if(small(), **change)
    assert told in str(caught.value)


def test_gpus_that_nobody_holds_go_first_and_an_empty_node_draws_nothing() -> None:
    found = changed(small(), {}, gpus={"A": "-4"})
    first, second = found.cluster.nodes
    assert (first.unavailable, second.unavailable) == ([], [0, 1, 2, 3])
    assert (first.base_power_w, second.base_power_w) == (50.0, 0.0)
    one_more = changed(small(), {}, gpus={"A": "-5"})
    assert one_more.cluster.nodes[0].unavailable == [1]


@given(instance=small_instances(max_jobs=2), more=st.integers(-3, 9))
def test_a_pool_has_as_many_gpus_as_are_asked_for(instance: Instance, more: int) -> None:
    before = {pool.name: pool for pool in pools_of(instance.cluster)}
    name = next(iter(before))
    there = int(before[name].available.sum())
    try:
        found = changed(instance, {}, gpus={name: f"{more:+d}"})
    except InputError:
        assert more < 0 or more % before[name].gpus_per_node
        return
    after = {pool.name: int(pool.available.sum()) for pool in pools_of(found.cluster)}
    assert after == {n: int(pool.available.sum()) for n, pool in before.items()} | {name: there + more}


def test_the_difference_is_said_and_both_results_hold() -> None:
    instance = small()
    found = wattsched.what_if(instance, {"power_w": "-40%"}, remove=["runs"])
    after = changed(instance, {"power_w": "-40%"}, remove=["runs"])
    assert found.changes == {"power_w": "-40%", "remove": "runs"}
    assert wattsched.check(instance, found.before).faults == []
    assert wattsched.check(after, found.after).faults == []
    assert found.before.objective == wattsched.solve(instance).objective
    jobs = {job.job: job for job in found.jobs}
    assert jobs["runs"].change == "is taken out"
    assert jobs["runs"].after == ""
    for name, job in jobs.items():
        runs = [{one.job for one in result.decision.jobs} for result in (found.before, found.after)]
        assert (job.before == "waits") == (name not in runs[0])
        assert (job.change == "stops") == (
            name in runs[0] and name in after.by_column().place and name not in runs[1]
        )


@pytest.mark.usefixtures("explained")
def test_no_change_is_no_difference_and_no_decision_says_why() -> None:
    assert wattsched.what_if(small()).jobs == []
    none = wattsched.what_if(small(), {"power_w": 270.0})
    assert none.after.termination.reason == "infeasible"
    assert none.after.conflict is not None
    names = {member.limit for member in none.after.conflict.members}
    assert names == {"budgets.power_w", "jobs.stays.preemptible"}


def test_a_sweep_goes_from_value_to_value() -> None:
    values = [400.0, 600.0, 800.0, 1000.0]
    found = wattsched.sweep(small(), "power_w", values)
    assert found.values == values
    for value, result in zip(values, found.results, strict=True):
        alone = changed(small(), {"power_w": f"={value}"})
        assert wattsched.check(alone, result).faults == []
        again = wattsched.solve(alone)
        assert again.termination.reason == result.termination.reason
        if again.objective is not None:
            assert result.objective == pytest.approx(again.objective, rel=2e-4)
    assert plot.frontier(found).get_xlabel() == "power_w"
    with pytest.raises(ValueError, match="field: 'watts' is not known"):
        wattsched.sweep(small(), "watts", [1.0])
    with pytest.raises(ValueError, match="values: must be 1 to 200 of them"):
        wattsched.sweep(small(), "power_w", [])
