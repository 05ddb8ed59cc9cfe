"""Tables of tasks: the most frequent classes up to a coverage, and the ways in which models are spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.placement import task_tables
from wattsched.instances.placement.tables import TaskTable, target_workload
from wattsched.instances.traces.openb import read_tasks


@given(task_tables(), st.integers(1, 100))
def test_it_is_the_shortest_list_that_covers_enough(tasks: TaskTable, coverage_pct: int) -> None:
    target = target_workload(tasks, coverage_pct)
    assert list(target.count) == sorted(target.count, reverse=True)
    assert 100 * target.count.sum() >= coverage_pct * len(tasks)
    assert 100 * target.count[:-1].sum() < coverage_pct * len(tasks)
    rows = list(zip(tasks.cpu_milli, tasks.gpus, tasks.gpu_milli, tasks.spec, strict=True))
    classes = target.classes
    for m, count in enumerate(target.count):
        row = (classes.cpu_milli[m], classes.gpus[m], classes.gpu_milli[m], classes.spec[m])
        alike = [i for i, other in enumerate(rows) if other == row]
        assert len(alike) == count
        assert abs(classes.memory_mib[m] - tasks.memory_mib[alike].mean()) <= 0.5


def test_the_published_list(data_dir: Path) -> None:
    tasks = read_tasks(data_dir / "alibaba-gpu-2023" / "openb_pod_list_default.csv")
    target = target_workload(tasks)
    assert len(target) == 35
    assert target.count.sum() / len(tasks) == pytest.approx(0.9526, abs=5e-5)
    top = target.classes.take(np.array([0, 5]))
    assert (list(top.cpu_milli), list(top.gpus), list(top.gpu_milli)) == ([3152, 12500], [1, 0], [810, 0])
    assert list(target.count[[0, 5]]) == [1047, 366]


def test_spellings_are_told_apart_until_they_are_merged(tmp_path: Path) -> None:
    specs = ("A|B", "", "B|A", "A|B|A", "B")
    rows = "".join(f"t{i},1000,1,1,500,{spec}\n" for i, spec in enumerate(specs))
    (tmp_path / "tasks.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + rows)
    told = read_tasks(tmp_path / "tasks.csv")
    both, neither, second = frozenset("AB"), frozenset(), frozenset("B")
    assert told.specs == (neither, both, both, both, second)
    merged = told.with_equal_specs_merged()
    assert merged.specs == (neither, both, second)
    for table in (told, merged):
        assert [table.specs[spec] for spec in table.spec] == [both, neither, both, both, second]
