"""``wattsched import slurm`` and ``kubernetes``: a folder that ``replay`` takes, and refusals in a line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SITE = [EXAMPLES / "site" / name for name in ("sacct.txt", "nodes.txt", "topology.conf")]
CSV = "job,arrival,duration,gpus,model\na,2026-11-03 08:00,3600,2,bert\nb,2026-11-03 08:10,01:00:00,4,\n"


def test_a_site_is_imported_and_replayed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("import", "slurm", *SITE, "--time-zone", "Europe/Berlin", "-o", "site")
    assert done.exit_code == 0
    assert "48 jobs of 5 users and 3 accounts: 43 completed" in done.stdout
    assert "left out: 3 without GPUs, 1 never started, 1 still waiting" in done.stdout
    head, first, *_ = Path("site/jobs.csv").read_text().splitlines()
    assert head == "job,arrival,duration,gpus,gpu_type,watts,user,account"
    assert first.startswith("4101,2026-11-02T07:10:57Z,10606,1,A100,")  # 08:10:57 in Berlin
    replayed = run(
        "replay", "site/jobs.csv", "--cluster", "site/cluster.json", "--policy", "fifo,sizing", "--json"
    )
    assert replayed.exit_code == 0
    assert set(json.loads(replayed.stdout)["policies"]) == {"fifo", "sizing"}
    assert "assumed: 48 of 48 jobs name no model" in replayed.stderr
    assert (
        run("import", "csv", "site/jobs.csv", "--cluster", "site/cluster.json", "-o", "r.json").exit_code == 0
    )


def test_a_kubernetes_cluster_is_imported(run, tmp_path):
    done = run("import", "kubernetes", EXAMPLES / "kubernetes.json", "-o", tmp_path / "site")
    assert done.exit_code == 0
    assert "2 jobs of 1 account: 2 running" in done.stdout
    assert run("show", tmp_path / "site" / "cluster.json").exit_code == 0


def test_a_plain_list_is_replayed_for_several_seeds_and_days(run, write):
    path = write(CSV, "jobs.csv")
    done = run("replay", path, "--seeds", "1-2", "--to", "1", "--policy", "fifo", "--json")
    assert done.exit_code == 0
    assert [one["jct_mean_s"] for one in json.loads(done.stdout)["policies"]["fifo"]] == [3600.0, 3600.0]


def test_jobs_that_are_not_elastic_run_on_the_gpus_that_they_asked_for(run, write, tmp_path):
    path = write(CSV, "jobs.csv")
    for elasticity, alike in ((1, True), (4, False)):
        options = ("--policy", "sizing", "--round", "0", "--elasticity", elasticity)
        assert run("replay", path, *options, "-o", tmp_path / str(elasticity)).exit_code == 0
        with (tmp_path / str(elasticity) / "sizing-0-jobs.csv").open() as file:
            held = {row["job"]: float(row["gpu_s"]) / float(row["held_s"]) for row in csv.DictReader(file)}
        assert (held == pytest.approx({"a": 2, "b": 4}, rel=1e-6)) == alike


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["slurm", SITE[1], "-o", "site"], "no file tells jobs: give what 'sacct --parsable2'"),
        (["slurm", SITE[0], SITE[0], "-o", "site"], "sacct.txt: the file is named twice"),
        (
            ["slurm", EXAMPLES / "demo.json", "-o", "site"],
            "demo.json: has neither 'jobs' of sacct --json nor",
        ),
        (["slurm", "missing.txt", "-o", "site"], "missing.txt: no such file or directory"),
        (["slurm", *SITE, "--time-zone", "Mars", "-o", "site"], "'Mars' is no time zone such as"),
        (["slurm", *SITE, "--since", "2026-11-01", "-o", "site"], "--since does not go with files"),
        (["slurm", *SITE, "--stand-in", "H9", "-o", "site"], "--stand-in: 'H9' is not TYPE=KNOWN"),
        (
            ["slurm", *SITE, "--stand-in", "H9=A100", "-o", "site"],
            "--stand-in: no node has GPUs of type 'H9'",
        ),
        (
            ["slurm", *SITE, "--stand-in", "A100=H9", "-o", "site"],
            "--stand-in: 'H9' is not known, choose one of",
        ),
        (["slurm", *SITE], "missing option '-o'"),
        (["kubernetes", "-o", "site"], "missing argument 'FILES...'"),
        (["kubernetes", SITE[0], "-o", "site"], "sacct.txt: is not valid JSON"),
        (["kubernetes", EXAMPLES / "demo.json", "-o", "site"], "demo.json: is no list such as"),
    ],
)
def test_imports_that_are_refused_leave_nothing(run, tmp_path, monkeypatch, arguments, fault):
    monkeypatch.chdir(tmp_path)
    done = run("import", *arguments)
    assert done.exit_code == 2
    assert fault in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_without_slurm_it_is_said_what_to_do(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("import", "slurm", "-o", tmp_path / "site")
    assert done.exit_code == 2
    assert "'sacct' is not installed on this machine; without Slurm's commands, name files" in done.stderr
    assert not list(tmp_path.iterdir())
