"""``wattsched place``: what it prints, its JSON and plots, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from .conftest import Run, refused

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,32000,1000,2,T4\nb,96000,4000,8,G2\nc,32000,1000,0,\n"
TASKS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + (
    "1000,10,1,500,\n2000,10,1,1000,\n4000,10,0,0,\n3000,10,2,1000,G2\n1000,10,1,300,T4|G2\n"
)
CURVES = ("arrived", "allocated_pct", "grar", "eopc_w", "eopc_cpu_w", "eopc_gpu_w", "frag_pct", "failed")


@pytest.fixture
def place(run: Run, tmp_path: Path) -> Run:
    """Run the command on small files, of which each can be replaced."""

    def placed(*options: object, nodes: str = NODES, tasks: str = TASKS, code: int | None = None) -> Result:
        (tmp_path / "nodes.csv").write_text(nodes)
        (tmp_path / "tasks.csv").write_text(tasks)
        files = ("--nodes", tmp_path / "nodes.csv", "--tasks", tmp_path / "tasks.csv")
        return run("place", *files, *options, code=code)

    return placed


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["policies"]


def test_a_table_per_measure_and_a_row_per_policy(place: Run) -> None:
    result = place("--seeds", "1-3", "--policy", "fgd,pwr,pwr+fgd:200/800", code=0)
    lines = result.stdout.splitlines()
    assert lines[0] == "2 nodes with 10 GPUs, 5 tasks in the list; means over 3 seeds"
    titles = ["Allocated GPU", "GRAR", "Power", "Power of the CPUs", "Power saved", "Fragmentation"]
    titles += ["Bound on the allocation", "Power above the bound"]
    assert [line.split("  ")[0] for line in lines if line and line[0] != " "][2:] == titles
    saved = lines[next(i for i, line in enumerate(lines) if line.startswith("Power saved")) :]
    assert " ".join(saved[1].split()) == "policy 20 % 40 % 60 % 80 % 90 % 100 % 130 %"
    assert [line.split()[0] for line in saved[2:4]] == ["pwr", "pwr+fgd:200/800"]
    assert result.stderr == ""


def test_without_fgd_nothing_is_saved_and_the_last_column_is_the_last_point(place: Run) -> None:
    result = place("--seeds", "1", "--policy", "best-fit", "--arrivals", "0.5")
    assert "Power saved" not in result.stdout
    assert "policy 20 % 40 % 50 %" in [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_json_holds_the_mean_curves(place: Run) -> None:
    both = document(place("--json", "--seeds", "4,6", "--policy", "random,fgd"))
    assert list(both) == ["random", "fgd"]
    for curves in both.values():
        assert tuple(curves) == CURVES
        assert curves["arrived"] == [i / 100 for i in range(131)]
        assert {len(values) for values in curves.values()} == {131}
        sums = zip(curves["eopc_cpu_w"], curves["eopc_gpu_w"], curves["eopc_w"], strict=True)
        assert all(cpu + gpu == pytest.approx(total) for cpu, gpu, total in sums)
    each = [document(place("--json", "--seeds", seed, "--policy", "random"))["random"] for seed in (4, 6)]
    for name in CURVES:
        means = [(a + b) / 2 for a, b in zip(each[0][name], each[1][name], strict=True)]
        assert both["random"][name] == pytest.approx(means, abs=2e-6)


@pytest.mark.slow
def test_no_policy_beats_the_bound(place: Run) -> None:
    policies = ("fgd", "pwr", "bid", "bid-reserve", "random")
    result = place("--json", "--seeds", "1-3", "--policy", ",".join(policies), "--bound-gap", "0.001")
    found = json.loads(result.stdout)
    bound = found["bound"]
    assert list(bound) == ["arrived", "allocated_pct", "eopc_w", "floor_w"]
    assert bound["arrived"] == [i / 100 for i in range(131)]
    assert tuple(bound["floor_w"]) == policies
    for name in policies:
        curves = found["policies"][name]
        for most, has in zip(bound["allocated_pct"], curves["allocated_pct"], strict=True):
            assert has <= most + 1e-6
        for least, draws in zip(bound["floor_w"][name], curves["eopc_w"], strict=True):
            assert least <= draws * (1 + 1e-9)
        hosts_all = [failed == 0 for failed in curves["failed"]]
        for least, draws, all_hosted in zip(bound["eopc_w"], curves["eopc_w"], hosts_all, strict=True):
            assert not all_hosted or (least is not None and least <= draws * (1 + 1e-9))


def test_without_a_bound(place: Run) -> None:
    found = json.loads(place("--json", "--seeds", "1", "--policy", "fgd", "--no-bound").stdout)
    assert found["bound"] == {}
    assert "bound" not in place("--seeds", "1", "--policy", "fgd", "--no-bound").stdout


def test_processes_change_nothing(place: Run) -> None:
    options = ("--json", "--seeds", "1-3", "--policy", "random,pwr")
    assert place(*options, "--processes", "2").stdout == place(*options).stdout


def test_mapped_cpus_draw_other_watts(place: Run) -> None:
    uniform, mapped = (
        document(place("--json", "--seeds", "1", "--cpu-model", model))["fgd"]
        for model in ("uniform", "mapped")
    )
    # One package of 15 W and three of them, against one of 20 W (24 cores) and two of 20 W (32 cores).
    assert (uniform["eopc_cpu_w"][0], mapped["eopc_cpu_w"][0]) == (60, 60)
    assert uniform["eopc_cpu_w"][50] != mapped["eopc_cpu_w"][50]


@pytest.mark.parametrize("policies", ["fgd,pwr", "pwr", "fgd"])
def test_plots_are_drawn(place: Run, tmp_path: Path, policies: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "curves.svg"
    assert f"Written to {file}" in place("--seeds", "1", "--policy", policies, "--plot", file, code=0).stderr
    assert "<svg" in file.read_text()


def test_a_list_that_fits_nowhere_only_fails(place: Run) -> None:
    for task in ("1000,10,1,1000,H9", "1000000,10,1,1000,", "0,10000,8,1000,", "0,0,9,1000,"):
        curves = document(place("--json", "--seeds", "1", tasks=TASKS.splitlines()[0] + f"\n{task}\n"))["fgd"]
        assert curves["allocated_pct"][-1] == 0
        assert curves["grar"][-1] == 0
        assert curves["failed"][-1] > 0
        assert set(curves["eopc_w"]) == {curves["eopc_w"][0]}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"nodes": ""}, "nodes.csv"),
        ({"tasks": ""}, "tasks.csv"),
        ({"tasks": TASKS.splitlines()[0] + "\n"}, "tasks.csv: has no task"),
        ({"nodes": TASKS}, "nodes.csv, line 1: the columns 'sn'"),
        ({"tasks": NODES}, "tasks.csv, line 1: the columns 'num_gpu', 'gpu_milli' are missing"),
        ({"nodes": "sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n"}, "nodes.csv: no node has a GPU"),
        ({"nodes": NODES.replace("T4", "H9")}, "nodes.csv: the power of the GPU model 'H9' is unknown"),
        ({"nodes": NODES.replace("4000,8", "4000,-8")}, "nodes.csv, line 3, column 'gpu'"),
        ({"nodes": NODES.replace("\nb", "\na")}, "the node 'a' occurs twice"),
        ({"tasks": TASKS.replace("1,500", "1,1500")}, "tasks.csv, line 2, column 'gpu_milli'"),
        ({"tasks": TASKS.replace("1,500", "2,500")}, "must be 1000 where num_gpu is 2, got 500"),
        ({"tasks": TASKS.splitlines()[0] + "\n1,1,0,0,\n"}, "tasks.csv: no task asks for a GPU"),
        ({"tasks": "\0\0"}, "tasks.csv: is a binary file"),
    ],
)
def test_bad_files_are_refused(place: Run, files: dict[str, str], message: str) -> None:
    refused(place(**files), message)


def test_a_demand_of_too_many_tasks_is_refused(place: Run) -> None:
    result = place("--arrivals", "10", tasks=TASKS.splitlines()[0] + "\n0,0,1,1,\n" + "1,1,0,0,\n" * 60)
    refused(result, "tasks are needed to ask for 100 GPUs, more than 5,000,000")


def test_a_missing_matplotlib_is_named(place: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattsched.environment.extras.find_spec", lambda name: None)
    refused(place("--plot", tmp_path / "curves.png"), "pip install 'wattsched[plot]'")


def test_help_names_the_policies(run: Run) -> None:
    text = " ".join(run("place", "--help").output.split())
    assert "fgd, pwr, best-fit, dot-product, gpu-packing, gpu-clustering, random" in text


def test_models_that_no_node_has_are_told(place: Run) -> None:
    result = place(
        "--seeds", "1", "--no-bound", tasks=TASKS + "1000,10,1,300,A9\n1000,10,1,300,T4|H7\n", code=0
    )
    assert result.stderr == "gpu_spec names models that no node has: A9, H7; 1 task can go nowhere\n"
