"""On a real Slurm: actions that may be done twice, settings that the prolog sees, and everything at once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adapters.waiting import wait_for

from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.reading import Site, read
from wattsched.adapters.slurm.snapshot import SlurmError, take
from wattsched.serve.journal import Journal

CLOCKED = {
    "gpus": [2, 2],
    "pool": ["A100", "A100"],
    "rate": [1.0, 0.9],
    "power_w": [700.0, 400.0],
    "frequency_mhz": [1410, 1005],
}


look = partial(take, timeout_s=3.0)


def now() -> Site:
    return read(look(time.time()))


@pytest.fixture
def rounds(cluster: Any, folder: Path) -> Iterator[Rounds]:
    """Rounds that act, with a journal."""
    policy = Policy(Ours(), SiteOptions(), apply=True, start_s=5.0)
    with Journal(folder / "journal") as journal:
        yield Rounds(policy, Budget(4_000.0), journal, lambda of: Actions(of, folder / "settings"), look)


def submit(cluster: Any, script: str, said: dict[str, Any], *options: str) -> int:
    comment = json.dumps({"wattsched": said})
    number: int = cluster.submit(
        script, "--hold", "--requeue", "--gres=gpu:1", "--comment", comment, *options
    )
    return number


def test_jobs_are_released_with_their_clock_stopped_for_the_cap_and_go_on(
    cluster: Any, rounds: Rounds, folder: Path
) -> None:
    # Two nodes draw 2 * 200 + 16 * 50 W when they idle; a job draws 600 W or 300 W more.
    first, second = (submit(cluster, "sleep 60", {"options": CLOCKED}) for _ in range(2))
    theirs = cluster.submit("sleep 60", "--hold", "--gres=gpu:1")
    report = rounds.round()
    assert set(report.started) == {first, second}
    wait_for(lambda: all(now().jobs[number].running for number in (first, second)))
    assert now().jobs[theirs].held
    assert "WATTSCHED_FREQUENCY_MHZ=1410" in wait_for(
        lambda: (folder / "seen").exists() and (folder / "seen").read_text()
    )
    # The same again changes nothing.
    again = rounds.round()
    assert (again.started, again.stopped) == ({}, {})
    assert again.power_w == 1_200 + 2 * 600
    rounds.budget.power_w = 1_900.0
    cut = rounds.round()
    assert len(cut.stopped) == 1
    assert cut.power_w <= 1_900
    rounds.budget.power_w = 1_000.0
    none = rounds.round()
    assert (none.reason, none.power_w) == ("infeasible", 1_200)
    assert "nothing more can be done" in " ".join(none.notes)
    rounds.budget.power_w = None
    assert set(wait_for(lambda: rounds.round().started)) == {first, second}
    assert all(now().jobs[number].restarts >= 1 for number in (first, second))


def test_an_account_keeps_to_its_quota(cluster: Any, rounds: Rounds) -> None:
    lab = [submit(cluster, "sleep 60", {}, "--account=lab") for _ in range(3)]
    other = submit(cluster, "sleep 60", {}, "--account=other")
    options = SiteOptions.model_validate({"tenants": {"lab": {"gpus": 2}}})
    rounds.policy = replace(rounds.policy, options=options)
    started = rounds.round().started
    assert other in started
    assert len(started.keys() & set(lab)) == 2
    wait_for(lambda: all(now().jobs[number].running for number in started))
    assert rounds.round().started == {}


def test_a_job_that_has_ended_is_not_run_again(cluster: Any, rounds: Rounds, folder: Path) -> None:
    number = submit(cluster, f"echo ran >> {folder}/ran", {})
    rounds.round()
    wait_for(lambda: "COMPLETED" in now().jobs[number].states)
    ended = now().jobs[number]
    assert rounds._actions is not None
    rounds._actions.stop(ended, "test")
    rounds.round()
    time.sleep(1.0)
    assert now().jobs[number].restarts == ended.restarts
    assert (folder / "ran").read_text() == "ran\n"


def test_another_process_of_ours_goes_on_where_one_was_killed(
    cluster: Any, rounds: Rounds, folder: Path
) -> None:
    number = submit(cluster, "sleep 60", {"options": CLOCKED})
    rounds.round()
    session = rounds._session
    assert session is not None
    assert session.begin_action("cut off", {"action": "start"})
    rounds.journal.close()
    with Journal(folder / "journal") as journal:
        other = Rounds(rounds.policy, rounds.budget, journal, lambda of: Actions(of), look)
        report = wait_for(lambda: now().jobs[number].running) and other.round()
        assert (report.started, report.stopped, report.running) == ({}, {}, 1)
        assert "1 actions were cut off" in " ".join(report.notes)
        assert report.number == 2


def test_a_release_that_leads_nowhere_is_taken_back(cluster: Any, rounds: Rounds) -> None:
    number = submit(cluster, "sleep 60", {})
    # All CPUs of both nodes: Slurm cannot start what we release.
    others = [cluster.submit("sleep 60", "--ntasks=16", f"--nodelist={name}") for name in cluster.names]
    wait_for(lambda: all(now().jobs[other].running for other in others))
    assert number in rounds.round().started
    held = wait_for(lambda: rounds.round().held_again)
    assert "has not started" in held[number]


def test_slurm_that_does_not_answer_is_no_empty_cluster(cluster: Any, rounds: Rounds) -> None:
    number = submit(cluster, "sleep 60", {})
    rounds.round()
    cluster.stop_controller()
    with pytest.raises(SlurmError):
        rounds.round()
    cluster.start_controller()

    def answered() -> Any:
        try:
            return rounds.round()
        except SlurmError:
            return None

    assert number not in wait_for(answered).stopped
    wait_for(lambda: rounds.round() and now().jobs[number].running)


def test_everything_at_once(emulated: ModuleType, load_script: Any, folder: Path) -> None:
    found = load_script("slurm").run(folder, nodes=4, jobs=20, seed=3, limit_s=90.0, seconds=(1, 4))
    exact = ("lost", "revived", "above the cap", "started on drained nodes", "exit code")
    assert {name: found[name] for name in exact} == dict.fromkeys(exact, 0)
    # Jobs of seconds, of which slurmctld may hear too late that they are done (docs/slurm.md, limits).
    assert found["run twice"] <= 1
    assert found["most, of the cap"] <= 1.0
    assert found["below an unannounced cut after, s"] < 20


def test_a_signal_ends_it(cluster: Any, load_script: Any, folder: Path) -> None:
    trial = load_script("slurm").Trial(cluster, 0)
    (folder / "options.json").write_text("{}")
    trial.scheduler.set_cap(5_000.0)
    trial.start_scheduler()
    wait_for(lambda: (folder / "rounds.jsonl").read_text())
    assert trial.scheduler.end(signal.SIGINT) == 0
