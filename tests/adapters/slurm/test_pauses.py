"""Jobs are paused, or signalled, before they are stopped for a cut: on a small model of Slurm."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.adapters.histories import EACH_W, IDLE_W, NODES
from tests.adapters.slurm.emulator import SlurmWorld
from tests.adapters.slurm.test_settings import LOW_W, clocks, cut, running, world
from wattsched.adapters.correction import Correction
from wattsched.adapters.slurm.load import load_of
from wattsched.adapters.slurm.loop import Report, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions, said_of
from wattsched.instances.errors import InputError, validated

__all__ = ["world"]

PAUSABLE = {"site": {"options": {"pausable": True}}}
PAUSES = {"pausable": True, "paused_power_w": [0, 1e12]}
SIGNALLED = {"site": {"options": {"checkpoint_signal": "USR1", "grace_s": 40}}}


@pytest.mark.parametrize("agents", [True, False])
def test_a_job_is_paused_with_its_gpus_and_goes_on_as_it_was(world: SlurmWorld, agents: bool) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    held = world.jobs[job].held
    if not agents:
        world.dead.update(NODES)
        world.pass_time(60)
    report = cut(world, 8, 100)
    assert (report.paused.keys(), report.stopped, report.power_w) == ({job}, {}, world.idle_w)
    more_w = 8 * (LOW_W if agents else EACH_W)
    assert report.waiting[job] == f"is paused, and goes on when the caps leave {more_w:,.0f} W more"
    assert report.waiting[job].kind == "paused"
    paused = world.rounds.look().ours[job]
    done = paused.launch.work_at(paused.job, 1e12, 1.0)
    world.pass_time(300)
    world.write_cap(world.idle_w + 8 * EACH_W)
    report = world.rounds.round()
    assert (list(report.resumed), report.waiting) == ([job], {})
    assert (world.jobs[job].state, world.jobs[job].held, world.jobs[job].restarts) == ("RUNNING", held, 0)
    # In the pause it has done nothing.
    world.pass_time(10)
    one = world.rounds.look().ours[job]
    assert one.launch.work_at(one.job, one.site.time_s, 1.0) == pytest.approx(done + 10, abs=2)
    assert "paused_s" not in world.jobs[job].launch


def test_nothing_starts_on_the_gpus_or_with_the_watts_that_a_paused_job_waits_for(world: SlurmWorld) -> None:
    first, second = running(world, 8, 4, **PAUSABLE)
    world.dead.update(NODES)  # nobody can lower their clocks
    world.pass_time(60)
    assert cut(world, 1, 100).paused.keys() == {first, second}
    world._add(8, json.dumps({"wattsched": {"options": "of8"}}))
    world._add(1, json.dumps({"wattsched": {"options": "of1"}}))
    # These watts are enough for the larger job and for one GPU.
    world.write_cap(world.idle_w + 9 * EACH_W)
    report = world.rounds.round()
    assert (list(report.resumed), report.started, report.stopped) == ([first], {}, {})
    # Neither may what runs be stopped for what waits.
    report = world.rounds.round()
    assert (report.resumed, report.started, report.stopped) == ({}, {}, {})
    # Without the larger one there is room for it, and for others.
    world.jobs[first].seconds = 0.0
    world.pass_time(1)
    report = world.rounds.round()
    assert (list(report.resumed), len(report.started)) == ([second], 1)


def test_settings_are_lowered_before_jobs_are_paused_and_paused_before_others_stop(world: SlurmWorld) -> None:
    first, second = running(world, 8, 4, **PAUSABLE)
    report = cut(world, 12, LOW_W)
    assert (sorted(report.changed), report.paused, report.stopped) == ([first, second], {}, {})
    report = cut(world, 8, LOW_W)
    assert (len(report.paused), report.stopped) == (1, {})
    (paused,) = report.paused
    # It goes on with the clock that it has.
    world.write_cap(world.idle_w + 12 * LOW_W)
    assert list(world.rounds.round().resumed) == [paused]
    assert clocks(world, paused) == {1005}
    assert world.drawn_w()[""] == world.idle_w + 12 * LOW_W


def test_what_slurm_does_not_suspend_is_stopped(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    world.suspends = False
    report = cut(world, 4, LOW_W)
    assert (report.paused, list(report.stopped)) == ({}, [job])
    assert any(note.startswith(f"job {job} was not paused: scontrol:") for note in report.notes)


@pytest.mark.parametrize("after_s", [0, 50])
def test_who_may_not_be_preempted_is_stopped_last_for_a_cap_and_not_for_others(
    world: SlurmWorld, after_s: float
) -> None:
    """Nobody stops a job that Slurm may not requeue."""
    never, *_ = running(
        world, 2, requeue=False, site={"file": {"allow": {"preemptible": True, "weight": [0, 9]}}}
    )
    kept, other = never + 1, never + 2
    world._add(4, json.dumps({"wattsched": {"options": "of4", "preemptible": False}}))
    world._add(4, json.dumps({"wattsched": {"options": "of4", "weight": 9.0}}))
    world.write_cap(world.idle_w + 10 * EACH_W)
    for job in (kept, other):
        world.jobs[job].seconds = 1e9
    assert list(world.rounds.round().started) == [kept, other]
    world.dead.update(NODES)
    world.pass_time(60)
    world._add(4, json.dumps({"wattsched": {"options": "of4", "weight": 9.0}}))
    for gpus, stopped in ((10, []), (6, [other]), (2, [kept]), (1, [])):
        world.write_cap(world.idle_w + 10 * EACH_W)
        world.write_cap(world.idle_w + gpus * EACH_W, after_s=after_s)
        assert list(world.rounds.round().stopped) == stopped
    assert world.jobs[never].state == "RUNNING"


@pytest.mark.parametrize("requeue", [True, False])
def test_an_announced_cut_pauses_on_time(world: SlurmWorld, requeue: bool) -> None:
    (job,) = running(world, 8, requeue=requeue, **PAUSABLE)
    world.write_cap(world.idle_w + LOW_W, after_s=100)
    assert (world.rounds.round().paused, world.jobs[job].signals) == ({}, [])
    world.pass_time(50)
    report = world.rounds.round()
    assert (list(report.paused), report.stopped, report.alarms) == ([job], {}, [])


def test_the_watts_of_paused_gpus_count_and_their_cpus_are_kept(world: SlurmWorld) -> None:
    (job,) = running(world, 4, site={"options": {"pausable": True, "paused_power_w": 80}})
    assert cut(world, 1, LOW_W).power_w == world.idle_w + 4 * (80 - IDLE_W)
    load = world.rounds.look()
    paused, launch = load.ours[job], load.ours[job].launch
    node = load.site.nodes[next(iter(launch.nodes))]
    wide = replace(paused.job, needs=replace(paused.job.needs, cpus=node.cpus))
    assert load.lacks(wide, launch) == f"CPUs of {node.name}"
    assert load_of(replace(load.site, jobs={}), load.options, Ours()).lacks(wide, launch) == ""


def test_paused_jobs_stay_so_and_are_told_of_while_the_cap_is_not_known(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    cut(world, 1, LOW_W)
    world.write_cap(world.idle_w + 24 * EACH_W)
    world.file.write_text("{")
    report = world.rounds.round()
    assert (report.resumed, report.waiting[job].kind, report.stopped) == ({}, "paused", {})


def test_a_paused_job_is_not_stopped_where_that_frees_nothing(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    cut(world, 1, LOW_W)
    world.come_foreign()
    report = cut(world, 0.5, 1.0)
    assert (report.stopped, world.jobs[job].state) == ({}, "SUSPENDED")
    assert "nothing more can be done" in report.alarms[0]


def test_a_job_that_somebody_else_suspended_is_left_alone(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    world.suspend_as_others()
    world._add(8, json.dumps({"wattsched": {"options": "of8"}}))
    for power_w in (world.idle_w + 10, world.idle_w + 24 * EACH_W):
        world.write_cap(power_w)
        report = world.rounds.round()
        assert job not in report.paused | report.resumed | report.stopped
    assert world.jobs[job].state == "SUSPENDED"
    assert world.jobs[job].held.keys() != world.jobs[world.made].held.keys()


@pytest.mark.parametrize("after", range(4))
def test_a_process_that_ends_in_the_midst_of_a_pause_is_followed_by_another(
    world: SlurmWorld, after: int
) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    options = world.rounds.policy.options
    world.dead.update(NODES)
    world.pass_time(60)
    for power_w, state in ((world.idle_w + LOW_W, "SUSPENDED"), (world.idle_w + 24 * EACH_W, "RUNNING")):
        world.write_cap(power_w)
        world.kill_after = after  # each of two commands is begun, and done
        assert world.round() is None
        object.__setattr__(world.rounds.policy, "options", options)
        world.rounds.round()
        assert (world.jobs[job].state, world.jobs[job].restarts) == (state, 0)
    assert "paused_s" not in world.jobs[job].launch


def test_whom_an_administrator_lets_go_on_is_not_paused_by_us(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    cut(world, 1, LOW_W)
    world.write_cap(world.idle_w + 8 * EACH_W)
    for _ in range(2):
        world.suspend_as_others()
        world.rounds.round()
    assert (world.jobs[job].state, "paused_s" in world.jobs[job].launch) == ("SUSPENDED", False)


def test_nothing_goes_on_in_a_round_that_pauses(world: SlurmWorld) -> None:
    large, small = running(world, 8, 4, **PAUSABLE)
    world.dead.update(NODES)
    world.pass_time(60)
    assert list(cut(world, 8).paused) == [small]
    world.rounds._records[str(small)] = {"weight": 9.0}
    report = cut(world, 7.5)
    assert (list(report.paused), report.resumed) == ([large], {})


@pytest.mark.parametrize("lowered", [True, False])
def test_a_paused_job_waits_for_the_watts_of_its_clock(world: SlurmWorld, lowered: bool) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    world.rounds.correction = Correction(0.1)
    assert world.rounds.look().margin_w()[""] > 0
    world.dead = set() if lowered else {*NODES}
    world.pass_time(5)
    report = cut(world, 1, 10)
    assert (list(report.paused), list(report.changed), report.margin_w) == ([job], [job], 0)
    world.pass_time(5)
    world.rounds.correction = None
    # An agent that has ended has not lowered it.
    world.write_cap(world.idle_w + 8 * LOW_W)
    assert list(world.rounds.round().resumed) == ([job] if lowered else [])


def test_what_is_given_back_goes_on(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    cut(world, 1, LOW_W)
    world.write_cap(world.idle_w + 24 * EACH_W)
    assert world.rounds.give_back()[job] == ""
    assert (world.jobs[job].state, world.jobs[job].admin_comment) == ("RUNNING", "")


def test_a_job_is_signalled_a_grace_before_an_announced_cut_stops_it(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **SIGNALLED)
    world.write_cap(world.idle_w + LOW_W, after_s=200)
    states = []
    for _ in range(4):
        report = world.rounds.round()
        states.append((list(report.signalled), list(report.stopped)))
        assert not any("cut short" in note for note in report.notes)
        world.pass_time(35)
    # A stop takes up to 60 s, a round up to 30 s: from 130 s before the cut on.
    assert states == [([], []), ([], []), ([job], []), ([], [])]
    report = world.rounds.round()
    assert (report.signalled, list(report.stopped)) == ({}, [job])
    assert not any("cut short" in note for note in report.notes)
    assert world.jobs[job].signals == [(0, "USR1")]


def test_the_cap_goes_before_a_grace_and_a_run_is_signalled_once(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **SIGNALLED)
    report = cut(world, 1, LOW_W)
    assert (list(report.signalled), list(report.stopped)) == ([job], [job])
    assert f"job {job} stops, and its grace is cut short by 40 of 40 s" in report.notes
    # The next run of it has a signal of its own, and a cut that is withdrawn uses it up.
    world.write_cap(world.idle_w + 24 * EACH_W)
    world.pass_time(60)
    assert list(world.rounds.round().started) == [job]
    world.write_cap(world.idle_w + LOW_W, after_s=100)
    world.pass_time(1)
    assert list(world.rounds.round().signalled) == [job]
    world.write_cap(world.idle_w + 24 * EACH_W)
    assert world.rounds.round().stopped == {}
    assert world.jobs[job].signals == [(0, "USR1"), (1, "USR1")]
    world.pass_time(60)
    report = cut(world, 1, LOW_W)
    assert (report.signalled, list(report.stopped)) == ({}, [job])
    assert not any("cut short" in note for note in report.notes)


def test_a_job_that_is_signalled_and_stopped_in_a_round_has_one_signal(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **SIGNALLED)
    load, report = world.rounds.look(), Report()
    world.rounds._signal(job, load, report)
    world.rounds._stop({job: "waits"}, load, report)
    assert (world.jobs[job].signals, list(report.stopped)) == ([(0, "USR1")], [job])


def test_nobody_is_signalled_for_whom_others_are_paused(world: SlurmWorld) -> None:
    large, small = running(world, 8, 4, **SIGNALLED)
    launch = world.jobs[large].launch | {"paused_w": 400.0, "checkpoint_signal": None}
    world.jobs[large].admin_comment = json.dumps({"wattsched": launch})
    world.jobs[large].requeue = False
    world.write_cap(world.idle_w + 4 * EACH_W, after_s=100)
    assert world.rounds.round().signalled == {}
    world.write_cap(world.idle_w + 3 * LOW_W, after_s=100)
    assert list(world.rounds.round().signalled) == [small]


def test_shadow_mode_tells_what_would_be_paused_resumed_and_signalled(world: SlurmWorld) -> None:
    (job,) = running(world, 8, **PAUSABLE)
    policy = replace(world.rounds.policy, apply=False)
    shadow = Rounds(policy, world.rounds.budget, world.journal, world.rounds._snapshot)
    world.write_cap(world.idle_w + LOW_W)
    report = shadow.round()
    assert (list(report.paused), report.stopped, report.planned_w) == ([job], {}, world.idle_w)
    assert world.jobs[job].state == "RUNNING"
    world.rounds.round()
    world.write_cap(world.idle_w + 24 * EACH_W)
    assert list(shadow.round().resumed) == [job]
    assert world.jobs[job].state == "SUSPENDED"


@pytest.mark.parametrize(
    ("said", "allow", "told"),
    [
        ({"pausable": True}, {}, "pausable: may not be stated, got true; the site allows options, model"),
        ({"pausable": True}, {"pausable": True}, ""),
        ({"paused_power_w": 9.0}, {"pausable": True}, "paused_power_w: may not be stated, got 9.0"),
        ({"checkpoint_signal": "USR1"}, {}, "checkpoint_signal: may not be stated"),
        ({"checkpoint_signal": "KILL"}, {"checkpoint_signal": True}, "checkpoint_signal: must be 'USR1', "),
        ({"grace_s": 90.0}, {"grace_s": [10, 60]}, "grace_s: the site allows 10 to 60, got 90"),
        ({"grace_s": 1e9}, {"grace_s": [0, 3600]}, "grace_s: must be less than or equal to 3600, got 1"),
        ({"grace_s": 30.0}, {"grace_s": [0, 60]}, "grace_s: needs 'checkpoint_signal'"),
        ({"paused_power_w": 60.0}, PAUSES, "paused_power_w: needs 'pausable'"),
        ({"paused_power_w": 60.0, "pausable": True}, PAUSES, ""),
        ({"paused_power_w": 450.0, "pausable": True}, PAUSES, ""),  # on an H100
        ({"paused_power_w": 9.0, "pausable": True}, PAUSES, f"paused_power_w: 9 W is below the {IDLE_W:g} W"),
        (
            {"paused_power_w": 1000.0, "pausable": True},
            PAUSES,
            "paused_power_w: 1000 W is not below the 700 W",
        ),
    ],
)
def test_what_users_say_of_pauses_and_signals_is_bounded(
    world: SlurmWorld, said: dict[str, Any], allow: dict[str, Any], told: str
) -> None:
    world._add(1, json.dumps({"wattsched": said}))
    job = world.rounds.look().site.jobs[world.made]
    options = SiteOptions.model_validate({"allow": allow})
    if told:
        with pytest.raises(InputError, match="^" + told.replace("[", r"\[")):
            said_of(job, options, kinds=["A100", "H100"])
    else:
        assert said_of(job, options, kinds=["A100", "H100"]) == said


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"qos": {"long": {"grace_s": 30}}}, "qos.long.grace_s: needs 'checkpoint_signal' beside it"),
        ({"jobs": {"a*": {"paused_power_w": 60}}}, "jobs.a*.paused_power_w: needs 'pausable' beside it"),
        ({"allow": {"grace_s": [30, 3601]}}, "allow.grace_s[1]: must be less than or equal to 3600"),
    ],
)
def test_fields_of_the_site_that_cannot_count_are_refused(document: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(told)):
        validated(SiteOptions, document)


def test_a_user_may_state_the_grace_of_a_signal_of_the_site_and_decline_its_pauses(world: SlurmWorld) -> None:
    long = {"checkpoint_signal": "USR1", "pausable": True, "paused_power_w": 60.0}
    allow = {"grace_s": [10, 60], "pausable": True}
    options = SiteOptions.model_validate({"jobs": {"*": long}, "allow": allow})
    world._add(1, json.dumps({"wattsched": {"grace_s": 30.0, "pausable": False}}))
    job = world.rounds.look().site.jobs[world.made]
    assert said_of(job, options) == {**long, "grace_s": 30.0, "pausable": False}


@pytest.mark.parametrize(
    ("watts", "told"),
    [
        (10.0, "10 W is below the 50 W with which an idle GPU counts"),
        (60.0, ""),
        (400.0, "400 W is not below the 400 W"),
    ],
)
def test_watts_of_paused_gpus_that_cannot_be_true_are_noted(
    world: SlurmWorld, watts: float, told: str
) -> None:
    said = {"qos": {"flex": {"pausable": True, "paused_power_w": watts}}}
    notes = load_of(world.rounds.seen(), SiteOptions.model_validate(said), Ours()).site.notes
    assert [f"qos.flex of the site's file: paused_power_w: {told}" in note for note in notes] == [
        True
    ] * bool(told)
