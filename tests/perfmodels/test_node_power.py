"""Power of nodes: worked by hand, and the totals of the cluster that PWR was measured on."""

import re
from pathlib import Path

import numpy as np
import pytest

from wattsched.instances.traces.openb import read_nodes
from wattsched.perfmodels.node_power import CPU_OF_GPU, CPU_PACKAGES, GPU_POWER, UNIFORM_CPU, node_power

NOTHING = np.array([0])


def test_a_package_is_active_as_soon_as_one_of_its_cores_is_busy() -> None:
    power = node_power(np.array([104_000]), np.array([2]), ["T4"])
    # 52 cores are four packages of 16 cores.
    assert power.packages[0] == 4
    free = {104_000: 0, 103_999: 1, 102_000: 1, 72_000: 1, 71_999: 2, 8000: 3, 7999: 4, 0: 4}
    for cpu_free, active in free.items():
        assert power.cpu_w(np.array([cpu_free]))[0] == 120 * active + 15 * (4 - active)


def test_a_gpu_is_idle_or_at_full_power() -> None:
    power = node_power(np.array([8000, 8000]), np.array([2, 8]), ["T4", "G3"])
    assert list(power.gpu_w(np.array([2, 7]))) == [20, 7 * 50 + 400]
    assert list(power.gpu_w(np.array([1, 0]), np.array([0, 0]))) == [80, 140]
    assert list(power.node_w(np.array([8000, 0]), np.array([2, 0]))) == [20 + 15, 3200 + 120]


def test_odd_vcpus_make_a_core() -> None:
    power = node_power(np.array([33_000, 0]), np.array([1, 1]), ["T4", "T4"])
    assert list(power.packages) == [2, 0]
    # 17 cores, 16 of them free: the odd vCPU keeps its core busy, as in the code of PWR.
    assert power.cpu_w(np.array([33_000, 0]))[0] == 120 + 15


@pytest.mark.parametrize(
    ("mapped", "packages", "empty_w", "busy_w"),
    [(False, 3711, 174_435 + 55_665, 1_028_790 + 445_320), (True, 2676, 227_175, 1_590_110)],
)
def test_the_published_cluster(
    data_dir: Path, mapped: bool, packages: int, empty_w: int, busy_w: int
) -> None:
    nodes = read_nodes(data_dir / "alibaba-gpu-2023" / "openb_node_list_gpu_node.csv")
    models = [nodes.models[model] for model in nodes.model]
    cpus = [CPU_OF_GPU[model] for model in models] if mapped else None
    power = node_power(nodes.cpu_milli, nodes.gpus, models, cpus)
    assert power.packages.sum() == packages
    assert power.node_w(nodes.cpu_milli, nodes.gpus).sum() == empty_w
    assert power.node_w(0 * nodes.cpu_milli, 0 * nodes.gpus).sum() == busy_w


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"GPU model 'H9' is unknown; known are T4, .*G3"):
        node_power(NOTHING, NOTHING, ["H9"])
    with pytest.raises(ValueError, match="CPU model '6502' is unknown"):
        node_power(NOTHING, NOTHING, ["T4"], ["6502"])


def test_the_page_has_the_watts_by_which_placements_are_valued() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "placement.md").read_text(encoding="utf-8")
    row = r"^\| ([\w, ]+) \| (\d+), (\d+) \| \| ([\w -]+)( \(the default\))? \| (\d+), (\d+) \| (\d+) \|$"
    gpus, packages = {}, {}
    for models, idle, full, cpu, default, *numbers in re.findall(row, page, flags=re.M):
        gpus |= dict.fromkeys(models.split(", "), (int(idle), int(full)))
        packages[cpu] = tuple(map(int, numbers))
        assert bool(default) == (cpu == UNIFORM_CPU)
    assert gpus == GPU_POWER
    assert packages == CPU_PACKAGES
