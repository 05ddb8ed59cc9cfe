"""The shipped agent as a process, with tools that only note what they are asked."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.emulated_slurm import AGENT
from tests.adapters.processes import wait_for
from wattsched.adapters.agents import NodeReport, reports_in, written_in

TOOL = """#!/bin/sh
case "$*" in
*--query-gpu*) printf 'index, power.draw [W]\\n1, 250.10\\n2, 260.20\\n3, [N/A]\\n' ;;
*metric*) printf 'gpu,socket_power,gfx_voltage\\n1,250.1,N/A\\n2,260.2,N/A\\n' ;;
*) echo "$@" >> {calls}; [ ! -f {broken} ] || {{ echo "it is broken"; exit 3; }} ;;
esac
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start agents of a node by a call; they end with the test."""
    begun = list[subprocess.Popen[str]]()
    (tmp_path / "settings").mkdir(mode=0o755)

    def start(*options: str, tool: str = "nvidia-smi") -> subprocess.Popen[str]:
        program = tmp_path / "bin" / tool
        program.parent.mkdir(exist_ok=True)
        program.write_text(TOOL.format(calls=tmp_path / "calls", broken=tmp_path / "broken"))
        program.chmod(0o755)
        path = f"{program.parent}:/usr/bin:/bin"
        words = [sys.executable, "-I", str(AGENT), "--settings", str(tmp_path / "settings"), "--node", "g1"]
        begun.append(
            subprocess.Popen(
                [*words, "--every", "0.05", *options], env={"PATH": path}, stdout=subprocess.PIPE, text=True
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        process.terminate()
        process.wait(timeout=10)


def ask(folder: Path, job: str, **lines: str) -> None:
    """Write the settings of a job as we do: at once."""
    said = {"RUN": "0", "FREQUENCY_MHZ": "1005", "POWER_LIMIT_W": "", "GPUS": "'g1:1,2 g2:7'"} | lines
    text = "".join(f"WATTSCHED_{name}={value}\n" for name, value in said.items())
    (folder / "settings/.new").write_text(text)
    (folder / "settings/.new").chmod(0o644)
    os.replace(folder / "settings/.new", folder / "settings" / job)


def reported(folder: Path, **fields: Any) -> Any:
    """Jobs of the report, once one of them has these fields."""

    def look() -> Any:
        found, notes = reports_in(json.dumps(written_in(folder / "settings")), time.time())
        assert notes == []
        jobs = found["g1"].jobs if found else {}
        said = [one for one in jobs.values() if fields.items() <= one.model_dump().items()]
        return jobs if said or not fields else None

    return wait_for(look, 10.0)


def calls(folder: Path) -> list[str]:
    """Return the calls by which something was set."""
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def test_it_sets_what_changes_and_reports_what_it_did(agent: Callable[..., Any], tmp_path: Path) -> None:
    ask(tmp_path, "7")
    ask(tmp_path, "8", GPUS="'g2:0'")
    process = agent()
    (one,) = reported(tmp_path, frequency_mhz=1005).values()
    assert (one.run, one.power_w, one.power_limit_w, one.failed) == (0, 510.3, None, None)
    ask(tmp_path, "7", FREQUENCY_MHZ="1410", POWER_LIMIT_W="250.5")
    reported(tmp_path, frequency_mhz=1410, power_limit_w=250.5)
    expected = ["-i 1,2 -lgc 1005,1005", "-i 1,2 -lgc 1410,1410", "-i 1,2 -pl 250.5"]
    assert calls(tmp_path) == expected
    # Another agent after it does nothing again, but for another run of the job.
    process.terminate()
    process.wait(timeout=10)
    agent()
    ask(tmp_path, "9", GPUS="'g1:3'", FREQUENCY_MHZ="")
    assert reported(tmp_path, frequency_mhz=None)["9"].power_w is None
    assert calls(tmp_path) == expected
    ask(tmp_path, "7", RUN="1", FREQUENCY_MHZ="1410")
    reported(tmp_path, run=1, frequency_mhz=1410)
    assert calls(tmp_path) == [*expected, expected[1]]
    # Jobs that are gone leave the report.
    for job in ("7", "9"):
        (tmp_path / "settings" / job).unlink()
    wait_for(lambda: '"jobs": {}' in (tmp_path / "settings/nodes/g1.json").read_text(), 10.0)


def test_it_says_what_a_tool_refuses_and_tries_again(agent: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    ask(tmp_path, "7")
    agent()
    (one,) = reported(tmp_path, failed="it is broken").values()
    assert one.frequency_mhz is None
    (tmp_path / "broken").unlink()
    reported(tmp_path, failed=None, frequency_mhz=1005)


def test_amd_gpus(agent: Callable[..., Any], tmp_path: Path) -> None:
    ask(tmp_path, "7", POWER_LIMIT_W="300")
    agent(tool="amd-smi")
    assert reported(tmp_path, frequency_mhz=1005)["7"].power_w == 510.3
    assert calls(tmp_path) == ["set -g 1 2 --perf-determinism 1005", "set -g 1 2 --power-cap 300"]


def test_a_dry_run_prints_and_leaves_everything_alone(agent: Callable[..., Any], tmp_path: Path) -> None:
    ask(tmp_path, "7")
    process = agent("--dry-run")
    assert process.stdout.readline() == "nvidia-smi -i 1,2 -lgc 1005,1005\n"
    time.sleep(0.3)
    assert not (tmp_path / "settings/nodes").exists()
    assert calls(tmp_path) == []


@pytest.mark.parametrize(
    "lines",
    [
        {"GPUS": "'g1:1;reboot'"},
        {"GPUS": "'g1:$(reboot)'"},
        {"GPUS": "'g1:1,2,-r'"},
        {"GPUS": "g2:1"},
        {"RUN": "zero"},
        {"FREQUENCY_MHZ": "1005 -r"},
        {"FREQUENCY_MHZ": "999999"},
    ],
)
def test_what_is_no_number_is_set_nowhere(
    agent: Callable[..., Any], tmp_path: Path, lines: dict[str, str]
) -> None:
    ask(tmp_path, "7", **lines)
    ask(tmp_path, "8", GPUS="'g1:3'")
    agent()
    reported(tmp_path, frequency_mhz=1005)
    assert calls(tmp_path) == ["-i 3 -lgc 1005,1005"]


def test_links_pipes_and_files_for_all_to_write_are_no_settings_and_no_reports(
    agent: Callable[..., Any], tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    for job in ("1", "3"):
        ask(tmp_path, job)
    (settings / "1").chmod(0o666)
    (settings / "3").rename(tmp_path / "elsewhere")
    (settings / "3").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(settings / "4")
    ask(tmp_path, "5", GPUS="'g1:3'")
    agent()
    assert list(reported(tmp_path, frequency_mhz=1005)) == ["5"]
    assert calls(tmp_path) == ["-i 3 -lgc 1005,1005"]
    nodes, text = settings / "nodes", '{"time_s": 0, "jobs": {}}'
    for name in ("g2", "g6"):
        (nodes / f"{name}.json").write_text(text)
    (nodes / "g6.json").chmod(0o664)
    (nodes / "g4.json").symlink_to(nodes / "g2.json")
    os.mkfifo(nodes / "g5.json")
    (nodes / "$(reboot).json").write_text(text)
    assert set(written_in(settings)) == {"g1", "g2"}
    nodes.chmod(0o777)
    assert written_in(settings) == {}


@pytest.mark.usefixtures("as_root")
def test_files_of_others_are_no_settings_and_no_reports(agent: Callable[..., Any], tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    ask(tmp_path, "2")
    os.chown(settings / "2", 65534, 65534)
    ask(tmp_path, "5", GPUS="'g1:3'")
    agent()
    assert list(reported(tmp_path, frequency_mhz=1005)) == ["5"]
    assert calls(tmp_path) == ["-i 3 -lgc 1005,1005"]
    (settings / "nodes" / "g3.json").write_text('{"time_s": 0, "jobs": {}}')
    os.chown(settings / "nodes" / "g3.json", 65534, 65534)
    assert set(written_in(settings)) == {"g1"}


def test_reports_are_bounded_and_checked_and_grow_old() -> None:
    job = {"run": 0, "frequency_mhz": 1005, "power_limit_w": None, "power_w": 812.5}

    def text(**fields: Any) -> str:
        return json.dumps({"time_s": 1000.0, "jobs": {"7": job}} | fields)

    written = {
        "g1": text(),
        "g2": text(time_s=960),
        "g3": text(time_s=1040),
        "g4": text()[:-1],
        "g5": text(jobs={"7": job | {"power_w": -1}}),
        "g6": text(jobs={"7; reboot": job}),
        "g7": text(jobs={"7": job | {"failed": "x" * 2000}}),
        "g8": "[" * 60_000,
        "g9": text(other=1),
    }
    found, notes = reports_in(json.dumps(written), 1000.0)
    assert found == {"g1": NodeReport.model_validate({"time_s": 1000, "jobs": {"7": job}})}
    told = " ".join(notes)
    assert "the agent of 'g2', 'g3' has written no report for 30 s" in told
    assert "nodes/g5.json: jobs.7.power_w: must be" in told


def test_its_python_is_that_of_old_nodes() -> None:
    ast.parse(AGENT.read_text(), feature_version=(3, 6))
