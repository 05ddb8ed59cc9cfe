"""Windows of the `placement` family: valid, reproducible, as full as asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattsched.documents import read_instance
from wattsched.instances.generators import generate
from wattsched.instances.generators.placement import NODES
from wattsched.instances.io import document_text, write_json


@pytest.mark.parametrize("jobs", [1, 3, 50, 2000])
def test_windows_are_valid_and_reproducible(jobs: int, tmp_path: Path) -> None:
    instance = generate("placement", jobs=jobs, seed=7)
    assert len(instance.tasks) == jobs
    write_json(tmp_path / "window.json", instance)
    assert read_instance(tmp_path / "window.json") == instance
    text = document_text(instance)
    assert document_text(generate("placement", jobs=jobs, seed=7)) == text
    assert document_text(generate("placement", jobs=jobs, seed=8)) != text


@pytest.mark.parametrize("load", [0.0, 0.3, 0.6])
def test_earlier_tasks_use_as_much_as_asked_for(load: float) -> None:
    instance = generate("placement", jobs=20, gpus=2000, load=load, constrained=0.0)
    gpus = sum(node.gpus for node in instance.nodes)
    assert 2000 <= gpus <= 2000 + max(size for _name, size, *_rest in NODES) * 10
    used = sum(sum(node.used_gpu_milli) for node in instance.nodes) / 1000 / gpus
    assert used == pytest.approx(load, abs=0.01)
    assert not any(task.gpu_types for task in instance.tasks)


def test_constrained_tasks_name_types_that_are_there() -> None:
    instance = generate("placement", jobs=40, constrained=1.0)
    there = {node.gpu_type for node in instance.nodes}
    assert all(set(task.gpu_types) <= there for task in instance.tasks)
    assert all(bool(task.gpu_types) == bool(task.gpus) for task in instance.tasks)


@pytest.mark.parametrize(
    ("option", "value"),
    [("load", 1.0), ("load", -0.1), ("constrained", 1.1), ("fragmentation_w_per_gpu", 0.0)],
)
def test_options_out_of_range_are_told(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{option}: must be"):
        generate("placement", jobs=2, **{option: value})
