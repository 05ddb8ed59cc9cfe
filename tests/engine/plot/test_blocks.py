"""Schedules and cluster maps show what is held: areas are GPU time, and nothing lies on anything else."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, linear, trace_by_hand, traces
from wattsched import plot
from wattsched.instances.placement.decision import PlacedTask, PlacementDecision
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.plot.blocks import Colouring
from wattsched.plot.style import FILLS
from wattsched.replay.jobs.outcome import RECORDS, csv_text, parquet
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace

from .cases import outcome, round_and_result

pytest.importorskip("matplotlib")


def rectangles(axes: Any) -> np.ndarray:
    """Left, right, top and bottom of the blocks, which have white edges, shape (n, 4)."""
    from matplotlib.collections import PolyCollection

    found = [np.zeros((0, 4))]
    for collection in axes.collections:
        edges = collection.get_edgecolor()
        if isinstance(collection, PolyCollection) and len(edges) and edges[0][:3].tolist() == [1, 1, 1]:
            corners = np.array([path.vertices[:4] for path in collection.get_paths()])
            low, high = corners.min(axis=1), corners.max(axis=1)
            found.append(np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1))
    return np.concatenate(found)


def area(blocks: np.ndarray) -> float:
    return float(((blocks[:, 1] - blocks[:, 0]) * (blocks[:, 3] - blocks[:, 2])).sum())


def apart(blocks: np.ndarray) -> bool:
    """Whether no two share more than their edges."""
    for one, other in combinations(blocks.tolist(), 2):
        wide = min(one[1], other[1]) - max(one[0], other[0])
        if wide > 1e-6 and min(one[3], other[3]) - max(one[2], other[2]) > 1e-6:
            return False
    return True


@pytest.mark.parametrize("policy", ["srtf", "eaco", "elastic"])
@settings(max_examples=examples(15))
@given(traces([(2,), (4, 4), (3, 3), (2, 8, 8)]), st.sampled_from(["gpus", "job"]))
def test_the_area_of_a_schedule_is_the_gpu_time_held(policy: str, trace: Trace, colour: Any) -> None:
    """Those who share GPUs divide them, so that nothing is counted, or lies, on anything else."""
    context = PolicyContext(trace, Restarts(5.0, 20.0), 60.0)
    replay = simulate(trace, policy_of(policy, context), name=policy, round_s=60.0)
    axes = plot.schedule(replay, colour=colour)
    blocks, unit_s = rectangles(axes), _seconds(axes.get_xlabel())
    assert area(blocks) * unit_s == pytest.approx(replay.jobs.gpu_s.sum(), rel=1e-6)
    assert apart(blocks)
    assert blocks[:, 1].max() == pytest.approx(axes.get_xlim()[1])
    assert axes.get_ylim() == (sum(node.gpus for node in trace.cluster.nodes), 0)


def _seconds(label: str) -> float:
    return {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}[label.rpartition(", ")[2]]


def test_a_schedule_of_a_file_is_that_of_its_replay(tmp_path: Path) -> None:
    given = ((40.0 * i, 300.0, 1 << i % 3, linear(4)) for i in range(12))
    trace = trace_by_hand(cluster_of(4, 4), *given)
    replay = simulate(trace, policy_of("srtf", PolicyContext(trace, round_s=10.0)), round_s=10.0)
    table = RECORDS["segments"](replay)
    (tmp_path / "s.csv").write_text(csv_text(table))
    pytest.importorskip("pyarrow")
    (tmp_path / "s.parquet").write_bytes(parquet(table))
    expected = rectangles(plot.schedule(replay))
    for source in (tmp_path / "s.csv", str(tmp_path / "s.parquet"), pd.DataFrame(dict(table))):
        axes = plot.schedule(source)
        assert rectangles(axes) == pytest.approx(expected, abs=1e-4)
        assert axes.get_xlabel().startswith("time from the first start")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gpus": [0]}, "source: gpus of segment 1, of job 'a',: must be at least 1, got 0"),
        ({"end_s": [3.0]}, "source: end_s of segment 1, of job 'a',: must be after its start, got 3"),
        ({"first_gpu": ["x"]}, "source: first_gpu of segment 1 must be a number, got 'x'"),
        ({"start_s": [None]}, "source: start_s of segment 1 must be a number, got None"),
        ({"frequency_mhz": [float("inf")]}, "source: frequency_mhz of segment 1 must be a finite number"),
        ({"node": None, "gpus": None}, "source: must be a table with 'node', 'gpus', got one with 'job'"),
        ({"job": []}, "source: must be a table with a segment at least, got none"),
    ],
)
def test_what_is_no_table_of_segments_is_refused(change: dict[str, Any], told: str) -> None:
    table: dict[str, Any] = {"job": ["a"], "start_s": [5.0], "end_s": [9.0], "node": ["n"], "gpus": [1]}
    table |= {"frequency_mhz": [""], "first_gpu": [0]}
    assert len(rectangles(plot.schedule(pd.DataFrame(table)))) == 1
    changed = table | change if change.get("job", True) else {name: [] for name in table}
    table = {name: values for name, values in changed.items() if values is not None}
    with pytest.raises(ValueError, match="source") as error:
        plot.schedule(pd.DataFrame(table))
    assert told in str(error.value)


def test_what_is_no_file_of_segments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("job,start_s\na,1\n")
    with pytest.raises(ValueError, match=r"s\.csv, line 1: the columns 'node', 'end_s', .* are missing"):
        plot.schedule(tmp_path / "s.csv")
    with pytest.raises(OSError, match=r"none\.csv"):
        plot.schedule(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"colour: 'clock' is not known, choose one of gpus"):
        plot.schedule(outcome(), colour="clock")


def test_a_map_has_every_gpu_that_is_used_once() -> None:
    instance, result = round_and_result()
    for colour in ("gpus", "job", "frequency_mhz", "power_limit_w", "batch_size"):
        blocks = rectangles(plot.cluster_map(instance, result, colour=colour))
        used = sum(one.gpus for one in result.decision.jobs)
        assert area(blocks) == pytest.approx(0.88 * used)
        assert apart(blocks)


def test_those_who_share_a_gpu_divide_its_cell() -> None:
    nodes = [
        {"name": "n0", "cpu_milli": 9000, "gpus": 4, "gpu_type": "T4"},
        {"name": "n1", "cpu_milli": 9000},
    ]
    instance = PlacementInstance.model_validate({"problem": "placement", "nodes": nodes, "tasks": []})

    def decision(*placed: tuple[str, str, list[int]]) -> PlacementDecision:
        tasks = [PlacedTask(task=task, node=node, gpus=gpus) for task, node, gpus in placed]
        return PlacementDecision(placed=tasks, waiting=[])

    some = decision(("a", "n0", [0]), ("b", "n0", [0]), ("c", "n0", [1, 3]), ("d", "n1", []))
    blocks = rectangles(plot.cluster_map(instance, some))
    assert len(blocks) == 4
    assert area(blocks) == pytest.approx(0.88 * 3)
    assert apart(blocks)
    with pytest.raises(ValueError, match="the node of 'a': must be in the instance, got n7"):
        plot.cluster_map(instance, decision(("a", "n7", [0])))
    with pytest.raises(ValueError, match="GPUs of 'a' on 'n0': must be below 4, got 4"):
        plot.cluster_map(instance, decision(("a", "n0", [4])))
    with pytest.raises(ValueError, match="answer: must be a decision of placement, got Decision"):
        plot.cluster_map(instance, round_and_result()[1].decision)
    with pytest.raises(ValueError, match="answer: must be of the problem placement, got sizing"):
        plot.cluster_map(instance, round_and_result()[1])


@given(st.lists(st.one_of(st.integers(1, 60), st.just(float("nan"))), min_size=1, max_size=80))
def test_ranges_hold_every_number_once_and_in_order(values: list[float]) -> None:
    numbers = np.array(values, dtype=float)
    colouring = Colouring.of([""] * len(values), {"gpus": numbers}, "gpus")
    assert len(colouring.names) <= len(FILLS) + 1
    for number, code in zip(values, colouring.code.tolist(), strict=True):
        name = colouring.names[code]
        if number != number:
            assert name == "not stated"
        else:
            low, _, high = name.partition("\u2013")
            assert float(low) <= number <= float(high or low)
    assert len(set(colouring.code.tolist())) == len(colouring.names)
