"""Runs, and one round in shards, on a real cluster of two processes: the same outcomes, whatever is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import wattsched
from tests.cli.test_killed import session
from wattsched.cli import main
from wattsched.comparisons.run import Run, Settings
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import NoticeWarning
from wattsched.instances.io import write_json
from wattsched.instances.sizing.instance import Instance
from wattsched.replay.jobs.outcome import summary
from wattsched.running import dask_workers
from wattsched.running.dask_workers import DaskExecutor
from wattsched.running.executors import ClusterError, SerialExecutor, in_order

SECONDS_S = 60.0
"""For what takes a few seconds; the machine may be busy."""
SOLVERS = ["greedy", "highs"]
SETTINGS = Settings(gap=0.01, time_limit_s=None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskExecutor]:
    with wattsched.dask_executor("local:2") as executor:
        yield executor


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small instances of one family."""
    monkeypatch.chdir(tmp_path)
    for seed in range(4):
        write_json(f"{seed}.json", wattsched.generate("uniform", jobs=12, seed=seed))
    return [f"{seed}.json" for seed in range(4)]


def told(run: Run) -> dict[str, Any]:
    """What a run tells, but for the clock, the solver's path and what that leads to.

    Last digits may differ between workers and this process, and with them ties, where a solver stops that may
    leave a gap, whether the gap is closed, and who found the decision.
    """
    found = {"status", "limit", "objective", "bound", "gap", "decided_by", "detail"}
    path = {"columns", "rows", "nonzeros", "nodes", "root_bound", "trajectory", *found}
    path |= {f"solver_{name}" for name in found}
    return {
        name: value for name, value in asdict(run).items() if not name.endswith("_s") and name not in path
    }


@pytest.mark.slow
def test_comparisons_are_those_of_one_process(cluster: DaskExecutor, files: list[str]) -> None:
    made = wattsched.generate("sia-like", jobs=6, seed=1)
    here, spread = (
        wattsched.compare([files[0], made], solvers=SOLVERS, settings=SETTINGS, executor=executor)
        for executor in (None, cluster)
    )
    assert [told(run) for run in spread.runs] == [told(run) for run in here.runs]
    assert len(here.runs) == 4
    for one, other in zip(spread.runs, here.runs, strict=True):
        sign, slack = (1.0 if one.sense == "min" else -1.0), 1e-6 * abs(other.objective)
        # The bound of neither excludes what the other found.
        assert max(sign * one.bound, sign * other.bound) <= sign * one.objective + slack
        assert max(sign * one.bound, sign * other.bound) <= sign * other.objective + slack


@pytest.mark.slow
def test_replays_and_curves_are_those_of_one_process(
    cluster: DaskExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head, rows = "job,arrival_s,work,requested_gpus,model\n", "a,0,400000,2,resnet50\nb,100,300000,4,bert\n"
    Path("jobs.csv").write_text(head + rows)
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,9000,2,T4\nb,96000,9000,8,G2\n")
    Path("tasks.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n1000,10,1,500\n3000,10,2,1000\n")
    traces = wattsched.JobSource("jobs.csv").traces(homogeneous_cluster(2, 8, "A100"))
    settings = wattsched.ReplaySettings(budget=("energy_j", 1e9), sleep_after_s=60.0)
    journal = wattsched.Journal("out")
    figures: list[Any] = []
    for options in ({}, {"executor": cluster}, {"executor": cluster, "journal": journal}):
        outcomes = wattsched.replay_jobs(traces, ["elastic", "fifo"], settings=settings, **options)
        told = [(seed, summary(outcome).as_dict()) for seed, outcome in outcomes]
        figures.append([(seed, {k: v for k, v in of.items() if "decision" not in k}) for seed, of in told])
    assert figures[0] == figures[1] == figures[2]
    assert {file.name for file in Path("out/checkpoints").glob("*.done")} == {"elastic-0.done", "fifo-0.done"}
    experiment = wattsched.read_experiment("nodes.csv", "tasks.csv")
    one, two = (
        wattsched.place_tasks(experiment, ["fgd", "pwr"], seeds=[1, 2], executor=executor)
        for executor in (None, cluster)
    )
    for policy, curves in one.curves.items():
        assert curves.eopc_w.tolist() == two.curves[policy].eopc_w.tolist()


@pytest.mark.slow
def test_outcomes_come_in_order_and_everything_listens_on_loopback(cluster: DaskExecutor) -> None:
    def number_after(number: int, delay_s: float) -> int:
        time.sleep(delay_s)
        return number

    completed = list(cluster.completed(number_after, [(0, 0.5), (1, 0.0)]))
    assert completed == [(1, 1), (0, 0)]
    assert list(in_order(completed)) == [0, 1]
    this = psutil.Process()
    listening = [
        connection.laddr.ip
        for process in (this, *this.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}


@pytest.mark.slow
def test_a_folder_that_workers_do_not_have_is_named(cluster: DaskExecutor, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job,arrival_s,work,requested_gpus,model\na,0,4000,2,resnet50\n")
    trace = wattsched.JobSource(tmp_path / "jobs.csv").traces(homogeneous_cluster(1, 8, "A100"))
    journal = wattsched.Journal(tmp_path / "out")
    outcomes = wattsched.replay_jobs(trace, ["fifo"], journal=journal, executor=cluster)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"folder: '.*out' is not there on .*; all workers need to share it"):
        list(outcomes)


@pytest.mark.slow
def test_a_run_whose_worker_is_lost_is_done_again(cluster: DaskExecutor, tmp_path: Path) -> None:
    def number_after(number: int, delay_s: float) -> int:
        (tmp_path / f"{number}-{os.getpid()}").touch()
        time.sleep(delay_s)
        return number

    completed = cluster.completed(number_after, [(0, 0.1), (1, 2.0), (2, 0.1), (3, 0.1)])
    found = [next(completed)]
    deadline = time.monotonic() + SECONDS_S
    while not (begun := list(tmp_path.glob("1-*"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    pid = int(begun[0].name.partition("-")[2])
    assert pid in [child.pid for child in psutil.Process().children()]
    os.kill(pid, signal.SIGKILL)
    assert sorted([*found, *completed]) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert len(list(tmp_path.glob("1-*"))) == 2


@pytest.mark.slow
def test_ctrl_c_ends_the_cluster_and_the_comparison_goes_on_later(
    cluster: DaskExecutor, files: list[str]
) -> None:
    options = ["--solvers", ",".join(SOLVERS), "--gap", "0.01", "--time-limit", "inf", "-o", "out"]
    command = [sys.executable, "-P", "-m", "wattsched", "compare", *files, *options, "--dask", "local:2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + SECONDS_S
        while not list(Path("out/runs").glob("[!.]*.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        printed, said = process.communicate(timeout=SECONDS_S)
    assert (process.returncode, printed, said.split()) == (130, "", ["interrupted"])
    while (left := session(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    before = list(Path("out/runs").iterdir())
    assert before, f"no run was finished within {SECONDS_S:g} s"
    again = wattsched.compare(files, solvers=SOLVERS, settings=SETTINGS, folder="out", executor=cluster)
    assert again.resumed == len(before) < len(again.runs) == 8
    assert again.disagreements == again.failures == []


def in_this_process(workers: int, threads: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    )


def test_workers_that_come_later_are_used() -> None:
    with in_this_process(0, 1) as made, wattsched.dask_executor(made) as executor:
        threading.Timer(0.2, made.scale, [1]).start()
        with pytest.warns(NoticeWarning, match="has no worker yet; waiting for one"):
            found = list(executor.completed(abs, [(-1,), (2,)]))
    assert sorted(found) == [(0, 1), (1, 2)]


def test_workers_that_were_asked_for_count() -> None:
    with in_this_process(0, 1) as made, wattsched.dask_executor(made) as executor:
        assert executor.workers() == 1
        made.scale(3)
        assert executor.workers() == 3


def test_workers_of_several_threads_are_refused() -> None:
    with in_this_process(1, 2) as made, Client(made) as client, wattsched.dask_executor(client) as executor:
        with pytest.raises(ClusterError, match="has 2 threads, whose runs would hold each other up"):
            list(executor.completed(abs, [(-1,)]))
        assert client.status == "running"


def test_a_scheduler_that_is_gone_is_told() -> None:
    with in_this_process(1, 1) as made, wattsched.dask_executor(made) as executor:
        completed = executor.completed(time.sleep, [(0.0,), (1.0,)])
        next(completed)
        made.close()
        with pytest.raises(ClusterError, match=r"the Dask scheduler at tcp://.+ is gone"):
            next(completed)


@pytest.mark.slow
def test_a_run_that_ends_its_workers_is_not_tried_for_ever() -> None:
    once = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with once, wattsched.dask_executor("local:1") as executor:
        completed = executor.completed(os._exit, [(1,)])
        with pytest.raises(ClusterError, match="a run lost its worker 2 times, the last time at tcp://"):
            next(completed)


def test_workers_of_other_versions_are_refused(
    cluster: DaskExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattsched.running.dask_workers.versions", lambda: {"wattsched": "0.0.1"})
    with pytest.raises(ClusterError, match=r"has wattsched [\d.]+, and the client 0\.0\.1; install the same"):
        list(cluster.completed(abs, [(-1,)]))


REFUSED = {
    "": "'' is neither 'local', 'local:N' nor an address such as tcp://host:8786",
    "first.json": "'first.json' is neither 'local'",
    "local:0": "'local:0' is not of 1 to 256 processes",
    "tcp://127.0.0.1:99999": "'tcp://127.0.0.1:99999' is neither",
    "tcp://127.0.0.1:9": "no Dask scheduler answers at 'tcp://127.0.0.1:9' within 0.5 s",
    "tls://127.0.0.1:9": "the address 'tls://127.0.0.1:9' cannot be used: TLS expects",
}


def refused(*arguments: str) -> str:
    """What a command says in a line."""
    result = CliRunner().invoke(main, list(arguments))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    return result.stderr


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_of_no_scheduler(address: str, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattsched.running.dask_clusters.ANSWER_S", 0.5)
    assert REFUSED[address] in refused("compare", files[0], "--dask", address)


def test_what_listens_and_is_no_scheduler(
    cluster: DaskExecutor, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = next(iter(cluster._client.scheduler_info()["workers"]))
    assert f"'{worker}' is a Dask worker" in refused("compare", files[0], "--dask", worker)
    monkeypatch.setattr("wattsched.running.dask_clusters.ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "no Dask scheduler answers" in refused("compare", files[0], "--dask", address)


def test_without_the_extra_it_is_named_and_nothing_else_needs_it(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import sys; from wattsched.cli import main; main(sys.argv[1:], standalone_mode=False); "
        "assert not {'dask', 'distributed', 'cloudpickle'} & set(sys.modules)"
    )
    command = [sys.executable, "-P", "-c", script, "compare", files[0], "--solvers", "greedy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = refused("compare", files[0], "--dask")
    assert "distributed, which is not installed (pip install 'wattsched[cluster]')" in said


@pytest.fixture(scope="module")
def large() -> Instance:
    """Round of more options than are written down."""
    return wattsched.generate("uniform", jobs=600, seed=3)


def answer(instance: Instance, executor: Any) -> dict[str, Any]:
    """What is answered, but for the clock."""
    result = wattsched.solve(instance, gap=1e-5, executor=executor)
    return {name: value for name, value in result.model_dump().items() if name != "time_s"}


@pytest.mark.slow
def test_the_answer_is_that_of_one_process_also_when_a_worker_is_lost(
    cluster: DaskExecutor, large: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = answer(large, None)
    assert here["termination"]["reason"] == "optimal"
    assert answer(large, SerialExecutor()) == answer(large, cluster) == here
    each, passes = dask_workers._OnWorkers.each, []

    def killing(self: Any, *arguments: Any) -> Any:
        passes.append(arguments[0].__name__)
        if len(passes) in (3, 6):
            workers = [child.pid for child in psutil.Process().children() if "spawn_main" in cmdline(child)]
            threading.Timer(0.01, os.kill, [workers[0], signal.SIGKILL]).start()
        return each(self, *arguments)

    monkeypatch.setattr(dask_workers._OnWorkers, "each", killing)
    assert answer(large, cluster) == here
    assert len(passes) > 6


def cmdline(process: psutil.Process) -> str:
    """Words of a process, none of one that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


@pytest.mark.slow
def test_a_lost_value_is_made_again_and_its_call_repeated(cluster: DaskExecutor, tmp_path: Path) -> None:
    def looked_at(value: int, delay_s: float) -> int:
        (tmp_path / f"{value}-{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(delay_s)
        return value

    def kill() -> None:
        deadline = time.monotonic() + SECONDS_S
        while not (begun := list(tmp_path.glob("1-*"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(int(begun[0].name.split("-")[1]), signal.SIGKILL)

    kept = cluster.kept([0, 1])
    assert kept.each(abs) == [0, 1]
    killer = threading.Thread(target=kill)
    killer.start()
    assert kept.each(looked_at, 2.0) == [0, 1]
    killer.join()
    assert len(list(tmp_path.glob("1-*"))) == 2
    assert kept.each(abs) == [0, 1]


@pytest.mark.slow
def test_by_command(large: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_json("round.json", large)
    options = ["solve", "round.json", "--gap", "1e-5", "--time-limit", "inf", "-o", "answer.json"]
    result = CliRunner().invoke(main, [*options, "--dask", "local:2"])
    assert result.exit_code == 0, result.stderr
    assert "spread" in wattsched.read_result("answer.json").time_s
    here, spread = (
        CliRunner().invoke(main, ["check", "round.json", "answer.json", *more])
        for more in ([], ["--dask", "local:2"])
    )
    assert here.exit_code == spread.exit_code == 0
    assert here.stdout == spread.stdout


@pytest.mark.slow
@pytest.mark.parametrize("family", ["uniform", "shifting"])
def test_what_is_not_solved_in_shards(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = wattsched.generate(family, jobs=4, seed=1)
    told = "this cannot be spread over a cluster: only large rounds of sizing"
    with pytest.raises(ClusterError, match=told):
        wattsched.solve(small, executor=SerialExecutor())
    write_json("round.json", small)
    result = CliRunner().invoke(main, ["solve", "round.json", "--dask", "local:1"])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert told in result.stderr
    result = CliRunner().invoke(main, ["solve", "round.json", "-o", "answer.json"])
    assert result.exit_code == 0
    if family == "shifting":
        result = CliRunner().invoke(main, ["check", "round.json", "answer.json", "--dask", "local:1"])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "only rounds of sizing are checked over a cluster, this is of 'shifting'" in result.stderr
    with pytest.raises(TypeError, match="executor must be what dask_executor gives"):
        wattsched.solve(small, executor="local")
