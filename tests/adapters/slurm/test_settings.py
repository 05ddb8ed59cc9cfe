"""Clocks of running jobs are lowered before jobs stop, by the shipped agent on a small model of Slurm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from tests.adapters.histories import EACH_W, NODES
from tests.adapters.slurm.emulator import SlurmWorld, patched
from tests.adapters.test_closed_loop import Measured
from wattsched.adapters.correction import Correction
from wattsched.adapters.readings import Reports
from wattsched.adapters.slurm.loop import Rounds
from wattsched.adapters.slurm.options import SiteOptions

LOW_W = 200.0
"""Watts of a GPU with the lower clock beyond an idle one."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmWorld]:
    """Three nodes, each with an agent that answers at once, and a feed with room for all."""
    monkeypatch.setattr("wattsched.adapters.slurm.loop._CONFIRM_S", 1.0)
    monkeypatch.setattr(Random, "choice", lambda _, options: options[-1])
    made = patched(monkeypatch)(Random(0))
    made.fail_safe_w, made.dead, made.slow, made.refusing, made.suspends = None, set(), 0.0, 0.0, True
    made.act()
    yield made
    made.close()


def running(world: SlurmWorld, *sizes: int, **fields: Any) -> list[int]:
    """Jobs that run with the higher clock, as their agents report."""
    site = {"options": {"options": f"of{sizes[0]}"}} | fields.pop("site", {})
    options = world.rounds.policy.options.model_dump(exclude_unset=True) | site.pop("file", {})
    options["jobs"] = {"*": {**site.pop("options"), **site}}
    object.__setattr__(world.rounds.policy, "options", SiteOptions.model_validate(options))
    for gpus in sizes:
        world._add(gpus, json.dumps({"wattsched": {"options": f"of{gpus}"}}), **fields)
        world.jobs[world.made].seconds = 1e9
    found = [*range(world.made - len(sizes) + 1, world.made + 1)]
    assert sorted(world.rounds.round().started) == found
    world.pass_time(5)
    assert world.rounds.round().changed == {}
    world.act()
    return found


def clocks(world: SlurmWorld, number: int) -> set[int]:
    """Clocks of the GPUs of a job."""
    return {world.clock_mhz[node, gpu] for node, gpus in world.jobs[number].held.items() for gpu in gpus}


def cut(world: SlurmWorld, gpus: float, each_w: float = EACH_W) -> Any:
    """The round after a cut that leaves watts for some GPUs."""
    world.write_cap(world.idle_w + gpus * each_w)
    report = world.rounds.round()
    if not report.alarms:
        assert world.drawn_w()[""] <= world.idle_w + gpus * each_w + 1e-6
    return report


def test_a_cut_without_notice_lowers_clocks_and_nobody_is_stopped(world: SlurmWorld) -> None:
    first, second = running(world, 8, 4)
    report = cut(world, 12, LOW_W)
    assert (report.stopped, sorted(report.changed)) == ({}, [first, second])
    assert clocks(world, first) == clocks(world, second) == {1005}
    assert report.power_w == world.idle_w + 12 * LOW_W
    # It is known for sure now, and counts whatever becomes of the agents.
    world.rounds.round()
    assert "lowering" not in world.jobs[first].launch
    # With the watts the clocks come back.
    world.write_cap(world.idle_w + 24 * EACH_W)
    assert sorted(world.rounds.round().changed) == [first, second]
    world.act()
    assert clocks(world, first) == {1410}
    assert world.jobs[first].restarts == 0


def test_only_as_many_clocks_are_lowered_as_have_to_be(world: SlurmWorld) -> None:
    first, second = running(world, 8, 4)
    report = cut(world, 12 * EACH_W - 100, 1.0)
    world.act()
    # Both would lose the same part of their speed: which one it is hangs on last digits.
    assert report.stopped == {}
    assert sorted([*clocks(world, first), *clocks(world, second)]) == [1005, 1410]


def test_what_lowered_clocks_do_not_save_is_stopped(world: SlurmWorld) -> None:
    jobs = running(world, 8, 4)
    report = cut(world, 8, LOW_W)
    assert len(report.stopped) == 1
    (kept,) = {*jobs} - {*report.stopped}
    assert clocks(world, kept) == {1005}


@pytest.mark.parametrize("why", ["long dead", "just dead", "refuse"])
def test_agents_that_do_not_lower_clocks_save_no_watts(world: SlurmWorld, why: str) -> None:
    (job,) = running(world, 8)
    world.dead = set() if why == "refuse" else {*NODES}
    world.refusing = 1.0
    world.pass_time(60 if why == "long dead" else 5)
    report = cut(world, 8, LOW_W)
    assert list(report.stopped) == [job]
    # Nobody asks what has not reported for long.
    assert list(report.changed) == ([] if why == "long dead" else [job])
    if why == "long dead":
        assert "the agent of 'n1', 'n2', 'n3' has written no report for 30 s" in report.notes


def test_a_job_whose_agent_cannot_set_clocks_is_told_of_and_counts_as_before(world: SlurmWorld) -> None:
    (job,) = running(world, 8, requeue=False)
    world.refusing = 1.0
    report = cut(world, 8, LOW_W)
    assert f"job {job}: the agent of n1 could not change its settings: is busy" in report.notes
    assert (report.power_w, report.stopped) == (world.idle_w + 8 * EACH_W, {})
    assert "nothing more can be done" in report.alarms[0]
    # Once it can the job draws less.
    world.refusing = 0.0
    world.pass_time(5)
    assert world.rounds.round().power_w == world.idle_w + 8 * LOW_W


def test_another_process_of_ours_goes_on_with_a_cut(world: SlurmWorld) -> None:
    (job,) = running(world, 8)
    world.write_cap(world.idle_w + 8 * LOW_W)
    world.kill_after = 1  # the admin comment is written, and no agent has looked
    assert world.round() is None
    assert world.jobs[job].launch["before_w"] == 8 * 400.0
    assert world.jobs[job].launch["frequency_mhz"] == 1005
    assert clocks(world, job) == {1410}
    report = world.rounds.round()
    assert (report.stopped, clocks(world, job)) == ({}, {1005})
    assert report.power_w == world.idle_w + 8 * LOW_W
    assert "lowering" not in world.jobs[job].launch


def test_agents_do_not_wait_for_slurm_to_lower_clocks(world: SlurmWorld) -> None:
    first, second = running(world, 8, 4)
    world.write_cap(world.idle_w + 12 * LOW_W)
    world.kill_after = 0  # Slurm has noted nothing
    assert world.round() is None
    world.act()
    assert clocks(world, first) == clocks(world, second) == {1005}
    # Of what Slurm does not know nothing counts.
    assert world.rounds.look().power_w == world.idle_w + 12 * EACH_W
    report = world.rounds.round()
    assert (report.stopped, sorted(report.changed)) == ({}, [first, second])
    assert report.power_w == world.idle_w + 12 * LOW_W


def test_clocks_are_raised_after_slurm_has_noted_it(world: SlurmWorld) -> None:
    (job,) = running(world, 8)
    cut(world, 8, LOW_W)
    world.rounds.round()
    world.write_cap(world.idle_w + 8 * EACH_W)
    world.kill_after = 0
    assert world.round() is None
    world.act()
    assert clocks(world, job) == {1005}
    assert list(world.rounds.round().changed) == [job]
    world.act()
    assert clocks(world, job) == {1410}


def test_the_watts_before_a_change_count_until_agents_report_it(world: SlurmWorld) -> None:
    (job,) = running(world, 8)
    load = world.rounds.look()
    record = world.rounds._records[str(job)]
    world.dead = {*NODES}
    (one,) = world.rounds._adjustable(load)
    assert record["options"]["frequency_mhz"] == [1005, 1410]
    least = min(one.rows, key=lambda row: row.power_w)
    change = load.ours[job].changed(least, one.now.rate)
    assert world.rounds.actions.change({job: (load.ours[job], change.launch)}) == {job: ""}
    # Twice is as once.
    assert world.rounds.actions.change({job: (load.ours[job], change.launch)}) == {job: ""}
    assert world.rounds.look().power_w == world.idle_w + 8 * EACH_W
    world.dead = set()
    assert world.rounds.look().power_w == world.idle_w + 8 * LOW_W


def test_a_job_that_is_not_to_be_stopped_is_lowered_by_a_decision(world: SlurmWorld) -> None:
    (job,) = running(world, 8, requeue=False)
    # The cut is announced: the round before decides on it.
    world.write_cap(world.idle_w + 8 * LOW_W, after_s=50)
    report = world.rounds.round()
    assert (report.stopped, list(report.changed)) == ({}, [job])
    assert clocks(world, job) == {1005}
    assert not report.alarms


def test_a_job_is_not_lowered_below_its_least_progress(world: SlurmWorld) -> None:
    # With the lower clock it has .8 of its rate.
    (job,) = running(world, 8, site={"options": {"least_progress": 0.9}})
    report = cut(world, 8, LOW_W)
    assert (list(report.stopped), report.changed) == ([job], {})


def test_shadow_mode_tells_what_would_change(world: SlurmWorld) -> None:
    (job,) = running(world, 8)
    world.write_cap(world.idle_w + 8 * LOW_W)
    policy = replace(world.rounds.policy, apply=False)
    shadow = Rounds(policy, world.rounds.budget, world.journal, world.rounds._snapshot)
    report = shadow.round()
    assert (report.stopped, report.planned_w) == ({}, world.idle_w + 8 * LOW_W)
    assert report.changed == {job: "GPUs 8 of n1 at 1005 MHz, 2,000 W"}
    assert clocks(world, job) == {1410}


@pytest.mark.parametrize(("lasting_s", "starts"), [(0.0, True), (150.0, True), (300.0, False)])
def test_nothing_starts_that_an_announced_cut_would_stop_soon(
    world: SlurmWorld, lasting_s: float, starts: bool
) -> None:
    (job,) = running(world, 8)
    world.rounds.budget.lasting_s = lasting_s
    # Even with lower clocks the cut in 200 s leaves watts for four more GPUs alone.
    world.write_cap(world.idle_w + 12 * LOW_W, after_s=200)
    for gpus in (8, 4, 4):
        world._add(gpus, json.dumps({"wattsched": {"options": f"of{gpus}"}}))
    large, *small = range(job + 1, world.made + 1)
    report = world.rounds.round()
    assert report.stopped == {}
    assert ({large, *small} == report.started.keys()) == starts
    if not starts:
        assert len(report.started.keys() & {*small}) == 1
        (later,) = {*small} - report.started.keys()
        assert "an announced cut would stop it soon" in report.waiting[large]
        assert "an announced cut would stop it soon" in report.postponed[later]


def test_a_job_that_slurm_starts_again_by_itself_has_the_clock_of_its_release(world: SlurmWorld) -> None:
    (job,) = running(world, 8)
    assert cut(world, 8, LOW_W).stopped == {}
    world.rounds.round()
    # A node fails and is back before we look; Slurm has requeued and started its jobs.
    world.dead = {*NODES}
    world.fail_node(next(iter(world.jobs[job].held)))
    world.mend_nodes()
    world.advance()
    assert (world.jobs[job].state, clocks(world, job)) == ("RUNNING", {1410})
    assert world.rounds.look().power_w == world.idle_w + 8 * EACH_W
    world.dead = set()
    report = world.rounds.round()
    assert (report.stopped, clocks(world, job)) == ({}, {1005})
    assert world.rounds.look().power_w == world.idle_w + 8 * LOW_W


def test_readings_above_the_cap_lower_all_settings_before_anybody_is_stopped(world: SlurmWorld) -> None:
    first, second = running(world, 8, 4)
    world.write_cap(world.idle_w + 15 * EACH_W)
    world.rounds.correction = measured = Measured(world, 1.0)
    for _ in range(4):
        world.pass_time(30)
        assert world.rounds.round().changed == {}
    measured.true = 1.3
    world.pass_time(30)
    report = world.rounds.round()
    assert "settings go to their lowest" in report.alarms[0]
    assert (sorted(report.changed), report.stopped) == ([first, second], {})
    assert clocks(world, first) == clocks(world, second) == {1005}
    world.pass_time(60)
    report = world.rounds.round()
    assert (report.alarms, report.stopped) == ([], {})


def test_reports_of_agents_correct_their_jobs(world: SlurmWorld) -> None:
    (job,) = running(world, 8)
    world.rounds.correction = correction = Correction(source=Reports(world.folder / "settings"))
    for _ in range(6):
        world.pass_time(30)
        world.rounds.round()
    assert correction.factor(str(job)) == pytest.approx(1.0, abs=0.01)
    assert correction.variance(str(job)) < 0.2 * correction.variance("another")
    world.rounds.correction = Correction(source=Reports(world.folder / "settings"))
    launch = world.rounds.look().ours[job].launch
    assert launch.corrected(1.0).power_w == pytest.approx(8 * 400.0)


def test_a_cap_that_rises_while_jobs_start_raises_no_alarm(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world, 8)
    job = world.made + 1
    world._add(8, json.dumps({"wattsched": {"options": "of8"}}))
    world.rounds.correction = Correction(0.1)
    margin_w = world.rounds.look().margin_w()[""]
    # Both fit with the margin of one of them, and later with that of both.
    world.write_cap(world.idle_w + 16 * EACH_W + 1.2 * margin_w)
    decided = world.rounds.decided

    def rises(*arguments: Any) -> Any:
        plan = decided(*arguments)
        world.write_cap(world.idle_w + 24 * EACH_W)
        return plan

    monkeypatch.setattr(world.rounds, "decided", rises)
    report = world.rounds.round()
    assert (list(report.started), report.alarms) == ([job], [])


@pytest.mark.parametrize("announced", [True, False])
def test_jobs_start_while_a_limit_falls_as_it_was_announced(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    (job,) = running(world, 8)
    world._add(8, json.dumps({"wattsched": {"options": "of8"}}))
    ramp = {"from": datetime.fromtimestamp(world.true_s - 10, UTC).isoformat(), "ramp_w_per_s": 100.0}
    signal: dict[str, Any] = {"format": "wattsched-signal/1", "baseline_w": world.idle_w + 40 * EACH_W}
    signal["limits"] = [ramp | {"power_w": world.idle_w + 16 * EACH_W}] if announced else []
    world.file.write_text(json.dumps(signal))
    decided = world.rounds.decided

    def falls(*arguments: Any) -> Any:
        plan = decided(*arguments)
        world.true_s += 2
        limit = ramp | {"power_w": world.idle_w + 12 * EACH_W, "ramp_w_per_s": 1e9}
        signal["limits"] = signal["limits"] or [limit]
        world.file.write_text(json.dumps(signal))
        return plan

    monkeypatch.setattr(world.rounds, "decided", falls)
    report = world.rounds.round()
    assert (list(report.started), report.stopped) == ([job + 1] if announced else [], {})
    assert any("the cap was cut" in note for note in report.notes) == (not announced)


def test_nobody_waits_for_settings_of_a_job_whose_gpus_slurm_does_not_tell(
    world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, untold = running(world, 8, 4)
    row = world._row

    def without(job: Any) -> dict[str, Any]:
        return row(job) | ({"gres_detail": ["gpu:A100:0(IDX:)"]} if job.id == untold else {})

    monkeypatch.setattr(world, "_row", without)
    report = cut(world, 12, LOW_W)
    assert (list(report.stopped), list(report.changed)) == ([untold], [told])
