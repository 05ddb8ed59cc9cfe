"""Bounds of ``wattsched replay``: proven, taken from files, and held against claims by ``check``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from .conftest import Run, refused

LONE = '{"t": {"gpus": [1], "pool": ["A100"], "power_w": [%s], "rate": [1]}}'


def test_a_bound_is_told_written_and_checked_alone(replay: Run, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replayed = replay("--policy", "sizing,eaco", "--bound", "--json", "-o", out, code=0)
    document = json.loads(replayed.stdout)
    (stated,) = document["bounds"]
    mean_s = document["policies"]["sizing"][0]["jct_mean_s"]
    assert 0 < stated["mean_completion_s"] <= mean_s
    assert stated["energy_j"] == {}
    checked = run("check", out / "bound-0.json", code=0)
    assert "no schedule of 3 jobs on 16 GPUs completes them in less than" in " ".join(checked.stdout.split())
    digest = hashlib.sha256((tmp_path / "trace.csv").read_bytes()).hexdigest()
    told = f"the jobs are said to be of trace.csv, SHA-256 {digest}, seed 0"
    assert told in " ".join(checked.stdout.split())
    refused(run("check", out / "bound-0.json", "--require-gap", "0"), "--require-gap needs RESULT")
    as_json = json.loads(run("check", out / "bound-0.json", "--json").stdout)
    assert as_json["proven_bound"] == stated["mean_completion_s"]

    forged = json.loads((out / "bound-0.json").read_text())
    jsonschema.validate(forged, json.loads(run("schema", "bound").stdout))
    forged["proofs"][0]["bound_s"] += 100.0
    (out / "forged.json").write_text(json.dumps(forged))
    assert "proofs[0].bound_s: claims" in run("check", out / "forged.json", code=1).stdout


def test_energy_is_bounded_at_the_mean_of_each_policy_that_shares_no_gpus(replay, tmp_path):
    page = tmp_path / "page.html"
    result = replay("--policy", "sizing,eaco", "--energy-bound", "--report", page, code=0)
    for title in ("Against every schedule", "Energy against every schedule"):
        rows = result.stdout.partition(f"\n{title}")[2].splitlines()[2:4]
        (_, *sizing), (_, *eaco) = ([cell for cell in row.split("  ") if cell.strip()] for row in rows)
        assert len(sizing) == 3
        assert eaco[1:] == ["(its jobs share GPUs)"]
    assert "Against every schedule" in page.read_text()


def test_a_bound_may_be_limited_in_time(replay: Run) -> None:
    limited = replay("--bound", "--bound-limit", 0.001, "--json")
    assert json.loads(limited.stdout)["bounds"][0]["mean_completion_s"] > 0
    assert "left no time" not in limited.stderr
    refused(replay("--bound-limit", 5), "needs --bound or --energy-bound, which it belongs to\n")
    short = replay("--policy", "fifo", "--energy-bound", "--bound-limit", 1e-6, code=0)
    assert "Energy against every schedule" not in short.stdout
    assert short.stderr.startswith("seed 0: --bound-limit left no time for bounds on energy\n")


@pytest.mark.parametrize(("work", "power_w"), [("1e12", 200), ("9", 0)])
def test_every_trace_has_a_bound_or_is_refused_before_it_is_replayed(run, tmp_path, work, power_w):
    jobs, tables, out = tmp_path / "jobs.csv", tmp_path / "t.json", tmp_path / "out"
    jobs.write_text(f"job,arrival_s,work,requested_gpus,table\na,0,{work},1,t\n")
    tables.write_text(LONE % power_w)
    command = ["replay", jobs, "--tables", tables, "--nodes", 1, "--gpus-per-node", 2, "--round", 0]
    found = run(*command, "--policy", "fifo", "--bound", "--json", "-o", out, code=0)
    assert json.loads(found.stdout)["bounds"][0]["mean_completion_s"] == pytest.approx(float(work))
    run("check", out / "bound-0.json", code=0)
    energy = run(*command, "--policy", "fifo", "--energy-bound", "-o", tmp_path / "energy")
    if power_w:
        assert energy.exit_code == 0, energy.stderr
    else:
        refused(energy, "job 'a': power_w is below that of its GPUs when idle: there is no bound")
        assert not (tmp_path / "energy").exists()


def test_a_bound_of_the_same_replay_is_taken_and_any_other_refused(replay, run, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    first = replay("--policy", "sizing", "--energy-bound", "--json", "-o", out)
    (stated,) = json.loads(first.stdout)["bounds"]
    again = replay("--policy", "sizing,fifo", "--bounds-from", out, "--json", "-o", other)
    (taken,) = json.loads(again.stdout)["bounds"]
    assert taken["mean_completion_s"] == stated["mean_completion_s"]
    assert taken["energy_j"]["sizing"] == stated["energy_j"]["sizing"]
    assert taken["energy_j"]["fifo"] > 0
    assert (other / "bound-0.json").read_text() == (out / "bound-0.json").read_text()
    replay("--policy", "fifo", "--bounds-from", out, "-o", out, code=0)

    less = replay("--bounds-from", out, "--budget", "energy_j=1e9")
    refused(less, "bound-0.json: budget: none in the file, one in this replay\n")
    refused(replay("--bounds-from", tmp_path / "none"), "bound-0.json: no such file or directory\n")
    refused(replay("--bounds-from", out, "--bound"), "takes the place of --bound and --energy-bound\n")
    forged = json.loads((out / "bound-0.json").read_text())
    forged["proofs"][0]["bound_s"] = -1e300
    (out / "bound-0.json").write_text(json.dumps(forged))
    nothing = replay("--policy", "sizing", "--bounds-from", out, "--json")
    assert json.loads(nothing.stdout)["bounds"][0]["mean_completion_s"] == 0
    forged["jobs"]["work"][0] *= 1.5
    (out / "bound-0.json").write_text(json.dumps(forged))
    refused(replay("--bounds-from", out), "bound-0.json: jobs.work[0]: ")


def test_what_is_no_bound_is_not_checked_alone(run: Run, replay: Run, tmp_path: Path) -> None:
    run("generate", "uniform", "--jobs", 2, "-o", tmp_path / "round.json", code=0)
    refused(
        run("check", tmp_path / "round.json"),
        "is no bound of replay --bound, which is checked alone; give RESULT, too",
    )
    newer = tmp_path / "newer.json"
    newer.write_text('{"format": "wattsched-replay-bound/9"}')
    told = "format: expected 'wattsched-replay-bound/1', found 'wattsched-replay-bound/9'"
    assert told in run("check", newer).stderr
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"format": "wattsched-replay-bound/1", "jobs": 3}')
    result = run("check", damaged, code=2)
    assert "jobs" in result.stderr
    assert "Traceback" not in result.stderr
