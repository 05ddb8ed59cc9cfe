"""Jobs and decisions by column are the same jobs and decisions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

import wattsched
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError
from wattsched.instances.io import document_text
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.results.documents import instance_of
from wattsched.topology.cluster import Cluster, NodeColumns
from wattsched.topology.pools import pools_of

KEPT = "a job that is not preemptible needs 'current' with its nodes"


def columnar(instance: Instance) -> Instance:
    """The instance with its jobs by column, as read from a file."""
    by_column = instance.model_copy(update={"jobs": instance.by_column()})
    document = json.loads(document_text(by_column))
    assert isinstance(document["jobs"], dict) or not instance.jobs
    return Instance.model_validate(document)


@given(small_instances(min_jobs=1) | instances_with_sets())
def test_an_instance_by_column_is_the_same(instance: Instance) -> None:
    read = columnar(instance)
    assert isinstance(read.jobs, JobColumns)
    assert list(read.jobs) == read.jobs.listed() == instance.jobs
    assert read.jobs[-1] == instance.jobs[-1]
    assert digest_of(read) == digest_of(instance)
    some = np.arange(0, len(instance.jobs), 2)
    assert list(read.jobs.take(some)) == instance.jobs[::2]
    first, kind = read.jobs.kinds
    assert [instance.jobs[first[k]].options for k in kind] == [job.options for job in instance.jobs]


@settings(max_examples=examples(30))
@given(small_instances())
def test_it_has_the_same_answer(instance: Instance) -> None:
    rows, columns = (wattsched.solve(one) for one in (instance, columnar(instance)))
    assert columns.termination.reason == rows.termination.reason
    assert columns.objective == rows.objective
    if rows.decision is None:
        return
    decision = Decision(
        jobs=AssignmentColumns.from_records(rows.decision.jobs), waiting=rows.decision.waiting
    )
    assert list(decision.jobs) == decision.listed().jobs == rows.decision.jobs
    read = Decision.model_validate(json.loads(document_text(decision)))
    assert isinstance(read.jobs, AssignmentColumns)
    assert list(read.jobs) == rows.decision.jobs
    some = np.arange(len(read.jobs))[::-2]
    assert list(read.jobs.take(some)) == rows.decision.jobs[::-2]


def test_arrays_are_taken_from_python() -> None:
    lists: dict[str, Any] = {
        "name": ["a", "b"],
        "weight": [1.0, 2.0],
        "deadline_s": [None, 50.0],
        "options": ["t", "t"],
    }
    arrow = {name: pa.array(values) for name, values in lists.items()}
    arrays = {**lists, "weight": np.array([1.0, 2.0]), "deadline_s": np.array([np.nan, 50.0])}
    found = [list(JobColumns.of(columns)) for columns in (lists, arrow, arrays)]
    assert found[0] == found[1] == found[2]
    assert found[0][0].deadline_s is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weight": [1.0, -2.0]}, "jobs.weight[1]: must be greater than or equal to 0.000001, got -2.0"),
        ({"weight": [1.0]}, "jobs: the columns differ in length: {'name': 2, 'weight': 1, 'options': 2}"),
        ({"weight": [1.0, "2"]}, "jobs.weight[1]: must be a valid number, got '2'"),
        ({"name": ["a", "a"]}, "duplicate job name 'a'"),
        ({"options": ["t", "u"]}, "job 'b' names the unknown table 'u'"),
        ({"options": ["t", None]}, "jobs: job 'b': give exactly one of 'options' and 'model'"),
        ({"speed": [1, 2]}, "jobs.speed: is not a known field"),
        ({"min_gpus": [1, 4], "max_gpus": [1, 2]}, "jobs: job 'b': min_gpus 4 is above max_gpus 2"),
        (
            {"preemptible": [True, False]},
            "jobs: job 'b': a job that is not preemptible needs 'current' with its nodes",
        ),
        ({"name": 5}, "jobs.name: must be a list, got 5"),
    ],
)
def test_a_fault_names_its_place(change: dict[str, Any], told: str) -> None:
    jobs: dict[str, Any] = {"name": ["a", "b"], "weight": [1.0, 1.0], "options": ["t", "t"], **change}
    table = {"gpus": [1], "pool": ["A"], "power_w": [100.0], "rate": [1.0]}
    cluster = {"gpu_types": {"A": {"idle_power_w": 10}}, "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4}]}
    with pytest.raises(InputError) as error:
        instance_of(
            {"format": "wattsched-instance/1", "cluster": cluster, "tables": {"t": table}, "jobs": jobs}
        )
    assert told in error.value.faults


def test_gpus_of_a_decision_are_counted() -> None:
    jobs = {"job": ["a"], "gpus": [2], "pool": ["A"], "node": ["n"], "gpu": [0]}
    with pytest.raises(ValueError, match="'node' has 1 entries, the jobs have 2 GPUs"):
        Decision.model_validate({"jobs": jobs, "waiting": []})


@given(small_instances())
def test_a_cluster_by_column_is_the_same(instance: Instance) -> None:
    cluster = instance.cluster
    by_column = cluster.model_copy(
        update={"nodes": cluster.node_columns(), "groups": cluster.group_columns()}
    )
    read = Cluster.model_validate(json.loads(document_text(by_column)))
    assert isinstance(read.nodes, NodeColumns)
    assert read == cluster
    assert read.total_gpus == cluster.total_gpus
    assert read.domain_names() == cluster.domain_names()
    assert digest_of(instance.model_copy(update={"cluster": read})) == digest_of(instance)
    for one, other in zip(pools_of(read), pools_of(cluster), strict=True):
        assert one.name == other.name
        assert one.nodes == other.nodes
        assert (one.node_index == other.node_index).all()
        assert (one.available == other.available).all()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gpus": [4, 0]}, "cluster.nodes.gpus[1]: must be greater than or equal to 1, got 0"),
        ({"gpus": [4]}, "cluster.nodes: the columns differ in length: {'name': 2, 'gpu_type': 2, 'gpus': 1}"),
        ({"parent": [None, "x"]}, "cluster: node 'm' has the unknown parent 'x'"),
        ({"gpu_type": ["A", "B"]}, "cluster: node 'm' has the unknown gpu_type 'B'"),
        ({"unavailable": [[], [4]]}, "cluster: node 'm' has no GPU 4, it has 4"),
        ({"unavailable": [[], [1, 0, 1]]}, "cluster: node 'm' lists an unavailable GPU twice: 1"),
        ({"name": ["n", "n"]}, "cluster: the name 'n' is used for more than one node or group"),
        ({"name": [], "gpu_type": [], "gpus": []}, "cluster.nodes: must not be empty"),
        ({"colour": ["red", "red"]}, "cluster.nodes.colour: is not a known field"),
    ],
)
def test_a_fault_of_a_node_names_its_place(change: dict[str, Any], told: str) -> None:
    nodes: dict[str, Any] = {"name": ["n", "m"], "gpu_type": ["A", "A"], "gpus": [4, 4], **change}
    cluster = {"gpu_types": {"A": {"idle_power_w": 10}}, "nodes": nodes}
    with pytest.raises(InputError) as error:
        instance_of({"format": "wattsched-instance/1", "cluster": cluster, "jobs": []})
    assert error.value.faults == [told]


def test_copies_of_a_cluster_have_their_own_columns() -> None:
    cluster = wattsched.generate("uniform", jobs=20, seed=1).cluster
    assert len(cluster.node_columns()) == len(cluster.nodes) > 1
    assert len(cluster.model_copy(update={"nodes": cluster.nodes[:1]}).node_columns()) == 1


@pytest.mark.parametrize(
    "made", [np.array, lambda v: np.array(v, dtype=object), lambda v: pa.array(v).dictionary_encode()]
)
def test_texts_may_be_arrays_of_any_kind(made: Any) -> None:
    plain = JobColumns.of({"name": ["a", "b"], "options": ["s", "t"], "remaining_work": [1.0, 2.0]})
    work = np.array([1.0, 2.0], dtype=object)
    assert (
        JobColumns.of({"name": made(["a", "b"]), "options": made(["s", "t"]), "remaining_work": work})
        == plain
    )


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"foo": np.ones(2)}, "foo"),
        ({"remaining_work": np.ones((2, 2))}, "remaining_work.0"),
        ({"remaining_work": np.array(1.0)}, "remaining_work"),
        ({"remaining_work": np.array(["x", "y"])}, "remaining_work.1"),
        ({"remaining_work": np.ma.array([1.0, 2.0], mask=[0, 1])}, "remaining_work.1"),
    ],
)
def test_arrays_that_are_no_columns_are_refused(column: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        JobColumns.of({"name": ["a", "b"], "options": ["s", "t"], **column})
