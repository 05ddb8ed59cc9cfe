"""One process acts on a cluster: reservations of a real Slurm, also those that are left behind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.processes import entered_together, left_behind, wait_for
from wattsched.adapters.slurm.lease import Lease
from wattsched.adapters.slurm.reading import LEASE, read
from wattsched.adapters.slurm.snapshot import SlurmError, take
from wattsched.instances.errors import InputError

pytestmark = pytest.mark.usefixtures("cluster", "short")

once = pytest.mark.parametrize("root", [None], indirect=True, ids=["installed"])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of four seconds."""
    for name, value in {"duration_s": 4.0, "renewed_s": 0.5, "trusted_s": 2.0, "look_s": 0.5}.items():
        monkeypatch.setattr(Lease, name, value)


def made(name: str) -> Lease:
    return Lease(f"{LEASE}{name}", lambda _: None)


@pytest.mark.slow
def test_one_holds_it_until_it_is_given_back_and_it_keeps_no_node(cluster: Any) -> None:
    with made("a") as first:
        first.require()
        with pytest.raises(InputError, match=f"the reservation '{LEASE}a', and renews it"):
            made("b").__enter__()
        first.require()
        assert read(take(time.time())).reservations == []
        # Without a limit, and on all nodes: Slurm keeps it from nothing, either.
        number = cluster.submit("sleep 1", "-N2", "--gres=gpu:8", "--exclusive")
        wait_for(lambda: "JobState=COMPLETED" in cluster.run("scontrol", "show", "job", str(number)))
    with made("b") as second:
        second.require()
    assert LEASE not in cluster.run("scontrol", "show", "reservation")


@pytest.mark.slow
@once
def test_of_many_at_the_same_moment_one_at_most_holds_it() -> None:
    several = [made(f"p{i}") for i in range(4)]
    entered_together(several)
    held = [one for one in several if one._thread is not None]
    assert len(held) == 1
    held[0].__exit__()


@pytest.mark.slow
@once
def test_what_was_left_behind_is_taken_by_itself_at_once_and_by_others_later() -> None:
    first = made("a").__enter__()
    left_behind(first)
    begun = time.monotonic()
    again = made("a").__enter__()
    assert time.monotonic() - begun < 2
    left_behind(again)
    begun = time.monotonic()
    with made("b") as other:
        assert time.monotonic() - begun > 3
        # The first one wakes up: it does not act, and does not take it back.
        for one in (first, again):
            one._renew()
            with pytest.raises(SlurmError, match=f"'{LEASE}b' now: nothing is changed"):
                one.require()
        other.require()


@pytest.mark.slow
@once
def test_while_slurmctld_is_away_nothing_is_changed_and_then_it_goes_on(cluster: Any) -> None:
    with made("a") as held:
        cluster.stop_controller()

        def refused() -> str:
            try:
                held.require()
            except SlurmError as error:
                return str(error)
            return ""

        assert "could not be renewed" in wait_for(refused)
        cluster.start_controller()
        wait_for(lambda: not refused())


@pytest.mark.slow
def test_a_second_process_ends_and_touches_no_job(run: Any, cluster: Any, tmp_path: Path) -> None:
    comment = json.dumps({"wattsched": {}})
    number = cluster.submit("sleep 60", "--hold", "--requeue", "--gres=gpu:1", "--comment", comment)
    options = ("slurm", "--apply", "--once", "--power-w", "9000", "--journal")
    with made("a"):
        done = run(*options, tmp_path / "other")
        assert (done.exit_code, "one process acts on a cluster" in done.stderr) == (2, True)
        assert read(take(time.time())).jobs[number].held
    done = run(*options, tmp_path / "other")
    assert (done.exit_code, f"start {number}" in done.stderr) == (0, True)
