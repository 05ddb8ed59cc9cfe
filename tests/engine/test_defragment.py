"""Fewest moves against brute force, steps that find their room, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.brute_force.rearrangements import fewest_moves, pool_name
from tests.brute_force.sizing_places import kinds, may_be_had
from tests.strategies.effort import examples
from tests.strategies.rearrangements import crowded_rounds
from wattsched import defragment
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job
from wattsched.verification.sizing.moves import least_moves, rearrangement_faults

ROUNDS = int(os.environ.get("WATTSCHED_REARRANGEMENTS", examples(500)))


@settings(max_examples=ROUNDS, deadline=None)
@given(crowded_rounds(), st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]), min_size=8, max_size=8))
def test_the_moves_are_the_fewest(crowded: tuple[Instance, int, int], worth: list[float]) -> None:
    """And no prices of pieces prove more."""
    instance, size, count = crowded
    pools = {
        pool_name(instance, kind): size
        for kind, nodes in kinds(instance).items()
        if may_be_had(instance, kind, nodes, size)
    }
    if not pools:
        with pytest.raises(ValueError, match="no pool has room"):
            defragment(instance, size=size, count=count)
        return
    found = defragment(instance, size=size, count=count)
    assert found.moves == fewest_moves(instance, [pools] * count)
    assert found.reason == ("infeasible" if found.moves is None else "optimal")
    assert not rearrangement_faults(instance, found)
    if found.moves is not None:
        prices = {f"piece:{pool}:{s}": price for pool in pools for s, price in enumerate(worth, 1)}
        assert max(found.proven_bound, least_moves(instance, found.wanted, prices)) <= found.moves


@settings(max_examples=examples(100), deadline=None)
@given(crowded_rounds(), st.lists(st.integers(1, 4), min_size=2, max_size=2))
def test_a_waiting_job_goes_to_the_pool_with_fewest_moves(
    crowded: tuple[Instance, int, int], sizes: list[int]
) -> None:
    """It takes another number of GPUs in every pool, and is beside jobs of one size."""
    instance, size, _ = crowded
    pools = {}
    for (kind, nodes), gpus in zip(kinds(instance).items(), sizes, strict=False):
        if may_be_had(instance, kind, nodes, gpus):
            pools[pool_name(instance, kind)] = gpus
    named = [name for kind, nodes in kinds(instance).items() if may_be_had(instance, kind, nodes, size)
             for name in [pool_name(instance, kind)]]  # fmt: skip
    assume(pools and named)
    ones = [1.0] * len(pools)
    table = {"gpus": [*pools.values()], "pool": [*pools], "power_w": ones, "rate": ones}
    waits = Job.model_validate({"name": "new", "options": table})
    instance = instance.model_copy(update={"jobs": [*instance.jobs, waits]})
    found = defragment(instance, jobs=["new"], size=size, pools=named[:1])
    assert found.moves == fewest_moves(instance, [pools, {named[0]: size}])
    assert not rearrangement_faults(instance, found)


def of_nodes(
    held: Mapping[str, tuple[str, list[int]]], n_nodes: int = 2, per_node: int = 8, **more: Any
) -> Instance:
    """A round on nodes of so many GPUs; jobs in capitals stay, `more` jobs wait, with their GPU counts."""

    def job(name: str, counts: list[int]) -> dict[str, Any]:
        rows = {"pool": ["A"] * len(counts), "power_w": [1.0] * len(counts), "rate": [1.0] * len(counts)}
        return {"name": name, "options": {"gpus": counts, **rows}, "preemptible": name.islower()}

    jobs = [job(name, counts) for name, counts in more.items()]
    for name, (node, gpus) in held.items():
        current = {"gpus": len(gpus), "pool": "A", "nodes": {node: gpus}}
        jobs.append(job(name, [len(gpus)]) | {"current": current})
    nodes = [{"name": f"n{i}", "gpu_type": "A", "gpus": per_node} for i in range(n_nodes)]
    cluster = {"gpu_types": {"A": {"idle_power_w": 50}}, "nodes": nodes, "capacity": "nodes"}
    return Instance.model_validate({"cluster": cluster, "jobs": jobs})


SWAP = {"x": ("n0", [0, 1, 2]), "F": ("n0", [3, 4, 5, 6]), "y": ("n1", [0, 1]), "G": ("n1", [2, 3, 4, 5, 6])}


def test_a_job_stops_where_two_change_places() -> None:
    found = defragment(of_nodes(SWAP), size=2)
    assert (found.moves, found.proven_bound, len(found.pauses)) == (2, 2, 1)
    assert [step.job for step in found.steps].count(found.pauses[0]) == 2


def test_waiting_jobs_fit_at_their_smallest_size() -> None:
    instance = of_nodes(SWAP, small=[2, 4], one=[1])
    found = defragment(instance, jobs=["small", "one"])
    assert found.reason == "infeasible"
    assert found.detail == "1 of 2 fit however others move; 2 GPUs are free, 3 are needed, 1 short"
    found = defragment(instance, jobs=["small"])
    assert [one.name for one in found.fitted] == ["small"]
    assert sum(map(len, found.fitted[0].nodes.values())) == 2


def test_nothing_moves_where_there_is_room() -> None:
    found = defragment(of_nodes(SWAP), size=1, count=2)
    assert (found.reason, found.moves, found.bound, found.steps) == ("optimal", 0, 0, [])


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 1, 2])), max_size=12), st.integers(3, 4))
def test_nothing_moves_where_a_gpu_is_free(running: list[tuple[int, int]], n_nodes: int) -> None:
    """HiGHS' aggregator has lost the optimum of such programs, whose integers are not binary."""
    held, begin = dict[str, tuple[str, list[int]]](), [0] * 4
    for number, (node, gpus) in enumerate(running):
        if node < n_nodes and begin[node] + gpus <= 4:
            held[f"j{number}"] = (f"n{node}", [*range(begin[node], begin[node] + gpus)])
            begin[node] += gpus
    assume(sum(begin) < 4 * n_nodes)
    found = defragment(of_nodes(held, n_nodes, per_node=4), size=1)
    assert (found.reason, found.moves) == ("optimal", 0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give jobs or a size that are to fit"),
        ({"jobs": ["x"]}, "jobs: 'x' runs already"),
        ({"jobs": ["smal"]}, r"jobs: the round has no job 'smal' \(did you mean 'small'\?\)"),
        ({"size": 17}, "size: no pool has room for 17 GPUs, the largest has it for 16"),
        ({"size": 0}, "size: must be at least 1, got 0"),
        ({"size": 1, "count": 0}, "count: must be at least 1, got 0"),
        ({"size": 1, "pools": ["B"]}, "pools: 'B' is not known"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        defragment(of_nodes(SWAP, small=[2]), **asked)


def test_jobs_whose_gpus_nobody_knows_are_named() -> None:
    document = of_nodes(SWAP).model_dump(mode="json")
    document["jobs"][0]["current"]["nodes"] = {}
    with pytest.raises(ValueError, match=r"job 'x': current.nodes is missing"):
        defragment(Instance.model_validate(document), size=2)


FORGED: dict[str, dict[str, Any]] = {
    "a bound above what the prices prove": {"proven_bound": 3, "bound": 3, "moves": 3},
    "prices that prove less": {"prices": {}},
    "fewer moves than steps": {"moves": 1, "bound": 1, "proven_bound": 1},
    "no steps": {"steps": []},
    "nothing that fits": {"fitted": []},
    "steps in another order": {"steps": "reversed"},
    "a job that goes to where another is": {"after": {"n1": [0, 1, 2]}},
    "a job that goes to more GPUs": {"after": {"n1": [0, 1, 2, 7]}},
    "a job that goes to a node that does not exist": {"after": {"n9": [0, 1, 2]}},
    "a job that may not move": {"job": "F"},
    "a job that does not exist": {"job": "z"},
    "a pool that does not exist": {"wanted": [{"name": "2 GPUs", "count": 1, "gpus": {"B": 2}}]},
    "a job that runs": {"wanted": [{"name": "x", "count": 1, "gpus": {"A": 3}}]},
    "a job at another than its smallest size": {"wanted": [{"name": "small", "count": 1, "gpus": {"A": 4}}]},
    "two of one name": {"wanted": [{"name": "2 GPUs", "count": 1, "gpus": {"A": 2}}] * 2},
    "another size than is wanted": {"wanted": [{"name": "2 GPUs", "count": 1, "gpus": {"A": 3}}]},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_forged_answers_are_refused(forged: dict[str, Any]) -> None:
    instance = of_nodes(SWAP, small=[2, 4])
    found = defragment(instance, size=2)
    assert not rearrangement_faults(instance, found)
    document = found.model_dump()
    for field, value in forged.items():
        if field in ("after", "job"):
            document["steps"][-1][field] = value
        else:
            document[field] = document["steps"][::-1] if value == "reversed" else value
    assert rearrangement_faults(instance, type(found).model_validate(document))
