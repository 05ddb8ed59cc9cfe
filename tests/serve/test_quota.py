"""What a journal takes of the disk: texts once, older rounds given up, and a disk that is full."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions, _Asked
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.snapshot import load
from wattsched.serve import texts as texts_module
from wattsched.serve.database import JournalError
from wattsched.serve.journal import Journal
from wattsched.serve.texts import packed, unpacked

from .conftest import Serve, full_disk
from .victim import DOCUMENT, jobs


def wide(number: int, rows: int = 2_500) -> dict[str, Any]:
    """A job whose options are some 77 KB of text."""
    rates = [1.0 + number / 7 + row * 1e-9 for row in range(rows)]
    table = {"gpus": [1] * rows, "pool": ["A"] * rows, "rate": rates, "power_w": [200.0] * rows}
    return {"name": f"j{number}", "options": {**table, "batch_size": list(range(1, rows + 1))}}


def test_a_text_is_kept_once(tmp_path: Path) -> None:
    """As an adapter has it, which tells everything anew in each round."""
    many, path = [wide(number) for number in range(6)], tmp_path / "j.db"
    with Journal(path) as journal:
        session = journal.create("s", DOCUMENT)
        sizes = []
        for _ in range(6):
            session.upsert(many)
            session.solve(deadline_s=5.0)
            session.remove([job["name"] for job in many])
            sizes.append(journal.used_bytes())
        text = len(json.dumps(many))
        assert text > 6 * 77_000
        assert sizes[-1] - sizes[2] < 0.05 * text * 3
        made = session.round(3).decision.instance
    with Journal(path) as journal:
        assert journal.round("s", 3).decision.instance == made == journal.round("s", 6).decision.instance


def test_texts_that_nothing_needs_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / "j.db", kept_rounds=2, quota_mb=1.0) as journal:
        session = journal.create("s", DOCUMENT)
        for number in range(40):
            session.upsert([{**wide(number), "name": "a"}])
            made = session.solve(deadline_s=5.0)
            assert journal.used_bytes() < 1e6
        assert session.last is not None
        assert journal.round("s", made.number).decision.instance == made.decision.instance


def test_older_rounds_are_given_up_for_newer_ones(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db", quota_mb=0.2) as journal:
        session = journal.create("s", DOCUMENT)
        session.upsert(jobs(*(f"j{k}" for k in range(40))))
        for number in range(1, 80):
            assert session.solve(deadline_s=5.0, apply=number == 1).number == number
        kept = [line.number for line in session.rounds()]
        assert kept[-1] == 79
        assert len(kept) < 79
        assert journal.used_bytes() < 0.2e6


DOCUMENTS = st.recursive(
    st.integers() | st.text(max_size=300), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
)


@settings(max_examples=examples(60), deadline=None)
@given(document=DOCUMENTS, repeated=st.integers(1, 60))
def test_a_document_comes_back(document: Any, repeated: int) -> None:
    content = packed([document] * repeated)
    assert unpacked(content) == [document] * repeated
    if content[:1] == b"\x01":
        texts = list(texts_module._texts_of(content[1:]))
        assert b"".join(texts) == content[1:]


def test_a_journal_of_the_version_before_is_opened(tmp_path: Path) -> None:
    """It was made by that version: two rounds, a state, a change after it, and an action that did not end."""
    path = tmp_path / "j.db"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("format-1.db.gz").read_bytes()))
    with Journal(path, read_only=True) as journal:
        before = journal.open("s").session.to_instance()
        assert [line.number for line in journal.rounds("s")] == [1, 2]
    for _ in range(2):
        with Journal(path) as journal:
            session = journal.open("s")
            assert session.session.to_instance() == before
            assert session.session.to_instance().budgets.power_w == 2500.0
            assert [action.key for action in session.actions(unfinished=True)] == ["k"]
            assert journal.round("s", 1).decision.solved
    with Journal(path) as journal:
        session = journal.open("s")
        session.upsert([wide(1)])
        assert session.solve(deadline_s=5.0).number == 3


def test_a_session_goes_on_without_the_disk(tmp_path: Path) -> None:
    """Decisions are made of what was told last; when there is room again, the journal has all of it."""
    path = tmp_path / "j.db"
    with Journal(path) as journal:
        session = journal.create("s", DOCUMENT)
        session.goes_on = True
        session.upsert(jobs("a", "b"))
        assert session.solve(deadline_s=5.0).unwritten == ""
        with full_disk():
            session.remove(["a"])
            session.upsert(jobs("c"))
            session.update(power_w=900.0)
            made = session.solve(deadline_s=5.0)
            assert "cannot be used" in made.unwritten
            assert (made.number, set(made.decision.ids)) == (2, {"b", "c"})
            with pytest.raises(JournalError):
                session.begin_action("start", {})
            assert journal.fault
        made = session.solve(deadline_s=5.0)
        assert (made.number, made.unwritten, journal.fault) == (3, "", "")
        before = session.session.to_instance()
    with Journal(path) as journal:
        assert journal.open("s").session.to_instance() == before
        assert [line.number for line in journal.rounds("s")] == [1, 3]


def test_the_cap_is_kept_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started that could not be kept; what has to stop is stopped."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr("wattsched.adapters.slurm.actions.ask", lambda *command, **_: asked.append(command))
    monkeypatch.setattr("wattsched.adapters.slurm.loop._SETTLE_S", 0.0)
    snapshot = load(Path(__file__).resolve().parents[2] / "examples" / "slurm.json")
    budget, policy = Budget(power_w=60_000.0), Policy(Ours(), SiteOptions(), apply=True)
    with Journal(tmp_path / "j.db") as journal:
        rounds = Rounds(policy, budget, journal, lambda _: snapshot, Actions)
        assert not any("nothing starts" in alarm for alarm in rounds.round().alarms)
        asked.clear()
        with full_disk():
            budget.power_w = 100.0
            report = rounds.round()
            assert any("nothing starts, and the cap is kept" in alarm for alarm in report.alarms)
            assert report.stopped
            assert [command[1] for command in asked if command[1] == "requeuehold"]
            actions = rounds.actions
            assert actions is not None
            release = _Asked("1-start", {"action": "start"}, [("scontrol", "release", "1")])
            with pytest.raises(JournalError, match="cannot be used"):
                actions._ask_all([release])
            assert not [command for command in asked if "release" in command]
        assert not any("nothing starts" in alarm for alarm in rounds.round().alarms)
        assert actions._ask_all([release]) == [""]


def test_a_full_disk_is_told(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        with full_disk():
            assert ask("PATCH", "/v1/sessions/s", {"power_w": 900.0})[0] == 503
            status, told = ask("GET", "/readyz")
            assert (status, told["ready"]) == (503, False)
            assert told["error"]
            assert b"wattsched_journal_failing 1.0" in ask("GET", "/metrics")[1]
            assert ask("GET", "/healthz")[0] == 200
        assert ask("GET", "/readyz") == (200, {"ready": True})
        assert ask("PATCH", "/v1/sessions/s", {"power_w": 900.0})[0] == 200
        assert b"wattsched_journal_failing 0.0" in ask("GET", "/metrics")[1]
