"""`wattsched library`: lists, makes, runs, verifies and takes results."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

import wattsched
from wattsched.library.entries import entries
from wattsched.library.recipes import Imported

from .conftest import refused

ONE, OTHER = "tight-15-1", "degenerate-15-1"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATTSCHED_DATA", raising=False)


def test_list_shows_what_is_known(run):
    assert f"{len(entries())} instances" in run("library", "list", code=0).stdout
    some = json.loads(run("library", "list", "sia", "--tag", "power-cap", "--json").stdout)
    assert {one["family"] for one in some} == {"sia"}
    assert all(one["best_known"]["objective"] > 0 for one in some)
    classes = {name: run("library", "list", "--difficulty", name).stdout for name in ("easy", "open")}
    assert classes["easy"] != classes["open"] or not any(classes.values())
    refused(run("library", "list", "tigt-15-1"), "did you mean 'tight-15-1'?")


@pytest.mark.parametrize(("document", "file"), [("instances", "instances"), ("best-known", "best_known")])
def test_files_of_the_library_follow_their_schemas(run, document, file):
    schema = json.loads(run("library", "schema", document).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    content = json.loads(resources.files("wattsched.library").joinpath(f"{file}.json").read_text())
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content | {"format": "another/1"}, schema)


def test_get_writes_the_instance_with_its_digest(run, tmp_path):
    printed = run("library", "get", ONE, code=0)
    assert json.loads(printed.stdout)["name"] == ONE
    run("library", "get", ONE, OTHER, code=2)
    run("library", "get", ONE, "--mps", "-o", "out", code=0)
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {f"{ONE}.json", f"{ONE}.mps", f"{ONE}.best.json"}
    assert wattsched.check(f"out/{ONE}.json", f"out/{ONE}.best.json").faults == []


def test_traces_that_are_not_there_are_left_out_with_a_note(run):
    public = next(entry.name for entry in entries().values() if isinstance(entry.recipe, Imported))
    for command in (("get", "-o", "out"), ("run",)):
        done = run("library", command[0], public, ONE, *command[1:], code=0)
        assert f"{public}: left out: set WATTSCHED_DATA" in done.stderr
        nothing = run("library", command[0], public, *command[1:], code=2)
        assert "no instance could be made: all of them are of traces that are not there" in nothing.stderr
    done = run("library", "verify", public, ONE, code=0)
    assert "skipped: 1 instance: set WATTSCHED_DATA" in done.stdout
    assert "1 of 2 instances verified" in done.stdout
    for options in ((), ("--json",)):
        nothing = run("library", "verify", public, *options, code=2)
        assert "nothing could be verified: set WATTSCHED_DATA" in nothing.stderr


def test_run_and_submit_keep_what_is_better(run, tmp_path):
    assert ONE in run("library", "run", ONE, "--gap", "0", "--prove", "5", "-o", "out", code=0).stdout
    submitted = run("library", "submit", f"out/{ONE}.json", code=0)
    if "Written to best_known.json" in submitted.stdout:
        assert json.loads(Path("best_known.json").read_text())["records"][0]["name"] == ONE
    again = run("library", "submit", f"out/{ONE}.json")
    assert "nothing is better than what is known; best_known.json is as it was" in again.stdout
    elsewhere = run("library", "submit", f"out/{ONE}.json", "--best", "elsewhere.json")
    assert Path("elsewhere.json").exists() == ("elsewhere.json is not made" not in elsewhere.stdout)
    run("library", "verify", ONE, code=0)
    document = json.loads(Path(f"out/{ONE}.json").read_text())
    document["objective"] *= 0.9
    Path("forged.json").write_text(json.dumps(document))
    assert "not valid" in run("library", "submit", "forged.json", "--best", "other.json", code=1).stdout
    assert not Path("other.json").exists()
    refused(run("library", "submit", f"out/{ONE}.json", "--best", f"out/{ONE}.json"), "is no file of records")


def test_who_has_decided_and_who_could_not_is_said(run):
    known = run("library", "run", "sharing-gpus-30-power7", "--solver", "greedy", code=0)
    assert "not by 'greedy', which had no better decision, but by 'eaco': sharing-gpus-30" in known.stdout
    some = run("library", "run", ONE, "sharing-gpus-30-power7", "--solver", "powerflow", code=0)
    assert "skipped: " in some.stdout
    refused(
        run("library", "run", ONE, "--solver", "pyomo:nosuch", "-o", "out"),
        "solver 'nosuch' is not installed, or unknown to Pyomo",
    )
    assert not Path("out").exists()


@pytest.fixture
def forged(run):
    """Write a file with the record of an instance, changed, and its result."""
    run("library", "run", OTHER, "-o", "out")
    document = json.loads(run("library", "list", OTHER, "--json").stdout)[0]
    result = json.loads(Path(f"out/{OTHER}.json").read_text())
    record = {"name": OTHER, "digest": document["digest"], "result": result, **document["best_known"]}

    def written(**changes: object) -> None:
        known = {"format": "wattsched-best-known/1", "library": "1", "records": [record | changes]}
        Path("out.json").write_text(json.dumps(known))

    return written, record


def test_records_that_contradict_their_results_are_refused(run, forged):
    written, _ = forged
    for change, told in (
        ({"sense": "max"}, f"'{OTHER}' says 'max total-completion', the objective is 'min total-completion'"),
        ({"objective": 1.0}, f"'{OTHER}' is worth 1, its result says "),
        ({"solved_by": {"me": -1.0}}, "must be greater than or equal to 0"),
    ):
        written(**change)
        for command in ("list", "run", "verify"):
            assert told in run("library", command, OTHER, "--best", "out.json", code=2).stderr


def test_verify_ends_with_1_where_a_record_does_not_hold(run, forged):
    Path("out.json").write_text('{"format": "wattsched-best-known/1", "library": "1", "records": []}')
    run("library", "verify", OTHER, "--best", "out.json", code=0)
    written, record = forged
    written(bound=2 * record["bound"])
    found = run("library", "verify", OTHER, "--best", "out.json", code=1)
    assert f"{OTHER}: bound: the record says" in found.stdout
    assert "0 of 1 instance verified, 0 proven" in found.stdout
    again = run("library", "run", OTHER, "--best", "out.json", code=0)
    assert f"{OTHER}: what is known of it cannot be true: it has a bound of" in again.stderr
    assert json.loads(run("library", "verify", OTHER, "--best", "out.json", "--json").stdout)[0]["faults"]
