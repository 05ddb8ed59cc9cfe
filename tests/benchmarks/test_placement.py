"""The placement benchmark compares with published values and goes on where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ("01-Random", "02-DotProd", "03-GpuClustering", "04-GpuPacking", "05-BestFit", "06-FGD")


def benchmark(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "placement.py"), "--runs", str(data / "runs.jsonl")]
    environment = {**os.environ, "WATTSCHED_DATA": str(data)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_runs_are_compared_and_kept(tmp_path: Path) -> None:
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
    first = benchmark(tmp_path)
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
    again = benchmark(tmp_path)
    assert (again.stdout, again.stderr) == (first.stdout, "")
