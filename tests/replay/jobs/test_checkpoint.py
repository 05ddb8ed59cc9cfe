"""Replays that go on from a checkpoint end as if nobody had interrupted them, under every policy."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import random
import struct
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.strategies.replay import poisson_jobs
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.budget import PACINGS, Budget, Pacing
from wattsched.replay.jobs.checkpoint import load, save
from wattsched.replay.jobs.outcome import RECORDS, Outcome, csv_text, summary
from wattsched.replay.jobs.policies import names, policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace, trace_of_durations
from wattsched.replaying.replays import Journal, _kept

CARBON = Carbon(np.array([0.0, 3000.0, 9000.0]), np.array([200.0, 50.0, 400.0]))


def trace(seed: int = 0, n: int = 16) -> Trace:
    return trace_of_durations(homogeneous_cluster(2, 4, "V100"), poisson_jobs(n, seed), seed=seed)


def replay(name: str, jobs: Trace, budget: Budget | None = None) -> Replay:
    context = PolicyContext(jobs, Restarts(5.0, 20.0), 60.0, budget=budget)
    return Replay(
        jobs, policy_of(name, context), name=name, round_s=60.0, carbon=CARBON, sleep=Sleep(30.0, 5.0, 7.0),
        budget=budget,
    )  # fmt: skip


def ended(run: Replay) -> Outcome:
    while run.step():
        pass
    return run.outcome()


def loaded(file: Path, anew: Replay) -> Replay:
    load(file, anew)
    return anew


def same(one: Outcome, other: Outcome) -> bool:
    """Whether outcomes agree to the last bit, but for the wall clock."""

    def recorded(of: Outcome) -> list[Any]:
        rounds = {name: values for name, values in vars(of.rounds).items() if name != "decision_s"}
        meter = {name: value for name, value in vars(of.meter).items() if name != "carbon"}
        ledger = of.ledger and (of.ledger.begin_s, of.ledger.spent, of.ledger.short)
        return [vars(of.jobs), rounds, meter, ledger]

    np.testing.assert_equal(recorded(one), recorded(other))
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names(), "fifo+zeus", "elastic+zeus"])
def test_a_replay_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    """Interrupted every fifteen events, each time with a trace and a policy made anew."""
    whole = ended(replay(name, trace()))
    file = tmp_path / "replay.running"
    run = replay(name, trace())
    events = 0
    while run.step():
        events += 1
        if events % 15 == 0:
            save(file, run)
            run = loaded(file, replay(name, trace()))
    assert events > 30
    assert same(whole, run.outcome())
    save(file, run)
    assert same(whole, ended(loaded(file, replay(name, trace()))))


@pytest.mark.parametrize("pacing", PACINGS)
@pytest.mark.parametrize("name", ["fifo", "powerflow", "sizing"])
def test_budgets_go_on(name: str, pacing: Pacing, tmp_path: Path) -> None:
    budget = Budget.of_energy(2.5e7, 7200.0, pacing)
    whole = ended(replay(name, trace(n=6), budget))
    run = replay(name, trace(n=6), budget)
    for _ in range(20):
        run.step()
    save(tmp_path / "file", run)
    assert same(whole, ended(loaded(tmp_path / "file", replay(name, trace(n=6), budget))))


@pytest.mark.parametrize(("every_s", "written"), [(1000.0, False), (0.0, True)])
def test_checkpoints_are_written_when_due(every_s: float, written: bool, tmp_path: Path) -> None:
    journal, seen = Journal(tmp_path, every_s), set[str]()
    journal.file(replay("fifo", trace()), 0, "running").parent.mkdir()
    _kept(
        replay("fifo", trace()), 0, journal, lambda *_: seen.update(p.name for p in tmp_path.rglob("*-0.*"))
    )
    assert seen == ({"fifo-0.running"} if written else set())
    assert [path.name for path in tmp_path.rglob("*-0.*")] == ["fifo-0.done"]


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ({1, 2}, "is a set;"),
        (np.zeros(2, dtype=np.float32), "is an array of float32;"),
        ({(0, 1): 2}, "is a dictionary with keys that are neither whole numbers nor texts;"),
    ],
)
def test_what_a_policy_must_not_hold_is_named(held: Any, found: str, tmp_path: Path) -> None:
    run, file = replay("fifo", trace()), tmp_path / "file"
    vars(run.policy)["seen"] = held
    with pytest.raises(ValueError, match=rf"^policy 'fifo': replay\.policy\.seen {found} a checkpoint holds"):
        save(file, run)
    assert not file.exists()


def signed(head: bytes, state: object) -> bytes:
    """A file whose checksum is right, whatever is in it."""
    body = json.dumps(state).encode()
    return json.dumps(json.loads(head) | {"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n" + body


def test_files_that_are_refused(tmp_path: Path) -> None:
    run, file = replay("fifo", trace()), tmp_path / "file"
    save(file, run)
    head, _, body = file.read_bytes().partition(b"\n")
    with pytest.raises(ValueError, match="is of another trace: "):
        load(file, replay("fifo", trace(seed=1)))
    with pytest.raises(ValueError, match=r"is not of this replay: its 'replay\.policy' does not fit"):
        load(file, replay("gavel-max-min", trace()))
    old = json.dumps(json.loads(head) | {"format": "wattsched-checkpoint/5"}).encode()
    for content, fault in (
        (b"", "is not a checkpoint of the format 'wattsched-checkpoint/12'"),
        (b"[]\n" + body, "is not a checkpoint"),
        (b"[" * 100_000 + b"\n" + body, "is not a checkpoint"),
        (
            old + b"\n" + pickle.dumps(Bomb()),
            "'wattsched-checkpoint/5', which is not read any more",
        ),
        (signed(head, []), "is not of this replay: its 'replay' does not fit"),
        (head.replace(b"wattsched-checkpoint/12", b"other"), "is not a checkpoint"),
        (
            json.dumps(json.loads(head) | {"version": "0.0"}).encode() + b"\n",
            "is of another version: '0.0', not",
        ),
        (head + b"\n" + body[:-1], "is damaged; delete it to begin that replay again"),
        (head + b"\n" + pickle.dumps(Bomb()), "is damaged"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=fault):
            load(file, run)


class Bomb:
    """What a pickle could do."""

    def __reduce__(self) -> tuple[object, ...]:
        return pytest.fail, ("something in a checkpoint was executed",)


ODD: tuple[Any, ...] = (
    None, True, -1, 10**30, 1e308, "x", [], {}, [1], {"float": "nan"}, {"array": ["f", [10**9], ""]},
    {"array": ["O", [1], "AAAAAAAAAAA="]},
    {"array": ["f", [-1], "AAAAAAAAAAA="]}, {"array": ["b", [1], "Ag=="]},
    {"object": {"__class__": "x"}}, {"object": {}}, {"list": [None]}, {"os": "x"},
    {"random": [[1], None]}, {"block": [1]}, {"block": [-5, 3, 9]}, {"list": {"array": ["i", [0], ""]}},
    {"dict": [[], [1]]},
)  # fmt: skip


def parts(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a state: what it is in, and its key."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [pair for key, part in inside for pair in [(value, key), *parts(part)]]


@pytest.mark.parametrize("name", ["fifo", "gandiva", "elastic-makespan", "sia", "gavel-max-min"])
def test_hostile_files_are_refused_or_harmless(name: str, tmp_path: Path) -> None:
    """Whatever is forged, with a right checksum: a sentence, or an outcome of sound numbers."""
    jobs, journal = trace(n=6), Journal(tmp_path)
    run = replay(name, jobs)
    for _ in range(12):
        run.step()
    file = journal.file(run, 0, "running")
    file.parent.mkdir()
    save(file, run)
    head, state = file.read_bytes().split(b"\n", 1)
    draw, told = random.Random(name), list[str]()
    for _ in range(60):
        forged = json.loads(state)
        for _ in range(draw.choice((1, 1, 3))):
            inside, key = draw.choice(parts(forged))
            inside[key] = copy.deepcopy(draw.choice(ODD))
        arrays = [
            inside["array"] for inside, key in parts(forged) if key == "array" and inside["array"] is not None
        ]
        if draw.random() < 0.3 and arrays:
            array = draw.choice(arrays)
            number = draw.choice((draw.randbytes(8), struct.pack("q", -7), struct.pack("d", np.nan)))
            with suppress(TypeError, LookupError, ValueError):
                content = bytearray(b64decode(array[2]))
                at = draw.randrange(0, len(content), 8)
                content[at : at + 8] = number
                array[2] = b64encode(content).decode()
        file.write_bytes(signed(head, forged))
        file.with_suffix(".done").unlink(missing_ok=True)
        try:
            outcome = _kept(replay(name, jobs), 0, journal, lambda *_: None)
        except ValueError as error:
            told.append(str(error))
            continue
        json.dumps(summary(outcome).as_dict(), allow_nan=False)
        for table in RECORDS.values():
            csv_text(table(outcome))
    assert len(told) > 10
    for one in told:
        assert one.startswith(f"{file}: ")
        assert one.endswith("delete it to begin that replay again")
