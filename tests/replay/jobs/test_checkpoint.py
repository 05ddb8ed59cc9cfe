"""Replays that go on from a checkpoint end as if nobody had interrupted them, under every policy."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.checkpoint import Checkpoints, load, save
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import names, policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace, poisson_jobs, trace_of_durations

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


def same(one: Outcome, other: Outcome) -> bool:
    """Whether outcomes agree to the last bit, but for the wall clock."""
    records = [
        np.array_equal(a, b) for a, b in zip(vars(one.jobs).values(), vars(other.jobs).values(), strict=True)
    ]
    rounds = [
        np.array_equal(np.array(a), np.array(b), equal_nan=True)
        for (name, a), b in zip(vars(one.rounds).items(), vars(other.rounds).values(), strict=True)
        if name != "decision_s"
    ]
    meters = [
        getattr(one.meter, field.name) == getattr(other.meter, field.name)
        for field in fields(one.meter)
        if field.name != "carbon"
    ]
    ledgers = [
        getattr(one.ledger, name, None) == getattr(other.ledger, name, None)
        for name in ("begin_s", "spent", "short")
    ]
    return all([*records, *rounds, *meters, *ledgers])


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
            save(file, run, run)
            run = load(file, Replay, replay(name, trace()))
    assert events > 30
    assert same(whole, run.outcome())
    save(file, run.outcome(), run)
    assert same(whole, load(file, Outcome, replay(name, trace())))


@pytest.mark.parametrize("name", ["fifo", "powerflow", "sizing"])
def test_budgets_go_on(name: str, tmp_path: Path) -> None:
    budget = Budget.of_energy(2.5e7, 7200.0)
    whole = ended(replay(name, trace(n=6), budget))
    run = replay(name, trace(n=6), budget)
    for _ in range(20):
        run.step()
    save(tmp_path / "file", run, run)
    assert same(whole, ended(load(tmp_path / "file", Replay, replay(name, trace(n=6), budget))))


def test_checkpoints_are_written_when_due(tmp_path: Path) -> None:
    run, file = replay("fifo", trace()), tmp_path / "file"
    run.step()
    Checkpoints(file, 1000.0).keep(run)
    assert not file.exists()
    Checkpoints(file, 0.0).keep(run)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def checked(head: bytes, body: bytes) -> bytes:
    """A file whose checksum is right."""
    sha256 = hashlib.sha256(body).hexdigest()
    return json.dumps(json.loads(head) | {"sha256": sha256}).encode() + b"\n" + body


def test_files_that_are_refused(tmp_path: Path) -> None:
    run, file = replay("fifo", trace()), tmp_path / "file"
    save(file, run, run)
    head, _, body = file.read_bytes().partition(b"\n")
    with pytest.raises(ValueError, match="is of another trace: "):
        load(file, Replay, replay("fifo", trace(seed=1)))
    with pytest.raises(ValueError, match="holds no Outcome"):
        load(file, Outcome, run)
    for content, fault in (
        (b"", "is not a checkpoint of the format 'wattsched-checkpoint/4'"),
        (b"[]\n" + body, "is not a checkpoint"),
        (b"[" * 100_000 + b"\n" + body, "is not a checkpoint"),
        (checked(head, b""), "was written by another program"),
        (json.dumps(json.loads(head) | {"format": "wattsched-checkpoint/0"}).encode(), "is not a checkpoint"),
        (
            json.dumps(json.loads(head) | {"version": "0.0"}).encode() + b"\n",
            "is of another version: 0.0, not",
        ),
        (head + b"\n" + body[:-1], "is damaged; delete it to begin that replay again"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=fault):
            load(file, Replay, run)
