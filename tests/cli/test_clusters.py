"""Rounds of Slurm and Kubernetes: what is told of them, one after the other."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.adapters.trust import trusting
from tests.strategies.effort import examples
from wattsched.adapters.kubernetes.loop import Report as PodReport
from wattsched.adapters.rounds import Report, UnansweredError
from wattsched.cli.clusters import follow

from .conftest import EXAMPLES, wattsched

NOTES = st.lists(st.sampled_from(["cap not read", "node gone", "403"]), unique=True)


@given(st.lists(st.none() | NOTES, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_notes_are_printed_when_they_are_new_and_are_all_in_json(capsys, rounds):
    """None is a round without an answer."""
    told = [UnansweredError("no") if some is None else Report(1, notes=some, alarms=some) for some in rounds]
    capsys.readouterr()
    follow(told, once=False, as_json=True, do_apply=True)
    printed = capsys.readouterr()
    before, expected = list[str](), list[str]()
    for some in rounds:
        expected += [note for note in some or () if note not in before]
        before = before if some is None else some
    lines = printed.err.splitlines()
    for word in ("note: ", "ALARM: "):
        assert [line.split(word)[1] for line in lines if word in line] == expected
    assert [json.loads(line).get("notes") for line in printed.out.splitlines()] == rounds
    assert [json.loads(line)["alarms"] for line in printed.out.splitlines()] == [
        ["no"] if some is None else some for some in rounds
    ]


@given(
    st.builds(
        Report,
        number=st.integers(1, 10**6),
        running=st.integers(0, 10**4),
        queued=st.integers(0, 10**5),
        power_w=st.floats(0, 1e6),
        cap_w=st.none() | st.floats(1, 1e6),
        planned_w=st.none() | st.floats(0, 1e6),
        reason=st.sampled_from(["optimal", "feasible", "time limit", ""]),
        gap=st.none() | st.floats(0, 1),
        took_s=st.floats(0, 1e4),
        margin_w=st.sampled_from([0.0, 5e4]),
        measured_w=st.none() | st.floats(0, 1e6),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
def test_the_line_of_a_round_fits_80_columns_and_tells_what_shadow_would_draw(capsys, report):
    capsys.readouterr()
    report.started = dict.fromkeys(range(123), "a")
    follow([report], once=True, as_json=False, do_apply=False)
    line = capsys.readouterr().err.splitlines()[0]
    small = report.number < 10**5 and max(report.running, report.queued) < 10**4
    watts = (report.power_w, report.planned_w or 0.0, report.cap_w or 0.0)
    assert len(line) <= 80 or not (small and max(watts) < 999_990)
    assert f"{report.power_w / 1000:,.2f}" in line
    assert report.planned_w is None or f"-> {report.planned_w / 1000:,.2f}" in line


def test_many_jobs_with_the_same_reason_have_one_line_and_are_all_in_json(capsys):
    waiting = (
        {7: "needs 8 GPUs"} | dict.fromkeys(range(100, 121), "late") | dict.fromkeys(range(20, 40), "few")
    )
    follow([Report(1, waiting=waiting)], once=True, as_json=False, do_apply=True)
    _, *lines = (line.strip() for line in capsys.readouterr().err.splitlines())
    few = [f"wait {number}: few" for number in range(20, 40)]
    assert lines == ["wait 7: needs 8 GPUs", "wait 100, 101, 102 and 18 others: late", *few]
    follow([Report(1, waiting=waiting)], once=True, as_json=True, do_apply=True)
    assert json.loads(capsys.readouterr().out)["waiting"] == {str(name): why for name, why in waiting.items()}


@pytest.mark.parametrize(
    ("scheduler", "power_w", "started", "waits"),
    [
        ("slurm", 9_650, {"24", "26"}, "27"),
        ("kubernetes", 6_250, {"default/bert", "default/gang:resnet"}, "default/typo"),
    ],
)
def test_a_round_as_json(run, tmp_path, scheduler, power_w, started, waits):
    journal, snapshot = tmp_path / "journal", EXAMPLES / f"{scheduler}.json"
    site = EXAMPLES / f"{scheduler}-site.json"
    options = ("--shadow", "--snapshot", snapshot, "--options", site, "--power-w", 12_000)
    command = (scheduler, *options, "--journal", journal, "--json")
    report = json.loads(run(*command).stdout)
    assert (report["number"], report["cap_w"], report["power_w"]) == (1, 12_000, power_w)
    assert report["started"].keys() >= started
    assert not report["stopped"].keys() & {"21", "23"}
    assert waits in report["waiting"]
    assert json.loads(run(*command).stdout)["number"] == 2
    assert "2" in run("journal", journal, "--session", scheduler).output


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        ("slurm", "'scontrol' is not installed on this machine"),
        ("kubernetes", "no configuration of a cluster"),
    ],
)
def test_where_there_is_no_cluster_it_is_said(tmp_path, scheduler, told):
    nothing = {"PATH": str(tmp_path), "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    done = wattsched(scheduler, "--shadow", "--once", environment=nothing)
    assert done.returncode == 4
    assert told in done.stderr


def test_a_stated_error_of_watts_is_a_margin_and_readings_are_told(run, tmp_path):
    (tmp_path / "site.json").write_text('{"watts_error": 0.1}')
    (tmp_path / "watts.csv").write_text("time,job,power_w\n2020-01-01T00:00Z,22,1\nnoon,22,1\n")
    command = ("slurm", "--shadow", "--snapshot", EXAMPLES / "slurm.json", "--power-w", 20_000, "--json")
    assert json.loads(run(*command).stdout)["margin_w"] == 0
    stated = json.loads(run(*command, "--options", tmp_path / "site.json").stdout)
    # The plan has job 21 of 700 W, and starts one of 5,025 W and one of 800 W, each 10 %.
    assert (stated["started"].keys(), stated["stopped"].keys()) == ({"24", "26"}, {"22"})
    assert stated["margin_w"] == pytest.approx(3.72 * 0.1 * (700**2 + 5_025**2 + 800**2) ** 0.5, rel=0.01)
    assert stated["measured_w"] is None
    read = json.loads(run(*command, "--readings", tmp_path / "watts.csv").stdout)
    assert read["margin_w"] == pytest.approx(stated["margin_w"])
    assert read["measured_w"] == pytest.approx(read["power_w"])
    lost, wrong = [note for note in read["notes"] if "readings" in note]
    assert "watts.csv: line 'noon,22,1'" in wrong or "'noon'" in wrong
    assert lost == "readings: 1 of 1 do not count: 1 from before their job was seen unchanged for 5 s"


@pytest.mark.parametrize("power_w", [6_000, 7_000, 8_000, 9_000])
@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_a_plan_leaves_the_margin_of_what_runs_after_it(run, tmp_path, scheduler, power_w):
    site = json.loads((EXAMPLES / f"{scheduler}-site.json").read_text()) | {"watts_error": 0.1}
    (tmp_path / "site.json").write_text(json.dumps(site))
    options = ("--snapshot", EXAMPLES / f"{scheduler}.json", "--options", tmp_path / "site.json")
    report = json.loads(run(scheduler, "--shadow", *options, "--power-w", power_w, "--json").stdout)
    assert report["started"]
    assert not report["postponed"]
    assert report["alarms"] == []
    assert report["planned_w"] + 1.1 * report["margin_w"] <= power_w


def test_a_stop_for_a_feed_names_it(run, tmp_path):
    feed = {"name": "feed", "members": ["g1", "g2"], "power_cap_w": 5_000}
    (tmp_path / "site.json").write_text(json.dumps({"power_domains": [feed]}))
    options = ("--snapshot", EXAMPLES / "slurm.json", "--options", tmp_path / "site.json")
    report = json.loads(run("slurm", "--shadow", *options, "--json").stdout)
    assert report["stopped"]["22"].endswith(" W too many are drawn behind 'feed'")


def test_a_budget_beside_a_snapshot_is_read_at_its_time(run, tmp_path):
    options = ("--snapshot", EXAMPLES / "slurm.json", "--budget", tmp_path / "cap.json")
    event = {"from": "2020-01-01T00:00Z", "power_w": 9_000}
    (tmp_path / "cap.json").write_text(json.dumps({"limits": [event]}))
    report = json.loads(run("slurm", "--shadow", *options, "--json").stdout)
    assert (report["cap_w"], report["alarms"]) == (9_000, [])
    (note,) = [note for note in report["notes"] if "cap.json" in note]
    assert re.search(r"read as at 20\d\d-\d\d-\d\dT.*, the time of the snapshot$", note)
    (tmp_path / "cap.json").write_text('{"power_w": 9000, "until": "2020-01-01T00:00Z"}')
    told = run("slurm", "--shadow", *options, code=2).output
    assert "cap.json: until: it counted until 2020-01-01T00:00:00+00:00" in told


def test_the_agents_of_a_snapshot_are_those_that_it_was_saved_with(run, tmp_path):
    options = ("--snapshot", EXAMPLES / "slurm.json", "--settings", tmp_path)
    told = run("slurm", "--shadow", *options, code=2).output
    assert "--settings is not read: a snapshot has the agents' reports with which --record saved it" in told


def test_a_comment_that_no_round_can_use_lets_its_own_job_wait(run, tmp_path):
    snapshot = json.loads((EXAMPLES / "slurm.json").read_text())
    jobs = json.loads(snapshot["jobs"])
    (job,) = (one for one in jobs["jobs"] if one["job_id"] == 25)
    table = {"gpus": [2], "pool": ["A100"], "rate": [1.0], "power_w": [700.0]}
    job["comment"] = json.dumps({"wattsched": {"options": table, "remaining_work": 1e-9}})
    (tmp_path / "seen.json").write_text(json.dumps({**snapshot, "jobs": json.dumps(jobs)}))
    (tmp_path / "site.json").write_text(json.dumps(trusting()))
    options = ("--snapshot", tmp_path / "seen.json", "--options", tmp_path / "site.json")
    report = json.loads(run("slurm", "--shadow", *options, "--json").stdout)
    assert "completion times must be from" in report["waiting"]["25"]
    assert report["started"].keys() >= {"24"}


def report(**jobs: Any) -> PodReport:
    return PodReport(1, 0.0, **jobs)


def followed(*reports: PodReport, do_apply: bool, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Lines about jobs, of each round."""
    assert follow(reports, once=False, as_json=False, do_apply=do_apply) == 0
    lines = capsys.readouterr().err.splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith("round 1")] + [len(lines)]
    return [[line.strip() for line in lines[at + 1 : end]] for at, end in pairwise(heads)]


def test_what_is_done_is_told_always_and_what_waits_when_it_is_news(capsys):
    long = "GPUs " + ", ".join(f"8 of gpu-{k}" for k in range(99))
    waits, other = report(waiting={"a": "w"}, postponed={"b": "p"}), report(waiting={"a": "w2"})
    starts = report(started={"c": long}, stopped={"d": "s"}, joined={"e": "gpu-1"})
    told = ["start c: " + long, "stop d: s", "join e: gpu-1"]
    rounds = (waits, waits, other, waits, starts, starts)
    waiting = [["postpone b: p", "wait a: w"], [], ["wait a: w2"], ["postpone b: p", "wait a: w"]]
    assert followed(*rounds, do_apply=True, capsys=capsys) == [*waiting, told, told]
    # Nothing is done: the same would be done in each round.
    assert followed(*rounds, do_apply=False, capsys=capsys) == [*waiting, told, []]
