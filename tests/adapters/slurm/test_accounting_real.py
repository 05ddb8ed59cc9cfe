"""On a real Slurm with accounting: what ran is in the trace, live, as a table and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wattsched.adapters.slurm.accounting import FIELDS
from wattsched.adapters.slurm.trace import Said, ask_slurm, recorded


@pytest.fixture
def accounted(
    load_script: Any, root: Path | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Two nodes of eight GPUs that Slurm's commands find, and a database."""
    module = load_script("emulated_accounting")
    if why := module.missing(root):
        pytest.skip(why)
    with module.accounted_slurm(folder, 2, root=root) as running:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, running.environment[name])
        yield running


def test_jobs_that_ran(accounted: Any) -> None:
    again = accounted.submit("sleep 3", "--gres=gpu:8", "--account=speech", "--requeue")
    for _ in range(100):
        if "R" in accounted.run("squeue", "--noheader", "--format=%t"):
            break
        time.sleep(0.1)
    time.sleep(1.5)
    accounted.run("scontrol", "requeue", str(again))
    time.sleep(1.5)
    accounted.run("scontrol", "update", f"JobId={again}", "StartTime=now")
    whole = accounted.submit(
        *("sleep 2", "--nodes=2", "--gpus-per-node=8", "--account=vision", "--job-name=a|b", "--time=5")
    )
    failed = accounted.submit("srun sleep 1; exit 3", "--gres=gpu:A100:2", "--account=speech")
    array = accounted.submit("sleep 2", "--gres=gpu:1", "--array=0-2", "--account=speech")
    accounted.submit("sleep 1", "--account=speech")
    cancelled = accounted.submit("sleep 1", "--gres=gpu:1", "--hold")
    accounted.run("scancel", str(cancelled))
    for _ in range(200):  # until the daemon has written all of it
        states = accounted.run("sacct", "--allusers", "--noheader", "--allocations", "--format=State").split()
        if states.count("COMPLETED") == 6 and "FAILED" in states:
            break
        time.sleep(0.3)
    live = recorded(ask_slurm("now-1hour", "now"))
    jobs = {job.name: job for job in live.jobs}
    assert set(jobs) == {
        str(again),
        f"{again}#2",
        str(whole),
        str(failed),
        *(f"{array}_{task}" for task in range(3)),
    }
    assert live.ended == {"completed": 5, "failed": 1, "requeued": 1}
    assert (jobs[str(whole)].time_limit_s, jobs[str(failed)].time_limit_s) == (300, None)
    assert live.left_out["without GPUs"] == 1
    assert {job.gpu_type for job in jobs.values()} == {"A100"}
    assert (jobs[str(whole)].gpus, jobs[str(failed)].gpus) == (16, 2)
    assert (jobs[str(whole)].account, jobs[str(failed)].account) == ("vision", "speech")
    assert all(1 <= job.duration_s <= 20 for job in jobs.values())
    assert live.cluster is not None
    assert [(node.name, node.gpus, node.parent) for node in live.cluster.nodes] == [
        ("g1", 8, "r1"), ("g2", 8, "r1"),
    ]  # fmt: skip
    table = accounted.run(
        "sacct", "--allusers", "--duplicates", "--parsable2", f"--format={','.join(FIELDS)}"
    )
    document = accounted.run("sacct", "--allusers", "--duplicates", "--json")
    for text in (table, document):
        again = recorded(Said([text], [accounted.run("sinfo", "--json")]))
        assert {job.name: job for job in again.jobs} == jobs
