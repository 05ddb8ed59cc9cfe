"""Rounds and results as Parquet files: what is written is read back, and what is no such file is told so."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings

import wattsched
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of


@settings(max_examples=examples(40), deadline=None)
@given(instance=small_instances() | instances_with_sets())
def test_what_is_written_is_read_back(instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    if faults_of(instance):
        return
    wattsched.write_document(folder / "round.parquet", instance)
    read = wattsched.read_instance(folder / "round.parquet")
    assert list(read.jobs) == instance.jobs
    assert read.model_copy(update={"jobs": instance.jobs}) == instance
    assert digest_of(read) == digest_of(instance)
    result = wattsched.solve(read)
    wattsched.write_document(folder / "answer.parquet", result)
    again = wattsched.read_result(folder / "answer.parquet")
    without = {"decision": None}
    assert again.model_copy(update=without) == result.model_copy(update=without)
    if result.decision is None:
        assert again.decision is None
    else:
        assert list(again.decision.jobs) == list(result.decision.jobs)
        assert again.decision.waiting == result.decision.waiting
    verdict = wattsched.check(folder / "round.parquet", folder / "answer.parquet")
    assert verdict.faults == []


def written(path: Path, columns: dict[str, list[object]], metadata: dict[bytes, bytes]) -> Path:
    """Parquet file of any columns."""
    pyarrow.parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


def test_a_fault_names_its_place(tmp_path: Path) -> None:
    made = wattsched.generate("uniform", jobs=3, seed=1)
    wattsched.write_document(tmp_path / "a.parquet", made)
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    place = table.schema.get_field_index("weight")
    bad = table.set_column(place, "weight", pa.array([1.0, -1.0, 2.0]))
    pyarrow.parquet.write_table(bad.replace_schema_metadata(table.schema.metadata), tmp_path / "b.parquet")
    with pytest.raises(InputError) as error:
        wattsched.read_instance(tmp_path / "b.parquet")
    assert error.value.faults == ["jobs.weight[1]: must be greater than or equal to 0.000001, got -1.0"]


def test_other_files_are_told_so(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and then nothing")
    files = [
        tmp_path / "cut.parquet",
        written(tmp_path / "plain.parquet", {"a": [1]}, {}),
        written(tmp_path / "bad.parquet", {"a": [1]}, {b"wattsched": b"no zlib"}),
        written(tmp_path / "list.parquet", {"a": [1]}, {b"wattsched": zlib.compress(b"[]")}),
        written(tmp_path / "place.parquet", {"a": [1]}, {b"wattsched": zlib.compress(b'{"format": 1}')}),
    ]
    for file in files:
        with pytest.raises(InputError) as error:
            wattsched.read_instance(file)
        assert str(file) in str(error.value)
        assert "Parquet" in str(error.value)


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTSCHED_INPUT_MB", "1")
    rest = zlib.compress(json.dumps({"records": "jobs", "pad": "x" * 2_000_000}).encode())
    files = [
        written(tmp_path / "rows.parquet", {"name": ["a"] * 1_500_000}, {b"wattsched": b""}),
        written(tmp_path / "rest.parquet", {"name": ["a"]}, {b"wattsched": rest}),
    ]
    for file in files:
        with pytest.raises(InputError) as error:
            wattsched.read_instance(file)
        (told,) = error.value.faults
        assert told.startswith("has more than 1,000,000 ")
        assert told.endswith("; WATTSCHED_INPUT_MB=2 would allow twice as much")


def test_other_problems_are_not_for_parquet(tmp_path: Path) -> None:
    made = wattsched.generate("placement", jobs=3)
    with pytest.raises(InputError, match="Parquet is for rounds"):
        wattsched.write_document(tmp_path / "a.parquet", made)
    assert not (tmp_path / "a.parquet").exists()


def test_tables_of_jobs_and_names_of_tables_may_stand_in_one_column(tmp_path: Path) -> None:
    made = wattsched.generate("uniform", jobs=3, seed=1)
    own = {"gpus": [1], "pool": ["A100"], "power_w": [100.0], "rate": [1.0]}
    job = {"name": "own", "options": own}
    mixed = Instance.model_validate(
        {**made.model_dump(), "jobs": [*(j.model_dump() for j in made.jobs), job]}
    )
    wattsched.write_document(tmp_path / "a.parquet", mixed)
    assert digest_of(wattsched.read_instance(tmp_path / "a.parquet")) == digest_of(mixed)


def test_a_column_that_is_no_field_is_refused(tmp_path: Path) -> None:
    wattsched.write_document(tmp_path / "a.parquet", wattsched.generate("uniform", jobs=3, seed=1))
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(table.append_column("owner_id", pa.array([1, 1, 1])), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="owner_id"):
        wattsched.read_instance(tmp_path / "b.parquet")


def test_texts_need_no_dictionary_and_damaged_ones_are_told(tmp_path: Path) -> None:
    made = wattsched.generate("uniform", jobs=3, seed=1)
    jobs = [job.model_copy(update={"pools": ["A100"]}) for job in made.jobs]
    made = made.model_copy(update={"jobs": jobs})
    wattsched.write_document(tmp_path / "a.parquet", made)
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    place = table.schema.get_field_index("pools")
    field = pa.field("pools", pa.string(), metadata=table.schema.field(place).metadata)
    for texts in (['["A100"]'] * 3, ['["A100"]', "[[[", '["A100"]']):
        pyarrow.parquet.write_table(table.set_column(place, field, pa.array(texts)), tmp_path / "b.parquet")
        if len(set(texts)) == 1:
            assert digest_of(wattsched.read_instance(tmp_path / "b.parquet")) == digest_of(made)
    with pytest.raises(InputError, match=r"jobs\.pools: must be JSON, got '\[\[\['"):
        wattsched.read_instance(tmp_path / "b.parquet")


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    wattsched.write_document(tmp_path / "a.parquet", wattsched.generate("uniform", jobs=3, seed=1))
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(table.append_column("weight", pa.array([1.0] * 3)), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"jobs\.weight: the column is there 2 times"):
        wattsched.read_instance(tmp_path / "b.parquet")


def test_no_damage_makes_another_instance(tmp_path: Path) -> None:
    made = wattsched.generate("uniform", jobs=60, seed=1)
    wattsched.write_document(tmp_path / "a.parquet", made)
    content, choice, told = (tmp_path / "a.parquet").read_bytes(), Random(1), 0
    rows = len(content) - pyarrow.parquet.read_metadata(tmp_path / "a.parquet").serialized_size - 8
    for number in range(100):
        damaged = bytearray(content)
        damaged[choice.randrange(rows if number % 2 else len(content))] ^= 1 << choice.randrange(8)
        (tmp_path / "b.parquet").write_bytes(damaged)
        try:
            read = wattsched.read_instance(tmp_path / "b.parquet")
        except InputError:
            told += 1
        else:
            assert digest_of(read) == digest_of(made)
    assert told > 50
