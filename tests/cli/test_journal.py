"""`wattsched journal`: rounds are listed, exported and decided again; the file is only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import wattsched
from wattsched.cli import main
from wattsched.serve.journal import Journal

CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": f"n{i}", "gpu_type": "A", "gpus": 4} for i in range(2)],
}
TABLE = {"gpus": [1, 2], "pool": ["A", "A"], "rate": [1.0, 1.9], "power_w": [200.0, 390.0]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with Journal(tmp_path / "site.db") as journal:
        document = {"cluster": CLUSTER, "objective": "goodput", "tables": {"t": TABLE}}
        own = journal.create("site", document)
        for turn in range(3):
            own.upsert([{"name": f"j{turn}{i}", "options": "t", "weight": 1.0 + i} for i in range(3)])
            own.apply(own.solve().number)
        own.update(power_w=10.0)
        own.solve()
    return tmp_path / "site.db"


def said(*args: object, code: int = 0) -> str:
    found = CliRunner().invoke(main, ["journal", *map(str, args)], standalone_mode=True)
    assert found.exit_code == code, found.output
    return found.output


def test_rounds_are_listed(file: Path) -> None:
    before = file.read_bytes()
    text = said(file)
    assert "site: 4 rounds shown" in text
    assert "infeasible" in text
    rounds = json.loads(said(file, "--json"))
    assert [one["number"] for one in rounds] == [1, 2, 3, 4]
    assert [one["applied"] is not None for one in rounds] == [True, True, True, False]
    assert [one["number"] for one in json.loads(said(file, "--last", 2, "--json"))] == [3, 4]
    assert file.read_bytes() == before


def test_a_round_is_an_instance_and_its_result(file: Path, tmp_path: Path) -> None:
    said(file, "--round", 2, "-o", tmp_path / "two")
    instance, result = (tmp_path / "two" / f"{name}.json" for name in ("instance", "result"))
    assert wattsched.check(instance, result).faults == []
    assert len(wattsched.read_instance(instance).jobs) == 6
    told = said(file, "-o", tmp_path / "three", code=2)
    assert "-o: goes with --round" in told


def test_rounds_are_decided_again(file: Path) -> None:
    decided = json.loads(said(file, "--power-w", 900, "--json"))
    for one in decided[:3]:
        assert one["instead"]["power_w"] <= 900.0
        assert one["instead"]["objective"] <= one["decided"]["objective"]
    assert decided[3]["decided"]["objective"] is None
    assert decided[3]["instead"]["reason"] == "optimal"
    assert "max-min" in said(file, "--objective", "max-min", "--json")
    assert "instead" in said(file, "--solver", "greedy", "--round", 1)


def test_several_sessions_are_listed(file: Path) -> None:
    with Journal(file) as journal:
        journal.create("other", {"cluster": CLUSTER})
    known = json.loads(said(file, "--json"))
    assert known[0] == {"session": "site", "rounds": 4, "latest": known[0]["latest"]}
    assert "no round yet" in said(file, "--session", "other")
    assert "there is no session 'third'; sessions: site, other" in said(file, "--session", "third", code=2)


def test_what_is_no_journal_or_no_round_is_told(file: Path, tmp_path: Path) -> None:
    assert "is not kept; rounds of session 'site': 1 to 4" in said(file, "--round", 7, code=2)
    assert "cannot be opened" in said(tmp_path / "none.db", code=2)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("hello")
    assert "is no journal" in said(tmp_path / "text.db", code=2)
    assert "unknown solver 'joy'" in said(file, "--solver", "joy", code=2)
    assert "unknown objective 'joy'" in said(file, "--objective", "joy", code=2)
