from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path

import pytest

from wattsched.results.documents import read_result
from wattsched.results.result import Result, TerminationReport
from wattsched.verification.sizing.objectives import OBJECTIVES

from .conftest import DEMO, refused


def test_demo_is_solved_and_its_prices_are_shown(run):
    result = run("solve", DEMO, code=0)
    assert "optimal" in result.stdout
    assert "more saves" in result.stdout
    assert "less costs" in result.stdout
    assert "\x1b[" not in result.stdout


def test_what_one_more_brings_is_decided_where_that_is_asked_for(run, tiny, write):
    told = run("solve", DEMO, "--marginal", code=0).stdout
    assert "decided: saves" in told
    assert "printed only" in run("solve", DEMO, "--marginal", "--json", code=2).stderr
    bottleneck = run("solve", write(tiny), "--objective", "max-min", "--marginal", code=2)
    assert "marginal prices" in bottleneck.stderr


def test_an_answer_that_fails_its_check_is_told_once(run, tiny, write, monkeypatch):
    monkeypatch.delitem(OBJECTIVES, "progress")
    result = run("solve", write(tiny), "--objective", "progress", code=70)
    assert result.stdout.count("failed its check: objective 'progress' is not known") == 1


@pytest.mark.parametrize("name", ["result.json", "result.json.gz"])
def test_the_result_is_the_same_wherever_it_goes_and_passes_its_check(run, instance, answer, tmp_path, name):
    run("solve", instance, "-o", tmp_path / name, code=0)
    content = (tmp_path / name).read_bytes()
    written = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
    alone = run("solve", instance, "--json", "-o", "-").stdout
    piped = run("solve", "-", "-o", "-", stdin=instance.read_text()).stdout
    for document in (answer, written, json.loads(alone), json.loads(piped)):
        assert {**document, "time_s": {}} == {**answer, "time_s": {}}
    assert (answer["objective"], answer["termination"]["reason"]) == (pytest.approx(300.0), "optimal")
    run("check", instance, tmp_path / name, code=0)
    assert "optimal" in run("show", tmp_path / name).stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["instance.json", name])


def test_warm_start_takes_results_and_bare_decisions(run, instance, answer, write):
    for warm in (answer, answer["decision"]):
        again = json.loads(run("solve", instance, "--warm", write(warm, "warm.json"), "--json").stdout)
        assert again["objective"] == pytest.approx(300.0)


def test_decisions_whose_gpus_do_not_count_up_are_refused(run, instance, answer, write):
    one = answer["decision"]["jobs"][0]
    node, gpus = one["nodes"].popitem()
    one["nodes"][node] = [*gpus, max(gpus) + 1]
    result = run("solve", instance, "--warm", write(answer["decision"], "more.json"), code=2)
    told = f"decision: job '{one['job']}': nodes lists {one['gpus'] + 1} GPUs, gpus is {one['gpus']}"
    assert told in " ".join(result.stderr.split())
    one["nodes"][node] = [2**63]
    huge, told = (
        write(answer["decision"], "huge.json"),
        f"jobs[0].nodes.{node}[0]: must be less than or equal to",
    )
    refused(run("check", instance, huge), told)
    refused(run("solve", instance, "--warm", huge), told)


def test_budget_below_idle_power_is_infeasible_by_the_missing_watts(run, tiny, write):
    path = write({**tiny, "budgets": {"power_w": 31.0}})
    told = " ".join(run("solve", path, code=3).stdout.split())
    assert "infeasible" in told
    # 4 idle GPUs draw 40 W.
    assert "the power cap of 31 W is 9 W short" in told
    document = json.loads(run("solve", path, "--json", code=3).stdout)
    assert (document["termination"]["reason"], document["decision"]) == ("infeasible", None)


def test_a_decision_without_a_bound_is_said_to_have_none(run, answer, write):
    absent = dict.fromkeys(("bound", "gap", "proven_gap", "certificate"))
    ended = {"reason": "feasible", "detail": "others may be better"}
    told = run("show", write(answer | absent | {"prices": {}, "termination": ended})).stdout
    assert "feasible, no bound\n  nothing says how good it is: others may be better" in told


def test_deadline_that_cannot_be_met_leaves_the_job_out_or_is_infeasible(run, tiny, write):
    tiny["jobs"][1]["deadline_s"] = 150.0
    assert "left out: b: cannot meet its deadline of 150 s" in run("solve", write(tiny), code=0).stdout
    tiny["jobs"][1]["can_wait"] = False
    assert "'b'" in run("solve", write(tiny), code=3).stdout


@pytest.mark.parametrize(("reason", "code"), [("no_solution", 4), ("error", 70)])
def test_exit_code_tells_what_became_of_it(run, tiny, write, monkeypatch, reason, code):
    answer = Result(
        instance="tiny",
        digest="",
        proven_gap=None,
        gap_asked=1e-4,
        claimed=True,
        formulation="mckp",
        solver="highs",
        objective_name="total-completion",
        sense="min",
        bound=12.0,
        termination=TerminationReport(reason=reason, limit="time", detail="out of time"),
    )
    monkeypatch.setattr("wattsched.solving.engine.solve", lambda *args, **kwargs: answer)
    result = run("solve", write(tiny), code=code)
    assert "out of time" in result.stdout
    assert "at least 12 s" in result.stdout


def test_internal_error_is_one_line_that_tells_how_to_see_more(run, tiny, write, monkeypatch):
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the sky\nfell")

    monkeypatch.setattr("wattsched.solving.engine.solve", broken)
    result = run("solve", write(tiny), code=70)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("internal error: RuntimeError: the sky\\nfell")
    assert "WATTSCHED_DEBUG=1" in result.stderr


def test_failed_write_leaves_the_old_file_and_nothing_else(run, tiny, write, tmp_path, monkeypatch):
    instance, output = write(tiny), tmp_path / "result.json"
    output.write_text("precious")

    def full(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = run("solve", instance, "-o", output, code=2)
    assert "no space left on device" in result.stderr
    assert output.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["instance.json", "result.json"]


def test_in_a_pipe_every_job_is_one_whole_line(run, tiny, write):
    names = [f"743f85e8-7b1b-5179-f61c-{i:012x}" for i in range(2)]
    node = "a-node-with-a-long-name-0065"
    tiny["cluster"]["nodes"][0]["name"] = node
    for job, name in zip(tiny["jobs"], names, strict=True):
        job["name"] = name
    rows = [row.split() for row in run("solve", write(tiny)).stdout.splitlines() if "743f85e8" in row]
    assert [row[0] for row in rows] == names
    assert {row[-1] for row in rows} == {f"{node}:0-1", f"{node}:2-3"}


def test_jobs_that_ran_before_are_not_listed_twice(run, tiny, write):
    for i, job in enumerate(tiny["jobs"]):
        job["current"] = {"gpus": 1, "pool": "G", "nodes": {"n1": [i]}}
    tiny["budgets"] = {"power_w": 45.0}
    told = run("solve", write(tiny)).stdout
    assert "waiting: a, b\n  all of them ran before: preempted" in told
    assert "stopped" not in told


def test_long_decisions_are_cut_short_on_the_page_only(run, write, tmp_path):
    instance, output = tmp_path / "round.json", tmp_path / "result.json"
    run("generate", "uniform", "--jobs", 60, "--gpus", 256, "-o", instance, code=0)
    result = run("solve", instance, "--solver", "greedy", "-o", output, code=0)
    assert "more, use --json or -o" in result.stdout
    for shown in (run("show", output).stdout, str(read_result(output))):
        assert "--json" not in shown
        assert "more, all are in the JSON" in shown
    decision = json.loads(output.read_text())["decision"]
    assert len(decision["jobs"]) + len(decision["waiting"]) == 60


@pytest.mark.parametrize(("limit", "is_begun"), [("0.5", True), ("0.1", False)])
@pytest.mark.parametrize("sent", [False, True])
def test_a_file_that_takes_too_long_to_read_is_no_decision_in_time(
    run, tiny, write, monkeypatch, tmp_path, limit, is_begun, sent
):
    ended, begun = threading.Event(), threading.Event()

    def read(path):
        begun.set()
        ended.wait(60.0)

    monkeypatch.setattr("wattsched.results.documents.read_instance", read)
    begin, output = time.monotonic(), tmp_path / "result.json"
    result = run("solve", "-" if sent else write(tiny), "--time-limit", limit, "-o", output, stdin="{}")
    ended.set()
    assert time.monotonic() - begin < 30.0
    assert result.exit_code == 4
    assert "there was no time to read the instance" in result.stderr
    assert not output.exists()
    assert begun.is_set() == is_begun, "a tenth of a second is too short for the libraries alone"


def test_an_earlier_answer_that_takes_too_long_to_read_ends_in_time(run, tiny, write, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr("wattsched.cli.solve.read_document", lambda file: ended.wait(60.0))
    begin, file = time.monotonic(), write(tiny)
    result = run("solve", file, "--warm", file, "--time-limit", "2")
    ended.set()
    assert time.monotonic() - begin < 30.0
    assert result.exit_code in (0, 4), "a tiny round may be decided in what is left"


def test_verbose_speaks_on_standard_error_alone(run, tiny, write):
    result = run("solve", write(tiny), "-v", "--json", "--solver", "highs", code=0)
    assert json.loads(result.stdout)["objective"] == 300.0
    assert "Running HiGHS" in result.stderr
    assert "decision of 'highs', checked: 300" in result.stderr
