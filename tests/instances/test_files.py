"""Reading never surprises: every bad file gives readable faults, quickly and without filling the memory."""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from wattsched.instances.errors import InputError
from wattsched.instances.io import csv_text_cell, read_json, write_atomically, write_json
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import instance_of, read_instance
from wattsched.results.problems import problem


def document(*jobs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A valid instance document of 8 GPUs, with these jobs."""
    cluster = {
        "gpu_types": {"A": {"idle_power_w": 5.0}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 8}],
    }
    return {"format": "wattsched-instance/1", "cluster": cluster, "jobs": list(jobs), **fields}


def job(**fields: Any) -> dict[str, Any]:
    table = {"gpus": [1, 2], "pool": ["A", "A"], "power_w": [100.0, 190.0], "rate": [1.0, 1.9]}
    return {"name": "j", "options": table, **fields}


def faults(content: Any) -> list[str]:
    with pytest.raises(InputError) as error:
        instance_of(content)
    return error.value.faults


def file_faults(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_instance(path)
    assert str(path) in str(error.value)
    return "\n".join(error.value.faults)


# --- round trip -------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(
    instance=small_instances() | instances_with_sets(),
    name=names,
    suffix=st.sampled_from([".json", ".json.gz"]),
)
@settings(max_examples=examples(60))
def test_what_is_written_is_read_back(
    instance: Instance, name: str, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = {"remaining_work": 1e-300}
    extreme = [job.model_copy(update=work) for job in instance.jobs]
    instance = instance.model_copy(update={"name": name, "jobs": extreme})
    assume(not problem("sizing").faults_in(instance))
    path = tmp_path_factory.mktemp("written") / f"round{suffix}"
    write_json(path, instance)
    first = path.read_bytes()
    assert read_instance(path) == instance
    write_json(path, instance)
    assert path.read_bytes() == first
    jsonschema.validate(read_json(path), Instance.model_json_schema())


# --- files that are no documents --------------------------------------------------------------------

VALID = json.dumps(document(job())).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"hello", "not valid JSON"),
        (b"apiVersion: v1\nitems:\n- kind: Pod\n", "is YAML, which is not supported: use -o json"),
        (b"# of kubectl\n---\nkind: List\n", "is YAML"),
        (VALID[:-30], "where the file ends"),
        (VALID + b"}", "extra data"),
        (b'{"a": 1,}', "line 1, column"),
        (b"\x00\x01\x02\x03", "binary"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "binary"),
        (VALID.decode().encode("utf-16"), "UTF-16"),
        (VALID.decode().encode("utf-16-le"), "UTF-16"),
        (VALID.decode().encode("utf-32-be"), "UTF-16 or UTF-32"),
        (b'{"name": "\xff"}', "not UTF-8 text: byte 10 is 0xff"),
        (gzip.compress(VALID, mtime=0)[:-20], "damaged gzip"),
        (gzip.compress(VALID, mtime=0)[:-8] + b"\0" * 8, "damaged gzip"),
        (b"\x1f\x8b\x08\x00garbage-and-more", "damaged gzip"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"[]", "must be an object, not a list"),
        (b"null", "must be an object, not null"),
        (b"[" * 201 + b"]" * 201, "nested too deeply"),
        (b"[" * 200 + b"]" * 200, "must be an object, not a list"),
        (b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply"),
        (b'{"x": "' + b"y" * (1 << 20) + b'", "a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"n": ' + b"9" * 5000 + b"}", "n: is not a known field"),
        (b'{"jobs": [], "jobs": []}', "'jobs' more than once"),
        (b'{"format": "wattsched-result/1"}', "expected 'wattsched-instance/1', found 'wattsched-result/1'"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in file_faults(tmp_path / "round.json", content)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('"gpus": 99999999999999999999', "gpus: is too large for a whole number, got 1e+20"),
        (f'"gpus": {"9" * 5000}', "gpus: is too large for a whole number, got a number beyond 1.8e+308"),
        ('"gpus": 1e400', "gpus: is too large for a whole number, got a number beyond 1.8e+308"),
        ('"gpus": 1.5', "gpus: must be a whole number, got 1.5"),
        ('"gpus": NaN', "got NaN"),
        ('"gpus": null', "gpus: must be a whole number, got null"),
        ('"gpus": {"a": [true, null]}', "gpus: must be a whole number, got {'a': [true, null]}"),
    ],
)
def test_what_a_file_says_is_told_as_it_says_it(tmp_path: Path, written: str, said: str) -> None:
    content = VALID.decode().replace('"gpus": 8', written, 1)
    assert said in file_faults(tmp_path / "round.json", content.encode())


@pytest.mark.parametrize("value", ["0", "abc", "-1", "nan", "", "1e3", "99999999"])
def test_a_limit_of_inputs_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("WATTSCHED_INPUT_MB", value)
    told = f"WATTSCHED_INPUT_MB must be a whole number of megabytes, from 1 to 9999999, got '{value}'"
    assert told in file_faults(tmp_path / "round.json", VALID)


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "round.json"
    path.write_bytes(b"\xef\xbb\xbf" + VALID)
    assert len(read_instance(path).jobs) == 1


def test_compression_is_recognised_by_content(tmp_path: Path) -> None:
    path = tmp_path / "round.json"
    path.write_bytes(gzip.compress(VALID))
    assert read_instance(path) == instance_of(json.loads(VALID))


def test_places_that_are_no_files(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "is a directory"),
        (tmp_path / "absent.json", "no such file"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        for expected in (InputError, OSError):
            with pytest.raises(expected, match=f"{path}: .*{said}"):
                read_instance(path)


def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "round.json"
    path.write_bytes(VALID)
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        # The superuser may read everything.
        os.seteuid(65534)
    try:
        with pytest.raises(InputError, match="permission denied"):
            read_instance(path)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_huge_file_of_nested_brackets_fails_at_once(tmp_path: Path, opening: bytes) -> None:
    path = tmp_path / "deep.json"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(opening * ((1 << 20) // len(opening)))
    started = time.monotonic()
    with pytest.raises(InputError, match="has more than 3,000,000 fields"):
        read_instance(path)
    assert time.monotonic() - started < 60
    path.unlink()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b'{"name": "' + b"a" * 8_000_000 + b'"}'), "is compressed more than 100 to 1"),
        (b'{"name": "' + b"a" * 2_000_000 + b'"}', "is larger than 2,000,000 bytes after decompression"),
        (b"[" + b"1," * 120_000 + b"1]", "has more than 120,000 fields and entries of lists"),
        (
            b"{" + b",".join(b'"%d":1' % i for i in range(20_001)) + b"}",
            "has an object of more than 20,000 keys",
        ),
    ],
)
def test_files_that_would_fill_the_memory_are_refused(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(content)
    monkeypatch.setenv("WATTSCHED_INPUT_MB", "2")
    with pytest.raises(InputError, match=said):
        read_json(path)
    monkeypatch.setenv("WATTSCHED_INPUT_MB", "10")
    if "compressed" not in said:
        read_json(path)


def test_a_document_with_very_many_faults_tells_the_first_ones() -> None:
    (several, first, *rest) = faults(document(*[[]] * 100_000))
    assert several == "has more than 1,000 faults, such as:"
    assert first == "jobs[0]: must be an object, got []"
    assert len(rest) == 19


# --- faults of fields -------------------------------------------------------------------------------


def with_column(**columns: list[Any]) -> dict[str, Any]:
    return job(options=job()["options"] | columns)


ROW = {"gpus": 1, "pool": "A", "power_w": 1.0, "rate": 1.0}


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            with_column(power_w=[1.0, -5.0]),
            ".options.power_w[1]: must be greater than or equal to 0, got -5",
        ),
        (with_column(rate=[float("nan"), 1.0]), ".options.rate[0]: must be a finite number, got NaN"),
        (with_column(rate=[1.0]), ".options: the columns differ in length: "),
        (job(options=without(job()["options"], "power_w")), ".options.power_w: is missing"),
        (
            job(options=[ROW, ROW | {"power_w": -1.0}]),
            ".options[1].power_w: must be greater than or",
        ),
        (job(options=[ROW, without(ROW, "power_w")]), ".options: option 1 lacks 'power_w'"),
        (job(options=[]), ".options: a list of options must hold one object per option"),
        (job(options=5), ".options: must be a valid string, got 5"),
        (job(weight=float("inf")), ".weight: must be a finite number, got a number beyond 1.8e+308"),
        (job(weight="1"), ".weight: must be a valid number, got '1'"),
        (job(weight=10**400), ".weight: must be a valid number, got 1000"),
        (job(min_gpus=10**40), ".min_gpus: must be less than or equal to 1000000, got 1000000000"),
        (job(wait=True), ".wait: is not a known field"),
        (job(name="\ud800"), ".name: holds a character that is not valid Unicode"),
        (job(min_gpus=2, max_gpus=1), ": min_gpus 2 is above max_gpus 1"),
        ({"name": "j"}, ": give exactly one of 'options' and 'model'"),
        (5, ": must be an object, got 5"),
    ],
)
def test_a_fault_names_its_place_and_value(fields: Any, expected: str) -> None:
    (fault,) = faults(document(job(name="first"), fields))
    assert fault.startswith(f"jobs[1]{expected}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (document(job(), job()), "duplicate job name 'j'"),
        (document(job(options="none")), "job 'j' names the unknown table 'none'"),
        (document(budgets={"carbon_g": 1.0}), "a carbon budget needs 'carbon_g_per_kwh'"),
    ],
)
def test_faults_between_fields(content: Any, expected: str) -> None:
    assert faults(content) == [expected]


def test_every_fault_is_reported_but_not_without_end() -> None:
    many = faults(document(*(job(name=f"j{i}", weight=-1.0) for i in range(50))))
    assert len(many) == 21
    assert many[-1] == "and 30 more"


def test_schema_is_stable_and_refuses_what_reading_refuses() -> None:
    jsonschema.Draft202012Validator.check_schema(Instance.model_json_schema())
    jsonschema.validate(document(job()), Instance.model_json_schema())
    rows = [{"gpus": 1, "pool": "A", "power_w": 1.0, "rate": 1.0}]
    jsonschema.validate(document(job(options=rows)), Instance.model_json_schema())
    for bad in (document(job(weight=-1.0)), document(job(wait=True)), document(format="x"), {"jobs": []}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, Instance.model_json_schema())


# --- writing ----------------------------------------------------------------------------------------


def test_writing_leaves_no_temporary_file_and_respects_links(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    write_atomically(target, b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert target.read_bytes() == b"new"
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "target.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "round.json"
    write_json(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_json(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="directory"):
        write_json(tmp_path, "new")


@pytest.mark.parametrize("known", [True, False])
def test_a_file_appears_whole_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """With files that have no name while they are written, and where the system has none."""
    if not known:
        monkeypatch.delattr("os.O_TMPFILE", raising=False)
    seen, flush = list[list[str]](), os.fsync

    def watched(file: int) -> None:
        seen.append([path.name for path in tmp_path.iterdir() if path.suffix != ".json"])
        flush(file)

    monkeypatch.setattr("os.fsync", watched)
    for content in (b"old", b"new"):
        write_atomically(tmp_path / "file.json", content)
        assert (tmp_path / "file.json").read_bytes() == content
        assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
    assert (tmp_path / "file.json").stat().st_mode & 0o111 == 0
    if known and hasattr(os, "O_TMPFILE"):
        assert seen == [[], []]


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=1+1", "'=1+1"), ("+cmd", "'+cmd"), ("-x", "'-x"), ("@SUM(A1)", "'@SUM(A1)"), ("\tx", "\\tx"),
     ("a\x1b[2J", "a\\x1b[2J"), ("-5", "-5"), ("+1e9", "+1e9"), ("a=1", "a=1"), ("", ""),
     ("'=1", "''=1"), ("'a", "'a")],
)  # fmt: skip
def test_csv_cells_are_text_to_spreadsheets_and_terminals(text: str, cell: str) -> None:
    assert csv_text_cell(text) == cell


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_waits_until_the_file_has_its_name(tmp_path: Path, ending: signal.Signals) -> None:
    """It comes at the worst moment: the file has a name already, and not yet its own."""
    (tmp_path / "file.json").write_text("old")
    code = f"""
import os, pathlib
from wattsched.instances.io import write_atomically
replace = pathlib.Path.replace
def late(source, target):
    os.kill(os.getpid(), {int(ending)})
    return replace(source, target)
pathlib.Path.replace = late
write_atomically("file.json", b"new")
print("still here")
"""
    words = [sys.executable, "-P", "-c", code]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-ending, "")
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
    assert (tmp_path / "file.json").read_text() == "new"
