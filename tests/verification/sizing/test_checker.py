"""The checker against numbers worked by hand, and against every kind of corruption of a valid decision."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.strategies.instances import small_instances
from wattsched.formulations.sizing.data import expand
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.report import Report
from wattsched.verification.sizing import configurations
from wattsched.verification.sizing.checker import check
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.objectives import OBJECTIVES
from wattsched.verification.sizing.pools import pools_of

CLUSTER: dict[str, Any] = {
    "gpu_types": {"A": {"idle_power_w": 10.0}, "B": {"idle_power_w": 5.0}},
    "nodes": [
        {"name": "a0", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0},
        {"name": "b0", "gpu_type": "B", "gpus": 2, "base_power_w": 50.0},
    ],
}
TRAIN = {
    "name": "train",
    "weight": 2.0,
    "remaining_work": 3600.0,
    "options": {
        "gpus": [1, 2, 4],
        "pool": ["A", "A", "A"],
        "power_w": [100.0, 180.0, 320.0],
        "rate": [1.0, 1.8, 3.0],
    },
}
TUNE = {
    "name": "tune",
    "restart_s": 100.0,
    "current": {"gpus": 1, "pool": "A", "nodes": {"a0": [3]}},
    "options": {"gpus": [1, 2], "pool": ["A", "B"], "power_w": [90.0, 60.0], "completion_s": [1000.0, 800.0]},
}


def instance(*jobs: dict[str, Any], **fields: Any) -> Instance:
    content = {"cluster": CLUSTER, "round_s": 300.0, "jobs": list(jobs) or [TRAIN, TUNE]}
    return Instance.model_validate({"objective": "total-completion", **content, **fields})


def runs(job: str, gpus: int, pool: str, nodes: dict[str, list[int]], **settings: Any) -> dict[str, Any]:
    return {"job": job, "gpus": gpus, "pool": pool, "nodes": nodes, **settings}


def decision(*jobs: dict[str, Any], waiting: tuple[str, ...] = ()) -> Decision:
    return Decision.model_validate({"jobs": list(jobs), "waiting": list(waiting)})


BOTH_RUN = decision(runs("train", 2, "A", {"a0": [0, 1]}), runs("tune", 1, "A", {"a0": [3]}))
ONE_MOVES = decision(runs("tune", 2, "B", {"b0": [0, 1]}), waiting=("train",))
BOTH_WAIT = decision(waiting=("train", "tune"))

# train: 3600 s of work at rate 1.8 is 2000 s, at best 1200 s.
# tune: 1000 s where it is, 800 + 100 s if it moves.
WORTH = {
    "total-completion": (2 * 2000 + 1000, 2 * 1500 + 900, 2 * 1500 + 1200),
    "makespan": (4000, 3000, 3000),
    "progress": (2 * 3600 / 2000 + 3600 / 1000, 3600 / 900, 0),
    "max-min": (1200 / 2000 / 2, 1200 / 1500 / 2, 1200 / 1500 / 2),
    "proportional": (
        2 * math.log(2000 / 1200) + math.log(1000 / 900),
        2 * math.log(1500 / 1200),
        2 * math.log(1500 / 1200) + math.log(1200 / 900),
    ),
    # The second pays 100 of 300 s for being 1000 / 800 as fast.
    "goodput": (2 * 1.8 + 1, 1.25 * (1 - 100 / 300), 0),
    # train is larger per weight, 3600 / 2 to 1000 s: values are the roots of 2 * (0 + 2) and 1 * (2 + 3).
    "work-value": (2 * 1.8 + math.sqrt(5), math.sqrt(5) * 1.25 * (1 - 100 / 600), 0),
    # Above idle draw for the round, at 400 g and 0.25 for a kilowatt hour.
    "energy": (160 * 300 + 80 * 300, 50 * 300, 0),
    "carbon": (72_000 / 9_000, 15_000 / 9_000, 0),
    "money": (72_000 / 14.4e6, 15_000 / 14.4e6, 0),
}
PRICED = {"carbon_g_per_kwh": 400.0, "price_per_kwh": 0.25}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize("case", [0, 1, 2])
def test_objectives(name: str, case: int) -> None:
    report = check(instance(objective=name, **PRICED), [BOTH_RUN, ONE_MOVES, BOTH_WAIT][case])
    assert report.faults == []
    assert report.objective == pytest.approx(WORTH[name][case], rel=1e-12)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_a_round_without_jobs_is_worth_nothing(name: str) -> None:
    empty = Instance.model_validate({"cluster": CLUSTER, "jobs": [], "objective": name, **PRICED})
    totals = {"gpus_used": 0, "gpus_available": 6, "power_w": 4 * 10 + 2 * 5 + 150, "energy_j": 200 * 300}
    totals |= {"carbon_g": 60_000 / 9_000, "money": 60_000 * 0.25 / 3.6e6}
    assert check(empty, decision()) == Report([], 0.0, totals | {"restarts": 0, "migrations": 0})


def test_an_unknown_objective_is_a_fault() -> None:
    assert check(instance(objective="fame"), BOTH_RUN).faults == ["objective 'fame' is not known"]


@pytest.mark.parametrize("scope", ["round", "completion"])
def test_budgets_hold_to_a_millionth(scope: str) -> None:
    base = {"scope": scope}
    report = check(instance(carbon_g_per_kwh=360.0, budgets=base), BOTH_RUN)
    uses = {
        "power_w": report.totals["power_w"],
        "energy_j": report.totals["energy_j"],
        "carbon_g": report.totals["carbon_g"],
    }
    for name, use in uses.items():
        assert use is not None
        for factor, kept in ((1.0, True), (1 - 5e-7, True), (1 - 2e-6, False)):
            limited = instance(carbon_g_per_kwh=360.0, budgets={**base, name: use * factor})
            faults = check(limited, BOTH_RUN).faults
            assert (faults == []) is kept
            assert all(f"budgets.{name}: the decision needs" in fault for fault in faults)


def test_migrations_are_moves_without_a_change() -> None:
    moved = decision(runs("tune", 1, "A", {"a0": [0]}), waiting=("train",))
    report = check(instance(), moved)
    assert (report.faults, report.totals["migrations"], report.totals["restarts"]) == ([], 1, 0)


def test_all_of_a_block_is_available_also_what_its_job_leaves_idle() -> None:
    table = {"gpus": [3], "pool": ["A"], "power_w": [300.0], "completion_s": [100.0]}
    three = {"name": "three", "options": table, "remaining_work": 1.0}
    nodes = [{"name": name, "gpu_type": "A", "gpus": 4} for name in ("n0", "n1")]
    cluster = {"gpu_types": {"A": {"idle_power_w": 10.0}}, "nodes": nodes}
    nodes[0]["unavailable"] = [3]
    on_three = runs("three", 3, "A", {"n0": [0, 1, 2]})
    lacking = "job 'three': GPU 3 of node 'n0' in its block of 4 is unavailable"
    assert check(instance(three, cluster=cluster), decision(on_three)).faults == [lacking]
    across = decision(runs("three", 3, "A", {"n0": [1, 2, 3]}))
    told = ["job 'three' uses GPU 3 of node 'n0', which is unavailable"]
    assert check(instance(three, cluster=cluster), across).faults == told
    assert (
        check(instance(three, cluster=cluster), decision(runs("three", 3, "A", {"n1": [0, 1, 2]}))).faults
        == []
    )
    # A job that keeps its GPUs keeps them, and to one that may not stay a move is free.
    held = {**three, "current": {"gpus": 3, "pool": "A", "nodes": {"n0": [0, 1, 2]}}, "change_cost": 7.0}
    kept = instance({**held, "preemptible": False}, cluster=cluster)
    assert check(kept, decision(on_three)).faults == []
    moved = check(instance(held, cluster=cluster), decision(runs("three", 3, "A", {"n1": [0, 1, 2]})))
    assert moved.faults == []
    assert (moved.totals["migrations"], moved.totals["change_cost"]) == (1, 0.0)
    nodes[0]["unavailable"] = []
    paid = check(instance(held, cluster=cluster), decision(runs("three", 3, "A", {"n1": [0, 1, 2]})))
    assert paid.totals["change_cost"] == 7.0


@pytest.mark.parametrize("gpu_type", ["A100", "V100"])
@pytest.mark.parametrize("narrow", [{}, {"gpu_counts": [1, 2], "batch_sizes": [128]}])
def test_jobs_with_a_model_have_the_configurations_of_what_stands_in(
    gpu_type: str, narrow: dict[str, list[int]]
) -> None:
    """Those that keep the board within its limit; 40 W are less than the stand-in can be held at."""
    cluster = copy.deepcopy(CLUSTER)
    for most_w in (40.0, 120.0, 160.0):
        kind = {"profile": gpu_type, "power_factor": 0.5, "speed_factor": 0.25, "max_power_w": most_w}
        cluster["gpu_types"]["A"] = {**kind, "idle_power_w": 10.0}
        model = {"name": "m", "model": "resnet50", "remaining_work": 1e6, "pools": ["A"], **narrow}
        site = instance(model, cluster=cluster)
        offered = JobConfigurations(site, pools_of(site.cluster)).of(0)
        options = expand(site).of.configurations
        ours = np.array(sorted((row.rate, row.power_w) for row in offered)).reshape(-1, 2)
        theirs = sorted(zip(options.rate.tolist(), options.power_w.tolist(), strict=True))
        np.testing.assert_allclose(ours, np.array(theirs).reshape(-1, 2), rtol=1e-12)
        assert all(row.power_w <= row.setting[1] * most_w * (1 + 1e-12) for row in offered)
        assert bool(offered) == (most_w > 40.0)


def decision_of(*assignments: Assignment, waiting: tuple[str, ...] = ()) -> Decision:
    return Decision(jobs=list(assignments), waiting=list(waiting))


# --- rules of one job -------------------------------------------------------------------------------

KEPT = decision(runs("tune", 1, "A", {"a0": [3]}))
MOVED = decision(runs("tune", 1, "A", {"a0": [2]}))
CHANGED = decision(runs("tune", 2, "B", {"b0": [0, 1]}))
STOPPED = decision(waiting=("tune",))


@pytest.mark.parametrize(
    ("fields", "chosen", "said"),
    [
        ({"deadline_s": 1000.0}, KEPT, None),
        ({"deadline_s": 999.0}, KEPT, "is complete after 1000 s, its deadline is 999 s"),
        ({"deadline_s": 999.0}, CHANGED, None),
        ({"deadline_s": 1200.0}, STOPPED, None),
        ({"deadline_s": 1199.0}, STOPPED, "is complete after 1200 s, its deadline is 1199 s"),
        ({"can_wait": False}, KEPT, None),
        ({"can_wait": False}, STOPPED, "waits although it may not"),
        ({"preemptible": False}, KEPT, None),
        ({"preemptible": False}, MOVED, "moves to other GPUs although it is not preemptible"),
        ({"preemptible": False}, CHANGED, "changes GPU count, batch size or pool"),
        ({"preemptible": False}, STOPPED, "is stopped although it is not preemptible"),
        ({"min_gpus": 2}, KEPT, "has no configuration with 1 GPUs in pool 'A'"),
        ({"max_gpus": 1}, CHANGED, "has no configuration with 2 GPUs in pool 'B'"),
        ({"pools": ["B"]}, KEPT, "has no configuration"),
        ({"pools": ["B"]}, CHANGED, None),
        ({"min_gpus": 64}, STOPPED, None),
        ({"min_gpus": 64}, KEPT, "runs, but has no option that it could run as in time"),
        ({"min_gpus": 64, "can_wait": False}, STOPPED, "has no configuration that it could run as"),
        ({"deadline_s": 10.0}, STOPPED, None),
        ({"deadline_s": 10.0}, KEPT, "runs, but has no option that it could run as in time"),
    ],
)
def test_rules_of_one_job(fields: dict[str, Any], chosen: Decision, said: str | None) -> None:
    faults = check(instance({**TUNE, **fields}), chosen).faults
    if said is None:
        assert faults == []
    else:
        assert any(said in fault for fault in faults), faults


def test_the_best_completion_knows_only_the_options_that_the_job_has() -> None:
    # Without B, tune's best is 1000 s and a restart.
    report = check(instance({**TUNE, "pools": ["A"]}), STOPPED)
    assert report.objective == 300 + 1000 + 100
    # Blocks larger than any in the pool do not exist.
    table = {"gpus": [1, 8], "pool": ["A", "A"], "power_w": [1.0, 1.0], "rate": [1.0, 100.0]}
    report = check(instance({"name": "j", "options": table}), decision(waiting=("j",)))
    assert report.objective == 301


def test_numbers_at_the_edge_of_the_range_are_faults_or_finite() -> None:
    table = {"gpus": [1], "pool": ["A"], "power_w": [1e12], "rate": [1e12]}
    nothing = {"name": "nothing", "remaining_work": 1e-320, "options": table}
    faults = check(instance(nothing), decision(waiting=("nothing",))).faults
    assert faults == ["job 'nothing' is complete after 0 s at best, which is no time that can be compared"]
    heavy = [{"name": n, "weight": 1e6, "options": {**table, "rate": [1.0]}} for n in "xyz"]
    for objective in OBJECTIVES:
        report = check(instance(*heavy, objective=objective, **PRICED), decision(waiting=("x", "y", "z")))
        assert report.faults == []


# --- corruptions ------------------------------------------------------------------------------------


def changed(i: int, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["jobs"][i].update(fields)


CORRUPTIONS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda d: d["jobs"].pop(0), "job 'train' neither runs nor waits"),
    (lambda d: d["waiting"].append("train"), "job 'train' runs and waits"),
    (lambda d: d["jobs"].append(d["jobs"][0]), "job 'train' is named 2 times among those that run"),
    (lambda d: d["waiting"].append("ghost"), "job 'ghost' is not in the instance"),
    (changed(0, gpus=1), "has 2 GPUs in its nodes, its configuration 1"),
    (changed(0, gpus=3), "has no configuration with 3 GPUs"),
    (changed(0, nodes={}), "has 0 GPUs in its nodes"),
    (changed(0, pool="B"), "runs in pool 'B' but node 'a0' is in 'A'"),
    (changed(0, pool="C"), "has no configuration"),
    (changed(0, frequency_mhz=900), "has no configuration with 2 GPUs in pool 'A', frequency_mhz 900"),
    (changed(0, power_limit_w=90.0), "power_limit_w 90"),
    (changed(0, batch_size=8), "batch_size 8"),
    (changed(0, nodes={"a0": [0, 0]}), "lists a GPU twice"),
    (changed(0, nodes={"a0": [1, 2]}), "is not inside one aligned block of 2 GPUs"),
    (changed(0, nodes={"a0": [0], "b0": [0]}), "node 'b0' is in 'B'"),
    (changed(0, nodes={"a0": [2, 3]}), "jobs 'train' and 'tune' both use GPU 3 of node 'a0'"),
    (changed(0, nodes={"a0": [0, 4]}), "GPU 4 of node 'a0', which does not exist"),
    (changed(0, nodes={"a1": [0, 1]}), "GPU 0 of node 'a1', which does not exist"),
]


@pytest.mark.parametrize(("corrupt", "said"), CORRUPTIONS)
def test_corruptions_are_caught(corrupt: Callable[[dict[str, Any]], Any], said: str) -> None:
    content = BOTH_RUN.model_dump()
    corrupt(content)
    faults = check(instance(), Decision.model_validate(content)).faults
    assert any(said in fault for fault in faults), faults


def test_reserved_blocks_are_nobody_elses() -> None:
    table = {"gpus": [3], "pool": ["A"], "power_w": [1.0], "rate": [1.0]}
    odd = {"name": "odd", "options": table}
    one = {"name": "one", "options": {**table, "gpus": [1]}}
    both = [runs("odd", 3, "A", {"a0": [0, 1, 3]}), runs("one", 1, "A", {"a0": [2]})]
    assert check(instance(odd), decision(both[0])).faults == []
    assert check(instance(odd, one), decision(*both)).faults == [
        "the blocks of jobs 'odd' and 'one' in pool 'A' overlap"
    ]
    # Two jobs that may not be moved can have come to share a block; what may be moved cannot join them.
    held = [
        {**odd, "preemptible": False, "current": {"gpus": 3, "pool": "A", "nodes": {"a0": [0, 1, 3]}}},
        {**one, "preemptible": False, "current": {"gpus": 1, "pool": "A", "nodes": {"a0": [2]}}},
    ]
    assert check(instance(*held), decision(*both)).faults == []
    assert check(instance(held[0], one), decision(*both)).faults != []


@given(small_instances())
def test_rows_are_found_one_by_one_as_in_a_table(some: Instance) -> None:
    known = JobConfigurations(some, pools_of(some.cluster))
    # Every row once, and the settings of each for the next kind.
    others = [(known.every.kind + 1) % (len(known.start) - 1), *known.every.stated[1:]]
    asked = [np.concatenate(pair) for pair in zip(known.every.stated, others, strict=True)]
    found = []
    for share in (0, 9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(configurations, "_ALIKE", share)
            found.append([column.tolist() for column in known.stated_as(asked)])
    assert found[0] == found[1]
