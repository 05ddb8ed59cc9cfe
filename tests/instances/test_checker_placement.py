"""The checker of placements on cases worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattsched.instances.placement.tables import NodeTable, Placements, TargetWorkload, TaskTable, Window
from wattsched.verification.placement.checker import check_placements


def table(*rows: tuple[int, int, int, int, int]) -> TaskTable:
    """Tasks by CPU, memory, GPUs, thousandths of each, and whether only a T4 will do."""
    columns = np.array(rows).T
    return TaskTable(*columns, specs=(frozenset(), frozenset({"T4"})))


@pytest.fixture
def window() -> Window:
    """Two empty nodes, T4 and P100, of 2 GPUs and 40 vCPUs (two packages); one class of two shares a GPU."""
    nodes = NodeTable(
        names=("t", "p"),
        cpu_milli=np.array([40_000, 40_000]),
        memory_mib=np.array([100, 100]),
        gpus=np.array([2, 2]),
        model=np.array([0, 1]),
        models=("T4", "P100"),
    )
    target = TargetWorkload(table((1000, 0, 1, 600, 0), (1000, 0, 2, 1000, 1)), np.array([1, 1]))
    tasks = table((31_000, 60, 1, 500, 0), (2000, 60, 0, 0, 0), (1000, 10, 2, 1000, 1))
    return Window.of(nodes, target, tasks, alpha=0.25, reject_w_per_task=8.0, reject_w_per_gpu_milli=0.01)


def decision(*placed: tuple[int, tuple[int, ...]]) -> Placements:
    gpus = [np.isin(np.arange(2), chosen) for _node, chosen in placed]
    return Placements(np.array([node for node, _gpus in placed]), np.array(gpus))


NOWHERE = (-1, ())


def test_a_share_wakes_a_gpu_and_a_package(window: Window) -> None:
    report = check_placements(window, decision((0, (1,)), NOWHERE, NOWHERE))
    assert report.faults == ()
    # A T4 at 70 instead of 10 W; 31 vCPUs keep 16 cores, one package, busy: 120 instead of 15 W.
    assert report.power_w == 60 + 105
    # Free before: 2000, all useful to both classes. After: 1500; the first class finds 1000 useful, the
    # second needs two whole GPUs.
    assert report.fragmentation_milli == 0.5 * 500 + 0.5 * 1500
    # Both other tasks would fit and are refused: 8 W each, and 2000 thousandths of a GPU.
    assert (report.rejected, report.refused) == (2, 2)
    assert report.objective == pytest.approx(0.25 * 165 + 0.75 * 1000 + 2 * 8 + 20)


def test_a_second_package_wakes_with_the_17th_core(window: Window) -> None:
    more = replace(window, tasks=replace(window.tasks, memory_mib=np.zeros(3, dtype=int)))
    report = check_placements(more, decision((1, (0,)), (1, ()), NOWHERE))
    # P100 at 250 instead of 25 W; 33 vCPUs need 17 cores. Only T4s are useful to the second class.
    assert report.power_w == 225 + 2 * 105
    assert report.fragmentation_milli == (0.5 * 500 + 0.5 * 1500) - 0.5 * 2000


def test_a_task_that_fits_nowhere_is_no_refusal(window: Window) -> None:
    full = replace(window, gpu_free_milli=np.array([[1000, 999], [1000, 1000]]))
    report = check_placements(full, decision(NOWHERE, NOWHERE, NOWHERE))
    assert (report.rejected, report.refused) == (3, 2)
    assert report.objective == pytest.approx(8 + 5 + 8)


@pytest.mark.parametrize(
    ("placed", "told"),
    [
        ([(0, (0,)), (0, ()), NOWHERE], "the memory is 20 MiB short"),
        ([(0, (0,)), NOWHERE, (0, (0, 1))], "GPU 0 is 500 thousandths short"),
        ([(0, ()), NOWHERE, NOWHERE], "it asks for 1 GPUs and has 0"),
        ([NOWHERE, NOWHERE, (1, (0, 1))], "it may not use the GPU model P100"),
        ([(2, (0,)), NOWHERE, NOWHERE], "there is no node at position 2"),
        ([(-1, (0,)), NOWHERE, NOWHERE], "a rejected task has GPUs"),
        ([NOWHERE, NOWHERE], "the window has 3 tasks, the decision 2"),
    ],
)
def test_what_is_impossible_is_told(window: Window, placed: list, told: str) -> None:
    assert any(told in fault for fault in check_placements(window, decision(*placed)).faults)


def test_too_little_cpu_and_a_gpu_that_is_not_there_are_told(window: Window) -> None:
    less = replace(window, cpu_free_milli=np.array([30_000, 40_000]))
    faults = check_placements(less, decision((0, (0,)), NOWHERE, NOWHERE)).faults
    assert faults == ("task 0 on node 't': the CPU is 1000 thousandths of a vCPU short",)
    beyond = Placements(np.array([0, -1, -1]), np.array([[False, False, True], [False] * 3, [False] * 3]))
    faults = check_placements(window, beyond).faults
    assert faults == ("task 0 on node 't': the node has only 2 GPUs",)
