"""``wattsched replay --resume``: a process that is killed, and what is refused."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import Result

from .conftest import COMMAND, Run, refused

HEAD = "job,arrival_s,work,requested_gpus,model,max_gpus\n"
MODELS = ("resnet50", "bert", "deepspeech2")


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv"
    rows = [f"j{i},{400 * i},{200_000 * (1 + i % 7)},{1 << i % 4},{MODELS[i % 3]},16" for i in range(50)]
    file.write_text(HEAD + "\n".join(rows) + "\n")
    return file


def written(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of all records, without the wall clock."""
    found = {}
    for file in sorted(folder.glob("*.csv")):
        rows = list(csv.DictReader(file.open()))
        found[file.name] = [{k: v for k, v in row.items() if k != "decision_s"} for row in rows]
    return found


def figures(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    for runs in document["policies"].values():
        for figure in [name for name in runs[0] if name.startswith("decision_")]:
            del runs[0][figure]
    return dict(document["policies"])


@pytest.mark.slow
def test_a_killed_replay_goes_on(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    options = [str(jobs), "--policy", "fifo,elastic", "--process-restart", "5", "--carbon", "300", "--json"]
    command = [*COMMAND, "replay", *options, "-o", str(out), "--checkpoint", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running = out / "checkpoints" / "elastic-0.running"
    seen: set[int] = set()
    while len(seen) < 6 and process.poll() is None:
        if running.exists():
            seen.add(running.stat().st_mtime_ns)
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -9
    assert (out / "checkpoints" / "fifo-0.done").exists()
    assert not (out / "summary.json").exists()

    resumed = run("replay", *options, "-o", out, "--resume")
    assert "elastic, seed 0: going on with" in resumed.stderr
    assert "fifo, seed 0" not in resumed.stderr
    whole = run("replay", *options, "-o", tmp_path / "whole")
    assert figures(resumed) == figures(whole)
    assert written(out) == written(tmp_path / "whole")
    assert set(written(out)) == {
        f"{policy}-0-{name}.csv"
        for policy in ("elastic", "fifo")
        for name in ("jobs", "power", "rounds", "segments")
    }

    # Everything is complete now; another policy is all that is left to do.
    more = run(
        "replay", *[o.replace("fifo,elastic", "fifo,srtf,elastic") for o in options], "-o", out, "--resume"
    )
    assert list(figures(more)) == ["fifo", "srtf", "elastic"]
    assert figures(more)["elastic"] == figures(whole)["elastic"]
    assert {file.suffix for file in (out / "checkpoints").iterdir()} == {".done", ".json"}


@pytest.mark.parametrize("again", [["--resume"], []])
def test_what_a_killed_replay_was_writing_goes_away(run, jobs, tmp_path, again):
    command = ["replay", str(jobs), "--policy", "fifo", "-o", str(tmp_path / "out")]
    run(*command, code=0)
    half = tmp_path / "out" / "checkpoints" / ".0123456789abcdef.tmp"
    half.write_bytes(b"half of it")
    run(*command, *again, code=0)
    assert not half.exists()


def test_results_of_other_options_are_refused(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(run("replay", jobs, "-o", out, "--resume"), "--resume: there is nothing to go on with in")
    run("replay", jobs, "--policy", "fifo", "-o", out, code=0)
    again = ("replay", jobs, "--policy", "fifo", "-o", out, "--resume")
    run(*again, code=0)
    refused(run(*again, "--round", "30"), "are of --round 60.0, not 30.0; choose another folder")
    refused(run(*again, "--sleep-after", "9"), "are of --sleep-after (not given), not 9.0")
    refused(run(*again, "--budget", "energy_j=9e9"), "are of --budget (not given), not energy_j=9000000000.0")
    jobs.write_text(jobs.read_text() + "last,1e6,1,1,bert,\n")
    refused(run(*again), "are of TRACE jobs.csv (sha256 ")
    for text in ("{", "[]", "5", "[" * 100_000):
        (out / "checkpoints" / "options.json").write_text(text)
        refused(run(*again), "--resume: cannot read")
    refused(run("replay", jobs, "--resume"), "--resume needs -o, the folder of the results")
    refused(run("replay", jobs, "--checkpoint", "1"), "--checkpoint needs -o, the folder of the results")


def test_what_is_there_stays_when_the_cluster_cannot_do_what_is_asked(run, jobs, tmp_path):
    out = tmp_path / "out"
    command = ("replay", jobs, "--policy", "fifo", "-o", out)
    refused(run(*command, "--budget", "energy_j=1"), "but the idle cluster alone takes")
    assert not out.exists()
    run(*command, code=0)
    there = {file: file.read_bytes() for file in (out / "checkpoints").iterdir()}
    refused(run(*command, "--budget", "energy_j=1"), "but the idle cluster alone takes")
    refused(
        run(*command, "--sleep-after", "1", "--sleep-power", "5000"), "--sleep-power: must be at most 600"
    )
    assert {file: file.read_bytes() for file in (out / "checkpoints").iterdir()} == there


def test_an_old_summary_does_not_stay_beside_new_results(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("replay", jobs, "--policy", "fifo", "-o", out, code=0)
    (out / "fifo-0-power.csv").unlink()
    (out / "fifo-0-power.csv").mkdir()
    refused(run("replay", jobs, "--policy", "fifo", "-o", out), "fifo-0-power.csv': is a directory", lines=3)
    assert not (out / "summary.json").exists()


def test_tables_of_earlier_replays_are_told(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        same = run("replay", jobs, "--policy", "fifo", "--bound", "--bound-limit", 0.001, "-o", out)
        assert "earlier replays" not in same.stderr
    told = run("replay", jobs, "--policy", "elastic", "-o", out).stderr
    tables = ", ".join(f"fifo-0-{name}.csv" for name in ("jobs", "power", "rounds", "segments"))
    assert told.endswith(f"{out} still has 5 files of earlier replays: bound-0.json, {tables}\n")


def test_damaged_checkpoints_are_refused(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("replay", jobs, "--policy", "fifo", "-o", out)
    run(*command, code=0)
    (out / "checkpoints" / "fifo-0.done").write_bytes(b"what\n")
    refused(run(*command, "--resume"), "fifo-0.done: is not a checkpoint of the format")
    # Without --resume everything begins again.
    run(*command, code=0)
    run(*command, "--resume", code=0)
