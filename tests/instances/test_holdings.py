"""What running jobs hold, by column or as models: the same file, digest and faults."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings

import wattsched
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets
from wattsched.instances.digest import digest_of
from wattsched.instances.sizing.decision import Assignment, AssignmentColumns, Holdings
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.validity import faults_of
from wattsched.topology.column import NONE, Coded


def by_column(instance: Instance) -> JobColumns:
    """Jobs by column, and what they hold, too."""
    jobs = JobColumns.from_records(instance.jobs)
    if not len(jobs.running):
        return jobs
    current = Coded(jobs.current.codes, Holdings.of(jobs.current.values))
    return JobColumns({**jobs.columns, "current": current})


@given(instances_with_sets())
def test_they_are_the_same_instance(instance: Instance) -> None:
    jobs = by_column(instance)
    columns = instance.model_copy(update={"jobs": jobs})
    assert list(jobs) == instance.jobs
    assert faults_of(columns) == faults_of(instance)
    assert digest_of(columns) == digest_of(instance)
    text = columns.model_dump_json()
    read = Instance.model_validate_json(text)
    assert isinstance(read.jobs, JobColumns)
    assert digest_of(read) == digest_of(instance)
    assert list(read.jobs) == instance.jobs
    if len(jobs.running):
        held = json.loads(text)["jobs"]["current"]
        assert held["job"] == [jobs.names[j] for j in jobs.running.tolist()]
        assert sorted(held)[:3] == ["gpu", "gpus", "job"]


@settings(max_examples=examples(50))
@given(instances_with_sets())
def test_parquet_has_them_by_column(instance: Instance) -> None:
    pytest.importorskip("pyarrow")
    assume(not faults_of(instance))
    columns = instance.model_copy(update={"jobs": by_column(instance)})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "round.parquet"
        wattsched.write_document(path, columns)
        read = wattsched.read_instance(path)
    assert digest_of(read) == digest_of(instance)
    assert list(read.jobs) == instance.jobs


@given(instances_with_sets())
def test_others_than_the_jobs_are_left_out(instance: Instance) -> None:
    jobs = by_column(instance)
    if len(jobs.running):
        held = jobs.holdings.assignments(
            jobs.current.codes[jobs.running], [jobs.names[j] for j in jobs.running.tolist()]
        )
        fewer = JobColumns({**jobs.take(jobs.running[1:]).columns, "current": held})
        assert list(fewer) == [jobs[j] for j in jobs.running[1:].tolist()]
        assert (fewer.current.codes != NONE).all()


def test_a_job_holds_one_placement() -> None:
    held = AssignmentColumns.from_records(
        [Assignment(job="a", gpus=1, pool="A100", nodes={"n": [i]}) for i in range(2)]
    )
    with pytest.raises(ValueError, match="'current' has job 'a' more than once"):
        JobColumns.of({"name": ["a", "b"], "options": ["s", "s"], "current": held})
