"""`wattsched journal`: rounds are listed, exported and decided again; the file is only read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
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
    assert "4 rounds of 4" in text
    assert "infeasible" in text
    rounds = json.loads(said(file, "--json"))["site"]
    assert [one["number"] for one in rounds] == [1, 2, 3, 4]
    assert [one["applied"] is not None for one in rounds] == [True, True, True, False]
    assert [one["number"] for one in json.loads(said(file, "--last", 2, "--json"))["site"]] == [3, 4]
    assert file.read_bytes() == before


def test_a_round_is_an_instance_and_its_result(file: Path, tmp_path: Path) -> None:
    said(file, "--round", 2, "-o", tmp_path / "two")
    instance, result = (tmp_path / "two" / f"site-2-{name}.json" for name in ("instance", "result"))
    assert wattsched.check(instance, result).faults == []
    assert len(wattsched.read_instance(instance).jobs) == 6
    assert "-o: needs --round N" in said(file, "-o", tmp_path / "three", code=2)
    assert "there is no round 7" in said(file, "--round", 7, "-o", tmp_path / "three", code=2)
    for options in ((), ("--replay",)):
        assert "--round: 'site' has no round 7" in said(file, "--round", 7, *options, code=2)
    assert "--round" in said(file, "--round", 10**20, code=2)


def test_rounds_are_decided_again(file: Path) -> None:
    found = json.loads(said(file, "--replay", "--power-w", 900, "--json"))["rounds"]
    rounds = json.loads(said(file, "--json"))["site"]
    for one, before in zip(found[:3], rounds, strict=False):
        assert one["power_w"] <= 900.0
        assert one["objective"] <= before["objective"]
    assert found[3]["was_objective"] is None
    with Journal(file, read_only=True) as journal:
        for one in found:
            instance = journal.round("site", one["number"]).decision.instance
            budgets = instance.budgets.model_copy(update={"power_w": 900.0})
            expected = wattsched.solve(instance.model_copy(update={"budgets": budgets}))
            assert one["objective"] == pytest.approx(expected.objective)
    same = json.loads(said(file, "--replay", "--json"))["rounds"]
    assert all(one["objective"] == pytest.approx(one["was_objective"]) for one in same[:3])
    assert "sum" in said(file, "--replay", "--objective", "work-value")
    assert "decided again" in said(file, "--replay", "--objective", "max-min")
    priced = "--carbon-g-per-kwh", 300, "--least-goodput", 2
    thrifty = json.loads(said(file, "--replay", "--objective", "carbon", *priced, "--json"))["rounds"]
    assert all(one["objective"] <= (one["was_objective"] or np.inf) for one in thrifty if one["objective"])
    assert "needs 'carbon_g_per_kwh'" in said(file, "--replay", "--objective", "carbon", code=2)
    assert "1 round without a decision" in said(file, "--replay", "--solver", "greedy")
    assert "needs --replay" in said(file, "--solver", "greedy", code=2)
    told = said(file, "--replay", "--solver", "pyomo:zzz", code=2)
    assert "round 1: solver 'pyomo:zzz': " in told


def test_several_sessions_are_listed(file: Path) -> None:
    with Journal(file) as journal:
        journal.create("other", {"cluster": CLUSTER})
    assert list(json.loads(said(file, "--json"))) == ["site", "other"]
    assert list(json.loads(said(file, "--session", "other", "--json"))) == ["other"]
    assert "which of site, other?" in said(file, "--replay", code=2)
    assert "there is no 'third', choose one of site, other" in said(file, "--session", "third", code=2)


def test_what_is_no_journal_is_told(file: Path, tmp_path: Path) -> None:
    assert "none.db: no such file or directory" in said(tmp_path / "none.db", code=2)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("hello" * 100)
    assert "is no journal" in said(tmp_path / "text.db", code=2)
    assert "unknown solver 'joy'" in said(file, "--replay", "--solver", "joy", code=2)
    assert "'joy' is not known" in said(file, "--replay", "--objective", "joy", code=2)
