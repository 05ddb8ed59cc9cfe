"""The journal: whatever happens to the process, what was acknowledged is there when it is opened again."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.strategies.effort import examples
from wattsched import InputError
from wattsched.serve import recorded as recorded_module
from wattsched.serve.database import JournalError
from wattsched.serve.journal import Journal
from wattsched.serve.recorded import RecordedSession

from .conftest import full_disk
from .victim import DOCUMENT, TABLE, jobs, names_after


def reopened(path: Path) -> tuple[Journal, RecordedSession]:
    journal = Journal(path)
    return journal, journal.open("s")


def assert_lasts(journal: Journal, session: RecordedSession, path: Path) -> None:
    """Close a journal, and find the session as it was."""
    live = session.session.to_instance()
    journal.close()
    again, opened = reopened(path)
    with again:
        assert opened.session.to_instance() == live


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
RECORD = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "weight": st.sampled_from([1.0, 2.0, 5.0, -1.0]),
        "options": st.sampled_from(["t", TABLE, "nowhere"]),
        "restart_s": st.sampled_from([0.0, 30.0]),
        "deadline_s": st.sampled_from([None, 100.0]),
        "current": st.sampled_from([None, {"gpus": 1, "pool": "A", "nodes": {"n3": [0]}}]),
        "preemptible": st.booleans(),
    },
)
NODES = st.lists(st.sampled_from(["n0", "n1", "n2", "n3"]), unique=True, max_size=2)
FED = {**DOCUMENT["cluster"], "power_domains": [{"name": "f", "members": ["n0"], "power_cap_w": 1e4}]}
EVENT_LIMITS = [
    {"from": "2027-01-31T17:00Z", "to": "2027-01-31T18:00Z", "power_w": 1200.0},
    {"from": "2027-01-31T17:30Z", "power_w": 800.0, "domain": "f"},
]
UPDATE = st.fixed_dictionaries(
    {},
    optional={
        "signal": st.sampled_from(
            [None, {"limits": EVENT_LIMITS}, {"limits": EVENT_LIMITS[:1], "until": "2027-01-31T18:00Z"}]
        ),
        "now": st.sampled_from(["2027-01-31T17:00Z", "2027-01-31T17:45Z", "2027-01-31T19:00+01:00", "noon"]),
        "power_w": st.sampled_from([None, 1500.0, 4000.0]),
        "round_s": st.sampled_from([None, 30.0]),
        "objective": st.sampled_from(["goodput", "work-value"]),
        "reserved_w": st.sampled_from([{}, {"n0": 100.0}, {"n1": 5.0, "n0": 0.0}, {"strange": 1.0}]),
        "down": NODES,
        "up": NODES,
        "unavailable": st.sampled_from([{}, {"n0": [1]}, {"n0": [], "n2": [0, 1, 2, 3]}]),
        "cluster": st.sampled_from(
            [
                {**DOCUMENT["cluster"], "capacity": "nodes"},
                {**DOCUMENT["cluster"], "nodes": DOCUMENT["cluster"]["nodes"][:3]},
                FED,
            ]
        ),
    },
)
RECORDS, GONE = st.lists(RECORD, max_size=3), st.lists(NAMES, max_size=2)
EVENT = st.one_of(
    st.tuples(st.just("upsert"), st.fixed_dictionaries({"jobs": RECORDS | NAMES.map(jobs)})),
    st.tuples(st.just("remove"), st.fixed_dictionaries({"ids": GONE})),
    st.tuples(st.just("update"), UPDATE),
    st.tuples(st.just("apply"), st.fixed_dictionaries({"round": st.integers(-2, 0)})),
    st.tuples(st.just("solve"), st.just({})),
    st.tuples(
        st.just("solve"), st.fixed_dictionaries({"jobs": RECORDS, "remove": GONE, "apply": st.booleans()})
    ),
)


def make(session: RecordedSession, kind: str, told: dict[str, Any]) -> None:
    """Make a change or a decision; rounds are counted back from the newest one."""
    if kind == "apply":
        told = {"round": session.rounds()[-1].number + told["round"] if session.rounds() else 1}
    elif kind == "solve":
        told = {**told, "deadline_s": 10.0}
    getattr(session, kind)(**told)


@settings(max_examples=examples(40), deadline=None)
@given(history=st.lists(EVENT, max_size=25), most_events=st.sampled_from([2, 5, 500]))
def test_reopened_is_as_it_was(
    history: list[Any], most_events: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever was told, and whether a state or all events lead there."""
    path = tmp_path_factory.mktemp("journal") / "j.db"
    with pytest.MonkeyPatch.context() as patched, Journal(path, kept_rounds=2) as journal:
        patched.setattr(recorded_module, "MOST_EVENTS", most_events)
        session = journal.create("s", DOCUMENT)
        for kind, told in history:
            before = session.session.to_instance()
            try:
                make(session, kind, told)
            except InputError:
                assert session.session.to_instance() == before
        live, told, last = session.session.to_instance(), session.session.told, session.last
    journal, again = reopened(path)
    with journal:
        assert again.session.to_instance() == live
        assert again.session.told == told
        assert wattsched.instances.digest.digest_of(again.session.to_instance()) == (
            wattsched.instances.digest.digest_of(live)
        )
        assert (again.last is None) == (last is None)
        if last is not None and again.last is not None:
            assert again.last.number == last.number
            assert again.last.decision.result == last.decision.result
            assert again.last.decision.prices == last.decision.prices
            assert again.last.decision.instance == last.decision.instance
            assert again.last.decision.option.tolist() == last.decision.option.tolist()
        assert again.solve(deadline_s=10.0).number == (0 if last is None else last.number) + 1


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and the journal opens."""
    path, random_moment = tmp_path / "j.db", random.Random(1)
    for _ in range(6):
        victim = Path(__file__).with_name("victim.py")
        child = subprocess.Popen([sys.executable, victim, path], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        told = [child.stdout.readline()]
        time.sleep(random_moment.uniform(0.0, 0.2))
        child.kill()
        told += child.stdout.readlines()
        child.wait()
        whole = [line.split() for line in told if line.endswith("\n")]
        steps = [int(number) for what, number in whole if what == "step"]
        applied = [int(number) for what, number in whole if what == "applied"]
        journal, session = reopened(path)
        with journal:
            now = session.session.to_instance()
            step = int((now.budgets.power_w or 0) - 10_000)
            assert steps[-1] <= step <= steps[-1] + 1
            # The next job comes, then the oldest goes, and then it is the next step.
            before, after = set(names_after(step)), set(names_after(step + 1))
            assert set(now.by_column().names) in (before, before | after, after)
            if applied:
                assert session.last is not None
                assert applied[-1] <= session.last.number <= applied[-1] + 1
                runs = {line.number: line.applied for line in session.rounds()}
                assert runs[applied[-1]] is not None


def test_changes_from_threads(journal: Journal, tmp_path: Path) -> None:
    session = journal.create("s", DOCUMENT)
    failed: list[BaseException] = []

    def work(who: int) -> None:
        try:
            for k in range(10):
                session.upsert(jobs(f"{who}-{k}"))
                session.update(power_w=5_000.0 + who)
                if k % 5 == 0:
                    session.solve(jobs=jobs(f"{who}-{k}", weight=2.0), apply=True, deadline_s=10.0)
                if k % 2:
                    session.remove([f"{who}-{k - 1}"])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    names = session.session.to_instance().by_column().names
    assert set(names) == {f"{who}-{k}" for who in range(4) for k in range(1, 10, 2)}
    assert [line.number for line in session.rounds()] == list(range(1, 9))
    assert_lasts(journal, session, tmp_path / "journal.db")


def test_every_round_is_checked_again_from_the_file(journal: Journal) -> None:
    session = journal.create("s", DOCUMENT)
    session.upsert(jobs("a", "b", "c"))
    for _ in range(3):
        session.solve(deadline_s=10.0)
        session.upsert(jobs(f"d{session.rounds()[-1].number}", weight=3.0))
    for line in journal.rounds("s"):
        found = journal.round("s", line.number).decision
        assert wattsched.check(found.instance, found.result).faults == []
        assert line.objective == found.objective
        assert line.jobs == len(found.ids) == 2 + line.number


def test_a_record_changes_only_what_it_gives(journal: Journal) -> None:
    session = journal.create("s", DOCUMENT)
    session.upsert(jobs("a", weight=2.0, restart_s=10.0))
    session.upsert([{"name": "a", "weight": 3.0}, {"name": "b", "options": TABLE, "deadline_s": 900.0}])
    found = {job.name: job for job in session.session.to_instance().by_column()}
    assert (found["a"].weight, found["a"].restart_s, found["a"].options) == (3.0, 10.0, "t")
    assert (found["b"].weight, found["b"].deadline_s) == (1.0, 900.0)
    with pytest.raises(InputError, match=r"jobs\[1\]\.weight: .* got 'x'"):
        session.upsert([{"name": "a", "weight": 1.0}, {"name": "b", "weight": "x"}])
    assert session.session.to_instance().by_column()[0].weight == 3.0


def test_old_rounds_go_but_not_what_runs(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db", kept_rounds=3) as journal:
        session = journal.create("s", DOCUMENT)
        session.upsert(jobs("a"))
        session.apply(session.solve().number)
        for _ in range(8):
            session.solve()
        assert [line.number for line in session.rounds()] == [1, 7, 8, 9]
        with pytest.raises(InputError, match="no round 2"):
            session.apply(2)
        assert_lasts(journal, session, tmp_path / "j.db")


def test_names_and_faults(journal: Journal) -> None:
    session = journal.create("s", DOCUMENT)
    names: list[Any] = ["", "a/b", "..", "é", "a\n", "x" * 101, 3]
    for name in names:
        with pytest.raises(InputError, match="name: must be letters"):
            journal.create(name, DOCUMENT)
    with pytest.raises(InputError, match="there is a session 's'"):
        journal.create("s", DOCUMENT)
    with pytest.raises(InputError, match="clster: is not a known field"):
        journal.create("t", {"clster": {}})
    with pytest.raises(
        InputError, match=r"formulation: must be one that is installed, no file, got '/f.py:F'"
    ):
        journal.create("t", {**DOCUMENT, "formulation": "/f.py:F"})
    with pytest.raises(InputError, match=r"solver: must be one that is installed, no file, got '/f.py:F'"):
        journal.create("t", {**DOCUMENT, "solver": "/f.py:F"})
    with pytest.raises(InputError, match="no session 'other'"):
        journal.open("other")
    with pytest.raises(InputError, match="unknown: is not a known field"):
        session.update(unknown=1)
    assert journal.sessions() == ["s"]
    journal.drop("s")
    with pytest.raises(InputError, match="was dropped"):
        session.upsert(jobs("a"))
    assert journal.sessions() == []


def test_actions_are_begun_once(journal: Journal, tmp_path: Path) -> None:
    session = journal.create("s", DOCUMENT)
    assert session.begin_action("start a", {"job": "a"})
    assert not session.begin_action("start a", {"job": "b"})
    assert session.begin_action("start b", {})
    session.end_action("start b", {"ok": True})
    with pytest.raises(InputError, match="no action 'stop'"):
        session.end_action("stop", {})
    journal.close()
    again, opened = reopened(tmp_path / "journal.db")
    with again:
        assert [action.key for action in opened.actions()] == ["start a", "start b"]
        assert [(a.key, a.begun, a.ended) for a in opened.actions(unfinished=True)] == [
            ("start a", {"job": "a"}, None)
        ]
        assert not opened.begin_action("start b", {})


def test_a_full_disk_changes_nothing(journal: Journal) -> None:
    """What could not be written is not seen either, and the session goes on when there is room again."""
    session = journal.create("s", DOCUMENT)
    session.upsert(jobs("a"))
    before = session.session.to_instance()
    with full_disk():
        for change in (lambda: session.upsert(jobs("b")), lambda: session.update(power_w=9_000.0)):
            with pytest.raises(JournalError, match="cannot be used"):
                change()
            assert session.session.to_instance() == before
    session.update(power_w=5_000.0)
    assert session.session.to_instance().by_column().names == before.by_column().names


def test_a_decision_is_not_recorded_without_what_was_changed_before_it(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is made, another change takes what came with it to the disk, or loses it."""
    session = journal.create("s", DOCUMENT)
    session.upsert(jobs("a"))
    decide = session.session.solve

    def meanwhile(full: bool) -> Any:
        def solve(**asked: Any) -> Any:
            with (
                full_disk() if full else nullcontext(),
                pytest.raises(JournalError) if full else nullcontext(),
            ):
                session.upsert(jobs("c"))
            return decide(**asked)

        return solve

    monkeypatch.setattr(session.session, "solve", meanwhile(full=True))
    with pytest.raises(JournalError, match="what was changed before the decision"):
        session.solve(jobs=jobs("b"), apply=True)
    assert session.rounds() == []
    session.update(power_w=5_000.0)
    assert session.session.to_instance().by_column().names == ["a"]
    decide = session.session.solve
    monkeypatch.setattr(session.session, "solve", meanwhile(full=False))
    made = session.solve(jobs=jobs("b"), apply=True)
    assert set(made.decision.ids) == {"a", "b", "c"}
    assert_lasts(journal, session, tmp_path / "journal.db")


def test_numbers_of_numpy_are_recorded_as_they_are(journal: Journal, tmp_path: Path) -> None:
    session = journal.create("s", DOCUMENT)
    table = {**TABLE, "gpus": np.array(TABLE["gpus"]), "rate": [np.float32(1.5)] * 3}
    session.upsert([{"name": "a", "options": table, "max_gpus": np.int64(2), "weight": np.float32(0.1)}])
    session.update(power_w=np.float64(4e3), unavailable={"n0": np.array([1])}, down=("n1",))
    number: Any = np.int64(session.solve().number)
    session.apply(number)
    assert_lasts(journal, session, tmp_path / "journal.db")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.apply(True), "^round must be the number of a round, got bool"),
        (lambda s: s.apply(s.last.decision), "^round must be the number of a round, got SessionDecision"),
        (lambda s: s.upsert([{"name": "b", "weight": object()}]), r"^jobs\[0\].weight: cannot be written as"),
        (lambda s: s.solve(jobs=[{"name": "\ud800"}]), r"^jobs\[0\].name: holds a character that is not"),
        (lambda s: s.remove(["\udfff"]), r"^ids\[0\]: holds a character"),
        (lambda s: s.update(down=["n0"], up=0), "^up must be a sequence of names, got 0"),
        (lambda s: s.update(power_w=7.0, down={}), "^down must be a sequence of names, got {}"),
        (lambda s: s.begin_action("k", {"x": [math.nan]}), r"^document.x\[0\]: must be a finite number"),
        (lambda s: s.begin_action(math.nan, {}), "^key must be a text"),
        (lambda s: s.end_action("k", {"x": math.inf}), "^document.x: must be a finite number"),
    ],
)
def test_what_cannot_be_recorded_is_named(journal: Journal, call: Any, told: str) -> None:
    session = journal.create("s", DOCUMENT)
    session.upsert(jobs("a"))
    session.solve()
    before = session.session.to_instance()
    with pytest.raises((InputError, TypeError), match=told):
        call(session)
    assert session.session.to_instance() == before
    assert session.actions() == []


def test_a_journal_keeps_at_least_a_round(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kept_rounds: must be at least 1, got 0"):
        Journal(tmp_path / "j.db", kept_rounds=0)
    assert not [*tmp_path.iterdir()]


def test_closed(journal: Journal) -> None:
    session = journal.create("s", DOCUMENT)
    journal.close()
    with pytest.raises(JournalError, match="cannot be used"):
        session.upsert(jobs("a"))
