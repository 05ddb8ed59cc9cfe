"""Nodes that sleep as long as no job is there: exact in every capacity, proven, and refused elsewhere."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wattsched
from tests.brute_force.agreement import solve_by_kind
from wattsched.formulations.model import UnsuitableError
from wattsched.formulations.sizing.sleeping import part_sizes
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.rows import part_sizes as parts_of_checker

TABLE = {"gpus": [1, 2, 8], "pool": ["A"] * 3, "rate": [1.0, 1.8, 6.0], "power_w": [250.0, 600.0, 2000.0]}


def cluster_of(capacity: str, *base_w: float, gpus: int = 4, **fields: Any) -> dict[str, Any]:
    """Nodes that sleep, of four GPUs each."""
    node = {"gpu_type": "A", "gpus": gpus, "sleeps": True, **fields}
    nodes = [{"name": f"n{i}", "base_power_w": watts, **node} for i, watts in enumerate(base_w)]
    return {"gpu_types": {"A": {"idle_power_w": 50.0}}, "nodes": nodes, "capacity": capacity}


def round_of(cluster: dict[str, Any], jobs: int, **fields: Any) -> Instance:
    """A round of equal jobs that draw 200 W above idle on a GPU."""
    document = {"cluster": cluster, "tables": {"t": TABLE}, "objective": "energy", "round_s": 100.0}
    document["jobs"] = [{"name": f"j{j}", "options": "t", "remaining_work": 1e4} for j in range(jobs)]
    return Instance.model_validate({**document, **fields})


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("capacity", ["blocks", "nodes", "count"])
def test_few_nodes_are_awake(capacity: str, kinds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    solve_by_kind(monkeypatch, kinds)
    instance = round_of(cluster_of(capacity, *[400.0] * 5), 6, budgets={"least_goodput": 6.0})
    found = wattsched.solve(instance, gap=0.0)
    # Six jobs at 200 W above idle, and two nodes at 400 W with four idle GPUs.
    assert found.objective == pytest.approx((6 * 200 + 2 * 600) * 100)
    assert found.totals["energy_j"] == pytest.approx(found.objective)
    assert found.totals["nodes_asleep"] == 3
    # Rounds by kind have prices, and no tree of cases.
    assert found.claimed == kinds
    assert wattsched.check(instance, found, require_gap=None if kinds else 1e-9).faults == []
    # Five jobs above a cap that is too low for two nodes and six jobs.
    capped = round_of(cluster_of(capacity, *[400.0] * 5), 6, objective="goodput", budgets={"power_w": 2250.0})
    most = wattsched.solve(capped, gap=0.0)
    assert most.objective == pytest.approx(5.0)
    assert most.totals["power_w"] == pytest.approx(2200.0)


@pytest.mark.parametrize("capacity", ["nodes", "count"])
def test_those_that_draw_least_are_woken_first(capacity: str) -> None:
    cluster = cluster_of(capacity, 500.0, 100.0, 300.0)
    found = wattsched.solve(round_of(cluster, 6, budgets={"least_goodput": 6.0}), gap=0.0)
    assert {node for job in found.decision.jobs for node in job.nodes} == {"n1", "n2"}
    awake = [node | {"sleeps": node["name"] != "n0"} for node in cluster["nodes"]]
    mixed = wattsched.solve(round_of({**cluster, "nodes": awake}, 6, budgets={"least_goodput": 6.0}), gap=0.0)
    assert {node for job in mixed.decision.jobs for node in job.nodes} == {"n0", "n1"}
    # That of the node that is awake anyway is no matter of the decision.
    assert mixed.objective == pytest.approx((6 * 200 + 300) * 100)


def test_large_blocks_choose_the_nodes() -> None:
    cluster = cluster_of("blocks", *[400.0] * 5)
    instance = round_of(cluster, 2, objective="goodput", budgets={"power_w": 1e5})
    content = instance.model_dump()
    content["jobs"][0] |= {"min_gpus": 8}
    content["jobs"][1] |= {"max_gpus": 1}
    found = wattsched.solve(Instance.model_validate(content), gap=0.0)
    assert found.totals["nodes_asleep"] == 2
    assert len(found.decision.jobs) == 2


def test_jobs_stay_where_nobody_counts_watts() -> None:
    content = round_of(cluster_of("nodes", *[400.0] * 3), 2, objective="goodput").model_dump()
    content["tables"]["t"] = {"gpus": [1], "pool": ["A"], "rate": [1.0], "power_w": [250.0]}
    for j, job in enumerate(content["jobs"]):
        job["current"] = {"gpus": 1, "pool": "A", "nodes": {f"n{j}": [0]}}
    calm = wattsched.solve(Instance.model_validate(content), gap=0.0)
    assert (calm.totals["migrations"], calm.totals["nodes_asleep"]) == (0, 1)
    content |= {"objective": "energy", "budgets": {"least_goodput": 2.0}}
    thrifty = wattsched.solve(Instance.model_validate(content), gap=0.0)
    assert (thrifty.totals["migrations"], thrifty.totals["nodes_asleep"]) == (1, 2)


@pytest.mark.parametrize(
    "change", [{"unavailable": [0]}, {"reserved_w": 10.0}, {"sleeps": False}, {"current": True}]
)
def test_nodes_that_others_use_are_awake(change: dict[str, Any]) -> None:
    cluster = cluster_of("nodes", 400.0, 400.0)
    instance = round_of(cluster, 1, objective="goodput")
    content = instance.model_dump()
    if "current" in change:
        held = {"gpus": 1, "pool": "A", "nodes": {"n0": [0]}}
        content["jobs"][0] |= {"current": held, "preemptible": False}
    else:
        content["cluster"]["nodes"][0] |= change
        content["jobs"] = []
    found = wattsched.solve(Instance.model_validate(content))
    draws = 400 + 50 * (4 - len(change.get("unavailable", []))) + change.get("reserved_w", 0.0)
    assert found.totals["power_w"] == draws + (200 if "current" in change else 0)
    assert found.totals["nodes_asleep"] == 1


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    told = "nodes 'n0' and 'n1' of pool 'A' have blocks of several nodes, all of which must sleep"
    for cluster in (cluster_of("blocks", 100.0, 200.0), cluster_of("blocks", 100.0, 100.0)):
        cluster["nodes"][1]["reserved_w"] = 5.0
        with pytest.raises(InputError, match=told):
            wattsched.solve(round_of(cluster, 1))
    assert wattsched.solve(round_of(cluster_of("blocks", 100.0, 200.0, gpus=6), 1)).objective == 0.0
    session = wattsched.Session(cluster_of("blocks", 100.0, 100.0))
    with pytest.raises(InputError, match=told):
        session.update(reserved_w={"n1": 5.0})
    session.update(reserved_w={"n1": 5.0}, unavailable={"n1": [0]})
    own = tmp_path / "own.py"
    own.write_text("def formulate(round):\n    return None\n")
    with pytest.raises(
        UnsuitableError, match="takes no nodes that sleep as long as no job is there, such as 'n0'"
    ):
        wattsched.solve(round_of(cluster_of("nodes", 1.0), 1), formulation=f"{own}:formulate")


@pytest.mark.slow
def test_the_quick_rule_wakes_nodes_under_a_cap() -> None:
    """To wake a node saves nothing by itself."""
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        gpus = np.array([1, 2, 4])
        jobs = [
            {
                "name": f"j{j}",
                "options": {
                    "gpus": gpus.tolist(),
                    "pool": ["A"] * 3,
                    "rate": (rng.uniform(0.5, 2.0) * gpus**0.8).tolist(),
                    "power_w": (rng.uniform(200.0, 300.0, 3) * gpus).tolist(),
                },
                "remaining_work": 1e5,
            }
            for j in range(20)
        ]
        cluster = cluster_of("nodes", *[300.0] * 4, gpus=8)
        document = {"cluster": cluster, "jobs": jobs, "objective": "goodput", "budgets": {"power_w": 6000.0}}
        instance = Instance.model_validate(document)
        quick, best = (wattsched.solve(instance, solver=solver).objective for solver in ("greedy", "highs"))
        assert quick is not None
        assert best is not None
        shares.append(quick / best)
    assert min(shares) > 0.7


def test_parts_make_all_numbers() -> None:
    for nodes in range(40):
        sizes = part_sizes(nodes)
        assert sizes == parts_of_checker(nodes)
        sums = {sum(some) for n in range(len(sizes) + 1) for some in combinations(sizes, n)}
        assert sums == set(range(nodes + 1))


def test_sessions_have_nodes_that_sleep() -> None:
    session = wattsched.Session(cluster_of("nodes", *[400.0] * 4), tables={"t": TABLE})
    session.update(objective="energy", least_goodput=3.0)
    session.upsert([f"j{j}" for j in range(3)], options=["t"] * 3, remaining_work=[1e6] * 3)
    first = session.solve(gap=0.0)
    assert first.result.totals["nodes_asleep"] == 3
    session.update(down=["n0"])
    second = session.solve(gap=0.0)
    # A node whose GPUs are unavailable is not known to sleep.
    assert second.result.totals["nodes_asleep"] == 2
    assert wattsched.check(session.to_instance(), second.result).faults == []
    assert np.isclose(second.result.objective, first.result.objective)


@pytest.mark.parametrize(("power_w", "objective_j"), [(None, 71_000.0), (720.0, 71_000.0), (620.0, None)])
def test_a_node_under_a_block_is_awake_though_none_of_its_gpus_is_used(
    power_w: float | None, objective_j: float | None
) -> None:
    """A job of 3 GPUs takes a block of 4, here of four nodes."""
    node = {"gpu_type": "A", "gpus": 1, "base_power_w": 100, "sleeps": True}
    cluster = {
        "gpu_types": {"A": {"idle_power_w": 10}},
        "nodes": [{"name": f"n{i}", **node} for i in range(4)],
    }
    options = {"gpus": [3], "pool": ["A"], "power_w": [300], "rate": [0.001]}
    budgets = {"least_goodput": 1, "power_w": power_w}
    fields = {"objective": "energy", "round_s": 100, "budgets": budgets}
    instance = Instance.model_validate(
        {"cluster": cluster, "jobs": [{"name": "a", "options": options}], **fields}
    )
    result = wattsched.solve(instance, gap=0.0)
    assert result.objective == objective_j
    assert not result.claimed
    assert wattsched.check(instance, result).faults == []
    if result.decision is not None:
        assert result.totals["nodes_asleep"] == 0
