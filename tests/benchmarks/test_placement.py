"""The placement benchmark compares with published values and goes on where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("01-Random", "02-DotProd", "03-GpuClustering", "04-GpuPacking", "05-BestFit", "06-FGD")


def benchmark(data: Path, script: str = "placement.py", *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--runs", str(data / "runs.jsonl"), *more]
    environment = {**os.environ, "WATTSCHED_DATA": str(data)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two lists, of which one has published results: 90 % allocated, 1 % fragmented."""
    traces, results = tmp_path / "alibaba-gpu-2023", tmp_path / "fgd-results-2023"
    traces.mkdir()
    results.mkdir()
    (traces / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,9,2,T4\n")
    (traces / "openb_pod_list_default.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1000\n")
    (traces / "openb_pod_list_other.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1000\n")
    for file, value in (("allo", 90), ("frag", 1)):
        rows = [f"openb_pod_list_default,{policy},{value},{value},{value},{value}" for policy in POLICIES]
        text = "\n".join(["workload,sc_policy,40,80,100,130", *rows])
        (results / f"analysis_{file}_discrete.csv").write_text(text)
    return tmp_path


def test_runs_are_compared_and_kept(data: Path) -> None:
    first = benchmark(data)
    assert first.stdout.count("| `default` |" + " 100.00 (+10.00) |" * 6) == 2
    assert first.stdout.count("| `default` |" + " 0.00 (-1.00) |" * 6) == 3
    assert (
        "| `fgd` | 10.00 / 10.00 | 10.00 / 10.00 | 1.00 / 1.00 | 1.00 / 1.00 | 1.00 / 1.00 |" in first.stdout
    )
    assert "`other`" not in first.stdout
    # Idle, one of two GPUs and the CPU package, both GPUs.
    watts = "| 0.0 " * 5 + "| 0.2 " * 4 + "| 0.3 "
    assert f"| EOPC of `fgd`, kW {watts}|  |" in first.stdout
    assert first.stderr.count("default: pwr+fgd:") == 6
    again = benchmark(data)
    assert (again.stdout, again.stderr) == (first.stdout, "")


def test_curves_are_compared_at_every_published_point(data: Path) -> None:
    printed = benchmark(data, "placement_curves.py").stdout
    assert "| ours less published at | 40 % | 80 % | 100 % | 130 % | largest |" in printed
    assert "| `default` | -90.00 | -40.00 | +10.00 | +10.00 | 90.00 |" in printed
    assert "| `default` | -1.00 | -1.00 | -1.00 | -1.00 | 1.00 |" in printed
    assert "`other`" not in printed


def test_policies_are_compared_on_every_list(data: Path) -> None:
    """Two tasks for as many GPUs, and a third that comes behind the last point: all policies do the same."""
    printed = benchmark(data, "placement_lists.py", "--seeds", "7-8").stdout
    for name in ("default", "other"):
        all_hosted = "1.0000 | 1.0000 | 1.0000 | +0.0000 | never"
        assert f"| `{name}` | {all_hosted} | +0.00 % | +0.00 % | 0.0 |" in printed
    assert "Means over the seeds 7 to 8;" in printed
