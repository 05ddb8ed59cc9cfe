"""The journal: whatever was acknowledged is there again, whenever its process was killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from wattsched import InputError
from wattsched.documents import instance_of, result_of
from wattsched.serve import recorded
from wattsched.serve.journal import Journal
from wattsched.serve.recorded import RecordedSession

CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": f"n{i}", "gpu_type": "A", "gpus": 4} for i in range(3)],
}
TABLE = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "rate": [1.0, 1.9, 3.5], "power_w": [200.0, 390.0, 750.0]}
DOCUMENT = {"cluster": CLUSTER, "objective": "goodput", "tables": {"t": TABLE}, "capacity": "nodes"}


def whole(own: RecordedSession) -> Any:
    """All that is to be found again."""
    return {**own.session.document(), "last": None}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.sets(st.integers(0, 7), min_size=1), st.integers(1, 9)),
        st.tuples(st.just("table"), st.sets(st.integers(0, 7), min_size=1), st.integers(1, 9)),
        st.tuples(st.just("remove"), st.sets(st.integers(0, 7), min_size=1), st.just(0)),
        st.tuples(st.just("update"), st.just(frozenset()), st.integers(0, 5)),
        st.tuples(st.just("solve"), st.just(frozenset()), st.just(0)),
        st.tuples(st.just("open"), st.just(frozenset()), st.just(0)),
    ),
    max_size=14,
)
UPDATES: list[dict[str, Any]] = [
    {"power_w": 2500.0},
    {"power_w": None, "change_cost": 0.5},
    {"down": ["n1"]},
    {"up": ["n1"]},
    {"unavailable": {"n0": [1]}, "reserved_w": {"n0": 30.0}},
    {"round_s": 60.0, "objective": "total-completion"},
]


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, most=st.sampled_from([1, 3, 200]))
def test_a_session_is_found_again_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, Any, int]], most: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "sessions.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "_MOST_CHANGES", most)
        journal = Journal(path)
        own = RecordedSession.create(journal, "site", DOCUMENT)
        for what, numbers, value in changes:
            names = [f"j{number}" for number in sorted(numbers)]
            if what == "upsert":
                own.upsert([{"name": name, "options": "t", "weight": float(value)} for name in names])
            elif what == "table":
                rows = [{"gpus": g, "pool": "A", "rate": g * 0.1 * value, "power_w": 9.0} for g in (1, 2)]
                own.upsert([{"name": name, "options": rows, "restart_s": 5.0} for name in names])
            elif what == "remove":
                own.remove([name for name in names if name in own.session])
            elif what == "update":
                own.update(**UPDATES[value])
            elif what == "solve":
                made, decision = own.solve()
                if decision.solved:
                    own.apply(made.number)
            else:
                before, prices = whole(own), own.session.solve().prices
                journal.close()
                journal = Journal(path)
                own = RecordedSession.open(journal, "site")
                assert whole(own) == before
                assert own.session.solve().prices == pytest.approx(prices)
        before, rounds = whole(own), journal.rounds("site")
        journal.close()
        with Journal(path, read_only=True) as again:
            found = RecordedSession.open(again, "site")
            assert whole(found) == before
            assert again.rounds("site") == rounds
            for one in rounds:
                instance, result = again.round("site", one.number) or ({}, {})
                assert wattsched.check(instance_of(instance), result_of(result)).faults == []


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        own = RecordedSession.create(journal, "site", DOCUMENT)
        own.upsert([{"name": "a", "options": "t"}])
        before = whole(own)
        for call, told in (
            (lambda: own.upsert([{"name": "b", "options": "t"}, {"name": "c"}]), "job 'c'"),
            (lambda: own.upsert([{"name": "b", "options": "t", "gpus": 3}]), "'gpus' is no field of a job"),
            (lambda: own.upsert([{"name": "b", "options": "t"}, 3]), r"jobs\[1\]: must be an object"),
            (lambda: own.upsert([{"name": "b", "options": "t"}] * 2), "job 'b'"),
            (lambda: own.upsert([{"name": "b", "options": "u"}]), "'u' is no table of the session"),
            (lambda: own.remove(["a", "z"]), "'z'"),
            (lambda: own.update(power_w=-1.0), "power_w: must be greater than 0"),
            (lambda: own.update(down=["n9"]), "'n9' is no node"),
            (lambda: own.apply(3), "round 3 of session 'site' is not kept"),
            (lambda: RecordedSession.create(journal, "site", DOCUMENT), "session 'site' is there already"),
            (lambda: RecordedSession.create(journal, "x", {}), "cluster: is missing"),
            (lambda: RecordedSession.create(journal, "x", {**DOCUMENT, "gpus": 3}), "'gpus' is no field"),
            (lambda: RecordedSession.open(journal, "y"), "there is no session 'y'"),
        ):
            with pytest.raises(InputError, match=told):
                call()
        assert whole(own) == before
        assert whole(RecordedSession.open(journal, "site")) == before
        assert journal.sessions() == ["site"]


def test_what_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        own = RecordedSession.create(journal, "site", DOCUMENT)
        before = whole(own)
        # A disk without room for another page.
        journal._file.execute("PRAGMA max_page_count = 1")
        with pytest.raises(InputError, match="cannot be written: database or disk is full"):
            own.upsert([{"name": f"job {i} {random.random()}", "options": "t"} for i in range(5_000)])
        assert whole(own) == before
        journal._file.execute("PRAGMA max_page_count = 1000000")
        own.upsert([{"name": "a", "options": "t"}])
        assert whole(RecordedSession.open(journal, "site")) == whole(own)


def test_old_rounds_are_forgotten_and_the_last_decision_is_not(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db", keep=3) as journal:
        own = RecordedSession.create(journal, "site", DOCUMENT)
        own.upsert([{"name": "a", "options": "t"}])
        for _ in range(5):
            made, _ = own.solve()
        own.apply(made.number)
        assert [one.number for one in journal.rounds("site")] == [3, 4, 5]
        assert journal.rounds("site")[-1].applied_s is not None
        again = RecordedSession.open(journal, "site")
        again.apply(4)
        assert again.session.to_instance().jobs[0].current is not None
        journal.forget("site")
        assert (journal.sessions(), journal.rounds("site")) == ([], [])


def test_actions_are_begun_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        own = RecordedSession.create(journal, "site", DOCUMENT)
        assert own.begin_action("start:17", {"node": "n1"})
        assert not own.begin_action("start:17", {"node": "n2"})
        assert [one.document for one in own.actions(unfinished=True)] == [{"node": "n1"}]
        assert own.end_action("start:17", {"exit": 0})
        assert not own.end_action("start:17", {"exit": 1})
        assert own.actions(unfinished=True) == []
        assert [one.outcome for one in own.actions()] == [{"exit": 0}]


def test_threads_change_one_session(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        own = RecordedSession.create(journal, "site", DOCUMENT)

        def change(number: int) -> None:
            for turn in range(10):
                own.upsert([{"name": f"j{number}-{turn}", "options": "t"}])
            made, _ = own.solve()
            own.apply(made.number)

        threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(own.session) == 40
        assert [one.number for one in journal.rounds("site")] == [1, 2, 3, 4]
        assert whole(RecordedSession.open(journal, "site")) == whole(own)


def test_one_process_writes_and_others_look(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with Journal(path) as journal:
        RecordedSession.create(journal, "site", DOCUMENT)
        with pytest.raises(InputError, match="is written by another process"):
            Journal(path)
        with Journal(path, read_only=True) as other:
            assert other.sessions() == ["site"]
    with Journal(path) as journal:
        assert journal.sessions() == ["site"]


def test_what_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    for name, content in (("text", b"hello" * 1000), ("short", b"x")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="is no journal"):
            Journal(tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE about (format TEXT)")
    other.close()
    with pytest.raises(InputError, match="is no journal"):
        Journal(tmp_path / "other")
    with pytest.raises(InputError, match="there is no such file"):
        Journal(tmp_path / "none", read_only=True)
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path / "no" / "folder")


WRITER = """
import json, sys
from wattsched.serve.journal import Journal
from wattsched.serve.recorded import RecordedSession
journal = Journal(sys.argv[1])
if "site" not in journal.sessions():
    RecordedSession.create(journal, "site", json.loads(sys.argv[2]))
own = RecordedSession.open(journal, "site")
print("open", flush=True)
turn = len(own.session)
while True:
    own.upsert([{"name": f"j{turn}", "options": "t"}])
    print("job", turn, flush=True)
    if turn % 5 == 4:
        made, decision = own.solve()
        print("round", made.number, flush=True)
        own.apply(made.number)
        print("applied", made.number, flush=True)
    turn += 1
"""


def test_who_is_killed_goes_on_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    path, rng = tmp_path / "j.db", random.Random(5)
    for _ in range(int(os.environ.get("WATTSCHED_KILLS", "5"))):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), json.dumps(DOCUMENT)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        said = [child.stdout.readline().split()]
        time.sleep(rng.uniform(0.0, 0.4))
        child.send_signal(signal.SIGKILL)
        said += [
            words.split() for words in child.communicate()[0].splitlines() if words.endswith("\n") or words
        ]
        jobs = [int(words[1]) for words in said if words[0] == "job" and len(words) == 2]
        applied = [int(words[1]) for words in said if words[0] == "applied" and len(words) == 2]
        with Journal(path) as journal:
            own = RecordedSession.open(journal, "site")
            assert all(f"j{number}" in own.session for number in jobs)
            # Nothing but the job that was being written may be there besides.
            assert len(own.session) - max(jobs, default=len(own.session) - 1) in (1, 2)
            rounds = {one.number: one.applied_s for one in journal.rounds("site")}
            assert all(rounds[number] is not None for number in applied)
            if applied:
                held = own.session.to_instance().by_column().running
                assert len(held) == len(own.decision(max(n for n, at in rounds.items() if at)).assignments)


def test_numbers_of_numpy_are_taken_and_no_others(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        own = RecordedSession.create(journal, "site", DOCUMENT)
        own.upsert([{"name": "a", "options": "t", "weight": np.float64(2.0)}])
        own.update(power_w=np.float64(3e3))
        assert whole(RecordedSession.open(journal, "site")) == whole(own)
        with pytest.raises(InputError, match="weight"):
            own.upsert([{"name": "a", "weight": float("inf")}])
