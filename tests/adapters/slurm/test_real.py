"""On a real Slurm: actions that may be done twice, settings that the prolog sees, and everything at once."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.processes import wait_for
from tests.adapters.slurm.conftest import CLOCKED
from tests.adapters.test_slices import by_host
from tests.adapters.trust import trusting
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.load import load_of
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.reading import Site, read
from wattsched.adapters.slurm.snapshot import SlurmError, take
from wattsched.adapters.slurm.trace import Said, recorded
from wattsched.serve.journal import Journal

look = partial(take, timeout_s=3.0)

once = pytest.mark.parametrize("root", [None], indirect=True, ids=["installed"])
"""For what does not depend on the release."""


def now() -> Site:
    return read(look(time.time()))


@pytest.fixture
def rounds(cluster: Any, folder: Path) -> Iterator[Rounds]:
    """Rounds that act, with a journal."""
    policy = Policy(Ours(), SiteOptions.model_validate(trusting()), apply=True, start_s=5.0)
    with Journal(folder / "journal") as journal:
        yield Rounds(policy, Budget(4_000.0), journal, look, lambda of: Actions(of, folder / "settings"))


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
    assert (none.reason, none.power_w) == ("optimal", 1_200)
    assert "nothing more can be done" in " ".join(none.alarms)
    rounds.budget.power_w = None
    assert set(wait_for(lambda: rounds.round().started)) == {first, second}
    assert all(now().jobs[number].restarts >= 1 for number in (first, second))


@once
def test_an_account_keeps_to_its_quota(cluster: Any, rounds: Rounds) -> None:
    lab = [submit(cluster, "sleep 60", {}, "--account=lab") for _ in range(3)]
    other = submit(cluster, "sleep 60", {}, "--account=other")
    options = SiteOptions.model_validate(trusting({"tenants": {"lab": {"gpus": 2}}}))
    rounds.policy = replace(rounds.policy, options=options)
    started = rounds.round().started
    assert other in started
    assert len(started.keys() & set(lab)) == 2
    wait_for(lambda: all(now().jobs[number].running for number in started))
    assert rounds.round().started == {}


def test_a_job_that_has_ended_is_not_run_again(cluster: Any, rounds: Rounds, folder: Path) -> None:
    number = submit(cluster, f"echo ran >> {folder}/ran", {})
    job = now().jobs[number]
    rounds.round()
    wait_for(lambda: "JobState=COMPLETED" in cluster.run("scontrol", "show", "job", str(number)))
    assert rounds.actions is not None
    rounds.actions.stop(job, "test")
    rounds.round()
    time.sleep(1.0)
    assert "Restarts=0" in cluster.run("scontrol", "show", "job", str(number))
    assert (folder / "ran").read_text() == "ran\n"


@once
def test_another_process_of_ours_goes_on_where_one_was_killed(
    cluster: Any, rounds: Rounds, folder: Path
) -> None:
    number = submit(cluster, "sleep 60", {"options": CLOCKED})
    rounds.round()
    session = rounds.session
    assert session is not None
    assert session.begin_action("cut off", {"action": "start"})
    rounds.journal.close()
    with Journal(folder / "journal") as journal:
        other = Rounds(rounds.policy, rounds.budget, journal, look, lambda of: Actions(of))
        report = wait_for(lambda: now().jobs[number].running) and other.round()
        assert (report.started, report.stopped, report.running) == ({}, {}, 1)
        assert "1 actions were cut off" in " ".join(report.notes)
        assert report.number == 2


def test_a_release_that_leads_nowhere_is_taken_back_and_others_go_first(cluster: Any, rounds: Rounds) -> None:
    # Local disks are nothing that we look at, and limits of partitions neither.
    disk = submit(cluster, "sleep 60", {})
    cluster.run("scontrol", "update", f"JobId={disk}", "MinTmpDiskNode=99999999")
    assert list(rounds.round().started) == [disk]
    told = wait_for(lambda: rounds.round().waiting.get(disk))
    assert "could start it on no node (BadConstraints); others go first" in told
    late = submit(cluster, "sleep 60", {})
    cluster.run("scontrol", "update", "PartitionName=gpu", "MinNodes=2")
    assert list(rounds.round().started) == [late]
    assert "has not started" in wait_for(lambda: rounds.round().held_again.get(late))
    cluster.run("scontrol", "update", "PartitionName=gpu", "MinNodes=1")
    plain = submit(cluster, "sleep 60", {})
    report = rounds.round()
    assert "has not started where it was to; others go first" in report.waiting[late]
    assert list(report.started) == [plain]
    # What Slurm holds is not stirred: any change would have it tried again.
    assert (now().jobs[disk].reason, now().jobs[disk].held) == ("BadConstraints", True)


def test_what_an_administrator_holds_stays_held_until_it_is_given_back(cluster: Any, rounds: Rounds) -> None:
    queued, ran = (submit(cluster, "sleep 60", {}) for _ in range(2))
    cluster.run("scontrol", "hold", str(queued))
    report = rounds.round()
    assert list(report.started) == [ran]
    assert "held by an administrator" in report.waiting[queued]
    wait_for(lambda: now().jobs[ran].running)
    for command in ("hold", "requeue"):
        cluster.run("scontrol", command, str(ran))
    wait_for(lambda: now().jobs[ran].pending)
    assert set(rounds.round().waiting) == {queued, ran}
    for number in (queued, ran):
        cluster.run("scontrol", "uhold", str(number))
    assert set(wait_for(lambda: rounds.round().started)) == {queued, ran}
    # Our own holds are none of these.
    wait_for(lambda: now().jobs[ran].running)
    rounds.budget.power_w = 1_300.0
    assert set(rounds.round().stopped) == {queued, ran}
    rounds.budget.power_w = None
    assert set(wait_for(lambda: rounds.round().started)) == {queued, ran}


def test_why_a_job_waits_is_in_its_admin_comment_until_it_starts(cluster: Any, rounds: Rounds) -> None:
    rounds.budget.power_w = 1_300.0
    scarce, typo = submit(cluster, "sleep 60", {}), submit(cluster, "sleep 60", {"wieght": 1})
    other = cluster.submit("sleep 60", "--hold", "--gres=gpu:1", "--comment={'wattsched': {}}")
    rounds.round()

    def said(number: int) -> Any:
        return json.loads(now().jobs[number].admin_comment)["wattsched"]

    assert re.fullmatch(
        r"the site would draw 1\.\d+ kW with it, of a cap of 1\.\d+ kW", said(scarce)["waits"]
    )
    assert said(typo) == {"waits": "wieght: is not a known field"}
    assert "no JSON object with the key 'wattsched'" in said(other)["waits"]
    # Released by an administrator in spite of us it is left alone, as without what we said.
    rounds.budget.power_w = None
    assert list(rounds.round().started) == [scarce]
    assert "waits" not in said(scarce)
    wait_for(lambda: now().jobs[scarce].running)
    cluster.run("scontrol", "release", str(typo))
    wait_for(lambda: now().jobs[typo].running)
    assert rounds.round().held_again == {}
    # How it was released is kept beside.
    rounds.budget.power_w = 1_300.0
    wait_for(lambda: rounds.round().waiting.get(scarce))
    assert (said(scarce)["run"], "cap" in said(scarce)["waits"]) == (0, True)


def test_the_owner_reads_what_would_let_the_job_start(
    cluster: Any, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {
        "gpus": [2, 4, 8],
        "pool": ["A100"] * 3,
        "rate": [1.0, 1.9, 3.5],
        "power_w": [700.0, 1400.0, 2800.0],
    }
    rounds.budget.power_w = None
    busy = [
        submit(cluster, "sleep 60", {"preemptible": False}, "--gres=gpu:6", "--time=30") for _ in range(2)
    ]
    rounds.round()
    wait_for(lambda: all(now().jobs[number].running for number in busy))
    first = submit(cluster, "sleep 60", {"options": table, "min_gpus": 8, "weight": 4}, "--gres=gpu:8")
    theirs = submit(cluster, "sleep 60", {}, "--gres=gpu:8")
    cluster.run("scontrol", "update", f"JobId={theirs}", "AdminComment=see ticket 12")
    users = now().jobs[first].comment
    report = rounds.round()
    told, _, when = report.waiting[first].partition("; expected to start by ")
    assert (
        told
        == "needs 8 GPUs on one node, 2 are free on g1; would start now with 2 GPUs, fewer than it asks for"
    )
    # When the time limit of the job on g1 or g2 is over.
    start = datetime.fromisoformat(when.removesuffix(" if no others come")).astimezone()
    assert 1_500 < start.timestamp() - time.time() < 2_000
    assert json.loads(now().jobs[first].admin_comment) == {"wattsched": {"waits": report.waiting[first]}}
    assert now().jobs[first].comment == users
    assert now().jobs[theirs].admin_comment == "see ticket 12"
    # Nothing is written again where nothing has changed.
    assert rounds.actions is not None
    monkeypatch.setattr(rounds.actions, "write_reason", lambda *_: pytest.fail("a reason was written twice"))
    again = rounds.round().waiting
    assert (again[first], theirs in again) == (report.waiting[first], True)


def test_nodes_that_a_job_asks_for_are_kept_also_when_it_was_requeued(cluster: Any, rounds: Rounds) -> None:
    cluster.run("scontrol", "update", "NodeName=g2", "AvailableFeatures=fast", "ActiveFeatures=fast")
    asked = {
        submit(cluster, "sleep 60", {}, "--nodelist=g2"): "g2",
        submit(cluster, "sleep 60", {}, "--exclude=g2"): "g1",
        submit(cluster, "sleep 60", {}, "--constraint=fast"): "g2",
    }
    for _ in range(2):
        assert set(wait_for(lambda: rounds.round().started)) == set(asked)
        wait_for(lambda: all(now().jobs[number].running for number in asked))
        assert {number: next(iter(now().jobs[number].gpus)) for number in asked} == asked
        rounds.budget.power_w = 1_300.0
        assert set(rounds.round().stopped) == set(asked)
        rounds.budget.power_w = None
    # Where no node has it any more the job waits, and keeps nothing from others.
    cluster.run("scontrol", "update", "NodeName=g2", "AvailableFeatures=", "ActiveFeatures=")
    report = wait_for(lambda: (found := rounds.round()).started and found)
    (fast,) = set(asked) - set(report.started)
    assert "in its partitions has: --constraint=fast" in report.waiting[fast]


@once
def test_jobs_whose_cpus_or_memory_no_node_has_keep_nothing_from_others(cluster: Any, rounds: Rounds) -> None:
    never = {
        submit(cluster, "sleep 60", {"weight": 100}, "-c40"): "CPUs",
        submit(cluster, "sleep 60", {"weight": 100}, "--mem=99G"): "memory",
    }
    # All CPUs of g1 have gone to others: its eight GPUs are free, and of no use.
    cluster.submit("sleep 60", "--ntasks=16", "--nodelist=g1")
    wait_for(lambda: now().nodes["g1"].free_cpus < 1)
    small, large = submit(cluster, "sleep 60", {}), submit(cluster, "sleep 60", {}, "-c16")
    report = rounds.round()
    for number, what in never.items():
        assert f"asks for what no node with GPUs in its partitions has: {what}" in report.waiting[number]
    assert len(report.started.keys() & {small, large}) == 1
    # The other one has no CPUs there, and is not released for nothing.
    (later,) = {small, large} - set(report.started)
    wait_for(lambda: all(now().jobs[number].running for number in report.started))
    assert not any(rounds.round().started for _ in range(2))
    assert now().jobs[later].held


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


def test_jobs_that_are_given_back_are_slurms_again(cluster: Any, rounds: Rounds, folder: Path) -> None:
    ran = submit(cluster, "sleep 60", {"options": CLOCKED}, "--nodelist=g2")
    stays = submit(cluster, "sleep 60", {})
    theirs = cluster.submit("sleep 60", "--hold", "--gres=gpu:1")
    assert set(rounds.round().started) == {ran, stays}
    wait_for(lambda: all(now().jobs[number].running for number in (ran, stays)))
    # One has run, and waits; one runs; one has never been released.
    assert rounds.actions.stop(now().jobs[ran], "test") == ""
    new = submit(cluster, "sleep 60", {})
    wait_for(lambda: now().jobs[ran].pending)
    assert rounds.give_back() == dict.fromkeys((ran, stays, new), "")
    found = wait_for(lambda: (jobs := now().jobs) and jobs[ran].running and jobs[new].running and jobs)
    assert {found[number].admin_comment for number in (ran, stays, new)} == {""}
    assert list(found[ran].gpus) == ["g2"]
    assert found[theirs].held
    assert not list((folder / "settings").iterdir())


@once
def test_slices_and_shards_are_parts_of_boards(
    emulated: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gres = ["gpu:a100_1g.5gb:7", "gpu:a100:2,gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7", "gpu:A100:2,shard:A100:8"]
    with emulated(folder, 3, gres=gres) as cluster, Journal(folder / "journal") as journal:
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        options = SiteOptions.model_validate(trusting())

        def drawn_w() -> dict[str, float]:
            return by_host(load_of(now(), options, Ours()).node_w)

        # One board; two whole ones and two that are cut, of which a seventh is in no slice; two.
        assert drawn_w() == pytest.approx({"g1": 250, "g2": 400, "g3": 300})
        theirs = [
            cluster.submit("sleep 60", f"--gres={asked}")
            for asked in ("gpu:a100:2", "gpu:a100_3g.20gb:2", "gpu:a100_1g.5gb:7", "shard:3", "shard:1")
        ]
        wait_for(lambda: all(now().jobs[number].running for number in theirs))
        seventh_w = 350 / 7
        # Two boards, and two with six sevenths each; either node with the small slices draws a board more.
        used_w = drawn_w()
        assert used_w["g1"] in (pytest.approx(250), pytest.approx(600))
        assert used_w["g1"] + used_w["g2"] == pytest.approx(250 + 400 + 2 * 350 + 2 * 3 * seventh_w + 350)
        assert used_w["g3"] == pytest.approx(300 + 350)
        for number in theirs:
            cluster.run("scancel", str(number))
        wait_for(lambda: not any(job.on_nodes for job in now().jobs.values()))
        # Two of our slices start, within a cap at which a third would not.
        policy = Policy(Ours(), options, apply=True, start_s=5.0)
        rounds = Rounds(policy, Budget(950.0 + 2.5 * seventh_w), journal, look, lambda of: Actions(of))
        ours = [submit_typed(cluster, "a100_1g.5gb:1") for _ in range(3)]
        report = rounds.round()
        assert len(report.started) == 2
        assert report.power_w == pytest.approx(950 + 2 * seventh_w)
        wait_for(lambda: sum(now().jobs[number].running for number in ours) == 2)
        # Kinds of g2 go to jobs that name them, untyped ones to a node of one kind.
        rounds.budget.power_w = None
        asked = {
            submit_typed(cluster, "a100:2"): {"g2/a100": 2},
            submit_typed(cluster, "a100_3g.20gb:1"): {"g2/a100_3g.20gb": 1},
            submit_typed(cluster, "2"): {"g3": 2},
        }
        never = submit_typed(cluster, "1", "--nodelist=g2")
        report = rounds.round()
        assert len(report.started) == 4
        assert asked.keys() <= report.started.keys() <= {*asked, *ours}
        assert "--nodelist, one kind of GPUs (--gres=gpu:TYPE:1 names it)" in report.waiting[never]
        jobs = wait_for(lambda: all((jobs := now().jobs)[number].running for number in asked) and jobs)
        assert {number: {n: len(own) for n, own in jobs[number].gpus.items()} for number in asked} == asked
        # They are known as ours, with what they draw, and are requeued for a cap.
        report = rounds.round()
        assert (report.started, report.running) == ({}, 6)
        assert report.power_w == pytest.approx(950 + 3 * seventh_w + 2 * 350 + 3 * seventh_w + 2 * 350)
        rounds.budget.power_w = 960.0
        assert set(rounds.round().stopped) == {*asked, *ours}
        said = Said([ACCOUNTED], [cluster.run("scontrol", "--oneliner", "show", "node")])
    found = recorded(said, UTC)
    assert "3 nodes with 4 GPUs and 16 slices of 3 boards" in found.lines()
    assert [job.gpu_type for job in found.jobs] == ["a100_1g.5gb"]


def submit_typed(cluster: Any, gres: str, *options: str) -> int:
    comment = json.dumps({"wattsched": {}})
    asked = ("--hold", "--requeue", f"--gres=gpu:{gres}", "--comment", comment, *options)
    number: int = cluster.submit("sleep 60", *asked)
    return number


ACCOUNTED = """JobID|State|Submit|Start|Elapsed|AllocTRES|NodeList
7|COMPLETED|2026-11-02T08:00:00|2026-11-02T08:00:00|02:00:00|gres/gpu:a100_1g.5gb=1,gres/gpu=1|g2
"""


@pytest.mark.usefixtures("emulated")
def test_everything_at_once(root: Path | None, load_script: Any, folder: Path) -> None:
    script = load_script("slurm")
    found = script.run(folder, nodes=4, jobs=20, seed=3, limit_s=90.0, seconds=(1, 4), root=root)
    exact = ("lost", "revived", "above the cap", "started on drained nodes", "exit code")
    assert {name: found[name] for name in exact} == dict.fromkeys(exact, 0)
    # Jobs of seconds, of which slurmctld may hear too late that they are done (docs/slurm.md, limits).
    assert found["run twice"] <= 1
    assert found["most, of the cap"] <= 1.0
    assert found["below an unannounced cut after, s"] < 20


@once
@pytest.mark.usefixtures("emulated")
def test_signals_are_kept_by_watts_that_the_model_does_not_know(load_script: Any, folder: Path) -> None:
    script = load_script("slurm_signals")
    # The last four of its signals; one is announced ten seconds before, and one not at all.
    found = script.run(folder, nodes=4, jobs=16, seed=1, limit_s=150.0, seconds=(20, 60), first_s=-290.0)
    exact = ("lost", "revived", "above", "restarted", "exit code")
    assert {name: found[name] for name in exact} == dict.fromkeys(exact, 0)
    assert found["changes"] > 0
    assert found["most, of the cap"] <= 1.0


@once
def test_a_signal_ends_it(cluster: Any, load_script: Any, folder: Path) -> None:
    trial = load_script("slurm").Trial(cluster, 0)
    (folder / "options.json").write_text("{}")
    trial.scheduler.set_cap(5_000.0)
    trial.scheduler.start()
    wait_for(lambda: (folder / "rounds.jsonl").read_text())
    assert trial.scheduler.end(signal.SIGINT) == 0
