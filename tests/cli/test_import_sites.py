"""``wattsched import slurm`` and ``kubernetes``: a folder that ``replay`` takes, and refusals in a line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from .conftest import refused

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SITE = [EXAMPLES / "site" / name for name in ("sacct.txt", "nodes.txt", "topology.conf")]
CSV = "job,arrival,duration,gpus,model\na,2026-11-03 08:00,3600,2,bert\nb,2026-11-03 08:10,01:00:00,4,\n"


def _parts(trace: Path) -> tuple[list[str], list[str]]:
    """Comments of a trace, and its other lines."""
    lines = trace.read_text().splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    return comments, lines[len(comments) :]


def test_a_site_is_imported_and_replayed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("import", "slurm", *SITE, "--time-zone", "Europe/Berlin", "-o", "site", code=0)
    assert "48 jobs of 5 users and 3 accounts, 637 GPU h\n" in done.stdout
    assert "  left out      3      0  without GPUs\n  left out      1      0  never started\n" in done.stdout
    comments, (head, first, *_) = _parts(Path("site/jobs.csv"))
    assert comments[0] == "imported from Slurm: 48 jobs of 5 users and 3 accounts, 637 GPU h"
    assert "left out: without GPUs, 3 jobs, 0 GPU h" in comments
    assert comments[-1].startswith("doubtful: jobs hold 47 GPUs on 2026-11-03 01:04:32 UTC, of 40 that there")
    assert head == "job,arrival,duration,gpus,gpu_type,watts,wait,user,account,job_name"
    assert first.startswith("4101,2026-11-02T07:10:57Z,10606,1,A100,")  # 08:10:57 in Berlin
    replayed = run(
        "replay",
        "site/jobs.csv",
        "--cluster",
        "site/cluster.json",
        "--policy",
        "fifo,sizing",
        "--json",
        code=0,
    )
    assert set(json.loads(replayed.stdout)["policies"]) == {"fifo", "sizing"}
    assert "assumed: 48 of 48 jobs name no model" in replayed.stderr
    assert (
        run("import", "csv", "site/jobs.csv", "--cluster", "site/cluster.json", "-o", "r.json").exit_code == 0
    )


def test_a_trace_never_comes_to_stand_beside_the_cluster_of_another(run, tmp_path):
    site = tmp_path / "site"
    alone = ("import", "slurm", SITE[0], "--time-zone", "UTC", "-o")
    assert "no nodes were told, and so there is no cluster" in run(*alone, tmp_path / "new").stdout
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["jobs.csv"]
    run("import", "slurm", *SITE, "--time-zone", "Europe/Berlin", "-o", site, code=0)
    before = {file.name: file.read_bytes() for file in site.iterdir()}
    refused = run(*alone, site)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {site / 'cluster.json'} is there already")
    assert {file.name: file.read_bytes() for file in site.iterdir()} == before
    # What is named is made anew.
    run("import", "slurm", *SITE, "--time-zone", "UTC", "-o", site, code=0)
    assert (site / "jobs.csv").read_bytes() != before["jobs.csv"]
    assert (site / "cluster.json").read_bytes() == before["cluster.json"]


def test_it_is_said_which_files_of_an_earlier_import_are_replaced_by_others(run, tmp_path):
    again = ("import", "slurm", *SITE, "--time-zone", "UTC", "-o", tmp_path / "site")
    cluster = tmp_path / "site" / "cluster.json"
    assert "note:" not in run(*again).stderr
    assert "note:" not in run(*again).stderr
    cluster.write_text(cluster.read_text().replace("200", "3200"))
    notes = [line for line in run(*again).stderr.splitlines() if line.startswith("note:")]
    assert notes == [f"note: {cluster} held something else before, which is replaced"]


def test_gpu_types_of_jobs_that_no_node_has_are_told(run, tmp_path, write):
    nodes = write(SITE[1].read_text().replace("A100", "A1oo"), "nodes.txt")
    said = run("import", "slurm", SITE[0], nodes, "--time-zone", "UTC", "-o", tmp_path / "site").stdout
    assert "no node has GPUs of type 'a100', which " in said
    assert "nodes have " in said
    assert "is not known (did you mean 'A100'?) and counts as A100" in said


def test_a_kubernetes_cluster_is_imported(run, tmp_path):
    done = run("import", "kubernetes", EXAMPLES / "kubernetes.json", "-o", tmp_path / "site", code=0)
    assert "2 jobs of 1 account, 8.137 GPU h\n" in done.stdout
    assert "  left out     7      0  still waiting\n" in done.stdout
    run("show", tmp_path / "site" / "cluster.json", code=0)


def test_pages_that_the_files_lack_are_pointed_at(run, tmp_path, write):
    document = json.loads((EXAMPLES / "kubernetes.json").read_text())
    told = {"metadata": {"continue": "eyJ2Ijoi", "remainingItemCount": 2}}
    first = write(document | told, "first.json")
    rest = write({"kind": "List", "items": [{"kind": "Event"}] * 2}, "rest.json")
    for files, lacks in (([first], True), ([first, rest], False)):
        done = run("import", "kubernetes", *files, "-o", tmp_path / "site", code=0)
        assert ("breaks off before its last page: 2 items missing" in done.stdout) == lacks


def test_the_order_of_the_files_of_a_kubernetes_cluster_is_no_matter(run, tmp_path, write):
    pods = [
        one for one in json.loads((EXAMPLES / "kubernetes.json").read_text())["items"] if one["kind"] == "Pod"
    ]
    old = next(one for one in pods if one["metadata"]["name"] == "old")
    end = {"terminated": {"finishedAt": old["status"]["startTime"].replace(":00Z", ":01Z")}}
    status = {**old["status"], "phase": "Succeeded", "containerStatuses": [{"state": end}]}
    ended = {**old, "status": status}
    files = [write({"items": [one]}, f"{name}.json") for name, one in (("old", old), ("ended", ended))]
    for order in (files, files[::-1]):
        run("import", "kubernetes", *order, "-o", tmp_path / "site", code=0)
        rows = csv.DictReader(_parts(tmp_path / "site" / "jobs.csv")[1])
        assert [(row["job"], float(row["duration"])) for row in rows] == [("default/old", 1)]


def test_a_plain_list_is_replayed_for_several_seeds_and_days(run, write):
    path = write(CSV, "jobs.csv")
    done = run("replay", path, "--seeds", "1-2", "--to", "1", "--policy", "fifo", "--json", code=0)
    assert [one["jct_mean_s"] for one in json.loads(done.stdout)["policies"]["fifo"]] == [3600.0, 3600.0]


def test_jobs_that_are_not_elastic_run_on_the_gpus_that_they_asked_for(run, write, tmp_path):
    path = write(CSV, "jobs.csv")
    for elasticity, alike in ((1, True), (4, False)):
        options = ("--policy", "sizing", "--round", "0", "--elasticity", elasticity)
        run("replay", path, *options, "-o", tmp_path / str(elasticity), code=0)
        with (tmp_path / str(elasticity) / "sizing-0-jobs.csv").open() as file:
            held = {row["job"]: float(row["gpu_s"]) / float(row["held_s"]) for row in csv.DictReader(file)}
        assert (held == pytest.approx({"a": 2, "b": 4}, rel=1e-6)) == alike


def test_without_slurm_it_is_said_what_to_do(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(
        run("import", "slurm", "-o", tmp_path / "site"),
        "'sacct' is not installed on this machine; without Slurm's commands, name files",
    )
    assert not list(tmp_path.iterdir())


def test_faults_name_the_file_they_are_in(run, tmp_path, write):
    kube = json.loads((EXAMPLES / "kubernetes.json").read_text())
    place = next(n for n, one in enumerate(kube["items"]) if one["kind"] == "Pod")
    kube["items"][place]["spec"]["containers"] = 7
    name = kube["items"][place]["metadata"]["name"]
    bad = write(kube, "bad.json")
    done = run("import", "kubernetes", EXAMPLES / "kubernetes.json", bad, "-o", tmp_path / "site", code=2)
    fault = f"items[{place}], Pod '{name}': spec.containers: must be a list, got 7"
    assert done.stderr == f"error: {bad}: {fault}\n"
    bad = write("JobID|State|Submit|Start|Elapsed|AllocTRES\n1|x|1|2|00:01:00|gres/gpu=abc\n", "bad.txt")
    done = run("import", "slurm", SITE[0], bad, "-o", tmp_path / "site", code=2)
    assert done.stderr == (
        f"error: {bad}: line 2, column 'AllocTRES': 'gres/gpu=abc' has no whole number of GPUs\n"
    )
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("scheduler", "file", "others"),
    [("slurm", SITE[0], SITE[1:]), ("kubernetes", EXAMPLES / "kubernetes.json", [])],
)
def test_standard_input_is_a_file_like_others(run, tmp_path, scheduler, file, others):
    zone = ("--time-zone", "UTC") if scheduler == "slurm" else ()
    named = run("import", scheduler, file, *others, *zone, "-o", tmp_path / "named")
    piped = run("import", scheduler, "-", *others, *zone, "-o", tmp_path / "piped", stdin=file.read_text())
    assert (named.exit_code, piped.exit_code) == (0, 0)
    for name in ("jobs.csv", "cluster.json"):
        assert (tmp_path / "named" / name).read_text() == (tmp_path / "piped" / name).read_text()
    done = run("import", scheduler, "-", *zone, "-o", tmp_path / "none", stdin="nothing", code=2)
    assert done.stderr.startswith("error: standard input: is n")
    done = run("import", scheduler, "-", "-", *zone, "-o", tmp_path / "none", stdin="nothing")
    assert done.stderr == "error: standard input: the file is named twice\n"


def test_names_of_any_length_can_be_replayed(run, tmp_path, write):
    long = "n" * 5_000
    text = f"JobID|State|Submit|Start|Elapsed|AllocTRES|User\n7|x|1|2|00:01:00|gres/gpu=1|{long}\n"
    done = run("import", "slurm", write(text, "sacct.txt"), "-o", tmp_path / "site", code=0)
    assert "names cut to 200 characters" in done.stdout
    run("replay", tmp_path / "site" / "jobs.csv", "--policy", "fifo", code=0)


@pytest.mark.parametrize(
    "command", [("replay",), ("savings", "--no-inputs", "--policy", "fifo"), ("import", "csv")]
)
def test_a_list_is_read_from_standard_input(run, write, command):
    own = ("--at", 600) if command[0] == "import" else ("--json", "--seeds", 0)
    path = write(CSV, "jobs.csv")
    named, piped = run(*command, path, *own), run(*command, "-", *own, stdin=CSV)
    assert (named.exit_code, piped.exit_code) == (0, 0)
    for line in piped.stderr.splitlines():
        assert line.startswith(("standard input: ", "assumed: 2 nodes", "at most 17 replays to come", "  "))
    assert (command[0] == "savings") == ("at most 17 replays to come\n" in named.stderr)
    if command[0] == "import":
        said, other = json.loads(piped.stdout), json.loads(named.stdout)
        assert said["name"].startswith("standard input")
        assert (said["jobs"], said["cluster"]) == (other["jobs"], other["cluster"])
    refused(
        run(*command, "-", *own, stdin="job,arrival,duration,gpus\na,x,60,1\n"),
        "error: standard input, line 2, column 'arrival': 'x' is neither",
    )


@pytest.mark.parametrize(
    "command", [("replay", "--policy", "fifo", "--json"), ("import", "csv", "--at", 600)]
)
def test_a_cluster_of_any_gpus_is_made_and_what_it_assumes_is_said(run, write, command):
    path = write("job,arrival,duration,gpus,gpu_type\na,0,3600,2,rtx5090\n", "jobs.csv")
    done = run(*command, path, "--gpu-type", "rtx5090=A100", code=0)
    assert "assumed: GPU type 'rtx5090' counts as A100, as you say\n" in done.stderr
    assert "assumed: 2 nodes with 8 rtx5090 each\n" in done.stderr
    assert "assumed: 2 nodes" not in run(*command, path, "--gpu-type", "rtx5090=A100", "--nodes", 2).stderr
    bare = write("job,arrival,duration,gpus\na,0,3600,2\n", "bare.csv")
    lower, upper = (run(*command, bare, "--gpu-type", name) for name in ("h100", "H100"))
    assert (lower.exit_code, lower.stderr) == (0, upper.stderr)
    assert "assumed: 2 nodes with 8 H100 each\n" in lower.stderr
    done = run(*command, path, "--gpu-type", "V10", code=2)
    assert done.stderr.startswith(
        "error: --gpu-type: 'V10' is not known (did you mean 'V100'?), choose one of"
    )
    assert len(done.stderr.splitlines()) == 1


def test_what_an_import_left_out_is_in_reports_of_its_trace(run, tmp_path, write):
    pytest.importorskip("jinja2")
    text = (
        "JobID|State|Submit|Eligible|Start|Elapsed|AllocTRES|User\n"
        "7|COMPLETED|100|100|150|01:00:00|gres/gpu=2|<b>x\n8|RUNNING|100|100|200|3-00:00:00|gres/gpu=1|ann\n"
        "9|COMPLETED|1|1|2|00:01:00|cpu=1|ann\n9.0|x|1|1|2|1|cpu=1|\n"
    )
    run("import", "slurm", write(text, "sacct.txt"), "--time-zone", "UTC", "-o", tmp_path / "site", code=0)
    trace, page = tmp_path / "site" / "jobs.csv", tmp_path / "page.html"
    told = [
        *("imported from Slurm: 2 jobs of 2 users, 74 GPU h", "read: completed, 1 job, 2 GPU h"),
        *("read: running, 1 job, 72 GPU h", "left out: without GPUs, 1 job, 0 GPU h"),
        "assumed: still running: what they have run is all of it, 1 job, 72 GPU h",
    ]
    replayed = run("replay", trace, "--policy", "fifo", "--to", 1, "--report", page, code=0)
    assert "doubtful: longer than the 1 days asked for, 1 job, 72 GPU h" in replayed.stderr
    for one in told:
        assert f"{trace}: {one}\n" in replayed.stderr
        assert one in page.read_text()
    options = ("--no-inputs", "--policy", "fifo", "--seeds", 0)
    saved = run("savings", trace, *options, "--json", "--report", page, code=0)
    assert {f"the trace: {one}" for one in told} <= {*json.loads(saved.stdout)["assumptions"]}
    assert all(one in page.read_text() for one in told)


def test_rounds_of_traces_say_what_was_read_and_left_out(run, write):
    itp = "job_id,submission_time,duration,num_gpu\na,0,7200,2\nb,0,60,1\nc,10,5,0\nd,20,7200,4\n"
    said = run("import", "itp", write(itp, "itp.csv"), "--at", 1000, code=0).stderr
    rows = [line.split(maxsplit=3) for line in said.splitlines() if line.startswith("  ")]
    assert ["read", "4", "12.02", "jobs"] in rows
    assert ["left", "out", "1", "0  without GPUs or duration"] in rows
    assert ["left", "out", "1", "0.01667  not in the system at the moment of the round"] in rows
    assert ["assumed", "2", "12", "models drawn by the seed"] in rows
    nodes = write("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1,2,P100\nn2,96000,1,8,G3\n", "nodes.csv")
    assert run("import", "openb", nodes, code=0).stderr.split()[-5:] == ["2", "nodes", "with", "10", "GPUs"]
