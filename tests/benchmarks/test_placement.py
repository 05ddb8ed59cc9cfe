"""The placement benchmark compares with published values and goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

POLICIES = ("01-Random", "02-DotProd", "03-GpuClustering", "04-GpuPacking", "05-BestFit", "06-FGD")

Benchmark = Callable[..., tuple[str, str]]


@pytest.fixture
def benchmark(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Benchmark:
    """Two lists, of which one has published results: 90 % allocated, 1 % fragmented."""
    script = load_script("placement")
    traces, results = tmp_path / "alibaba-gpu-2023", tmp_path / "fgd-results-2023"
    traces.mkdir()
    results.mkdir()
    (traces / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,9,2,T4\n")
    for name in ("default", "other"):
        text = "cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1000\n"
        (traces / f"openb_pod_list_{name}.csv").write_text(text)
    for file, value in (("allo", 90), ("frag", 1)):
        rows = [f"openb_pod_list_default,{policy},{value},{value},{value},{value}" for policy in POLICIES]
        text = "\n".join(["workload,sc_policy,40,80,100,130", *rows])
        (results / f"analysis_{file}_discrete.csv").write_text(text)
    monkeypatch.setenv("WATTSCHED_DATA", str(tmp_path))
    monkeypatch.setattr(script, "POWER_LISTS", ("default",))

    def run(table: str, seeds: int = 2) -> tuple[str, str]:
        script.experiment.cache_clear()
        script.published.cache_clear()
        asked = ["--runs", str(tmp_path / "runs.jsonl"), "--seeds", str(seeds), "--only", table]
        monkeypatch.setattr("sys.argv", ["placement", *asked])
        script.run(None, script.TABLES, seeds=10, runs="", processes=1)
        return capsys.readouterr()

    return run


def test_runs_are_compared_and_kept(benchmark: Benchmark) -> None:
    printed, told = benchmark("placement-reproduction")
    assert printed.count("| `default` |" + " 100.00 (+10.00) |" * 6) == 2
    assert printed.count("| `default` |" + " 0.00 (-1.00) |" * 6) == 3
    assert "| `fgd` | 10.00 / 10.00 | 10.00 / 10.00 | 1.00 / 1.00 | 1.00 / 1.00 | 1.00 / 1.00 |" in printed
    assert "`other`" not in printed
    assert told.count("default: ") == 6
    assert benchmark("placement-reproduction") == (printed, "")


def test_power_is_compared_with_that_of_fgd(benchmark: Benchmark) -> None:
    """Idle, one of two GPUs and the CPU package, both GPUs."""
    watts = "| 0.0 " * 5 + "| 0.2 " * 4 + "| 0.3 "
    assert f"| EOPC of `fgd`, kW {watts}|  |" in benchmark("placement-power")[0]


def test_curves_are_compared_at_every_published_point(benchmark: Benchmark) -> None:
    printed, _ = benchmark("placement-curves")
    assert "| ours less published at | 40 % | 80 % | 100 % | 130 % | largest |" in printed
    assert "| `default` | -90.00 | -40.00 | +10.00 | +10.00 | 90.00 |" in printed
    assert "| `default` | -1.00 | -1.00 | -1.00 | -1.00 | 1.00 |" in printed
    assert "`other`" not in printed


def test_policies_are_compared_on_every_list(benchmark: Benchmark) -> None:
    """Two tasks for as many GPUs, and a third that comes behind the last point: all policies do the same."""
    printed, _ = benchmark("placement-lists")
    for name in ("default", "other"):
        all_hosted = "1.0000 | 1.0000 | 1.0000 | +0.0000 | never"
        assert f"| `{name}` | {all_hosted} | +0.00 % | +0.00 % | 0.0 |" in printed
    assert "Means over the seeds 42 to 43;" in printed


def test_no_policy_is_below_the_bound(benchmark: Benchmark) -> None:
    printed, _ = benchmark("placement-bids")
    rows = {line.split("|")[1].strip(): line.split("|")[2:-2] for line in printed.splitlines() if "|" in line}
    bound = [float(cell) for cell in rows["bound: as much as `bid` is"]]
    ours = [float(cell) for cell in rows["`bid`"]]
    assert all(saved <= most + 0.1 for saved, most in zip(ours, bound, strict=True))
