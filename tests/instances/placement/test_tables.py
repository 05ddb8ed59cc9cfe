"""Tables of tasks: the ways in which models are spelled."""

from __future__ import annotations

from pathlib import Path

from wattsched.instances.traces.openb import read_tasks

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def test_spellings_are_told_apart_until_they_are_merged(tmp_path: Path) -> None:
    specs = ("A|B", "", "B|A", "A|B|A", "B")
    rows = "".join(f"t{i},1000,1,1,500,{spec}\n" for i, spec in enumerate(specs))
    (tmp_path / "tasks.csv").write_text(HEADER + rows)
    told = read_tasks(tmp_path / "tasks.csv")
    both, neither, second = frozenset("AB"), frozenset(), frozenset("B")
    assert told.specs == (neither, both, both, both, second)
    merged = told.with_equal_specs_merged()
    assert merged.specs == (neither, both, second)
    for table in (told, merged):
        assert [table.specs[spec] for spec in table.spec] == [both, neither, both, both, second]
