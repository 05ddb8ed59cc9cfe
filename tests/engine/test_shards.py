"""One round in shards on a real cluster of two processes: the same answer, lost workers, what is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import wattsched
from wattsched import dask_workers
from wattsched.cli import main
from wattsched.dask_workers import DaskExecutor
from wattsched.executors import ClusterError, SerialExecutor
from wattsched.instances.io import write_json
from wattsched.instances.sizing.instance import Instance

SECONDS_S = 60.0
"""For what takes a few seconds; the machine may be busy."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskExecutor]:
    with wattsched.dask_executor("local:2") as executor:
        yield executor


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
