"""Segments: the GPUs that jobs held are theirs alone, or a set's, and come to the sums of the records."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, replayed, trace_by_hand, traces
from wattsched.replay.jobs.outcome import RECORDS
from wattsched.replay.jobs.policies import names
from wattsched.replay.jobs.trace import Trace


@pytest.mark.parametrize("name", names())
@settings(max_examples=examples(12))
@given(traces([(2,), (4, 4), (3, 3), (4, 2), (2, 8, 8)]), st.sampled_from([0.0, 60.0]))
def test_segments_are_what_jobs_held(name: str, trace: Trace, round_s: float) -> None:
    outcome = replayed(trace, name, round_s)
    table, nodes = RECORDS["segments"](outcome), {node.name: node for node in trace.cluster.nodes}
    assert list(table) == [
        "job", "start_s", "end_s", "node", "gpus", "frequency_mhz", "batch_size", "first_gpu",
    ]  # fmt: skip
    lines = [dict(zip(table, line, strict=True)) for line in zip(*table.values(), strict=True)]
    assert table["start_s"] == sorted(table["start_s"])
    held, users = defaultdict(float), defaultdict(list)
    for line in lines:
        assert outcome.begin_s <= line["start_s"] < line["end_s"] <= outcome.end_s
        node, gpus = nodes[line["node"]], range(line["first_gpu"], line["first_gpu"] + line["gpus"])
        assert 0 < len(gpus) <= node.gpus - gpus.start
        assert not set(gpus) & set(node.unavailable)
        for gpu in gpus:
            users[node.name, gpu].append((line["start_s"], line["end_s"], line["job"]))
    # Two on one GPU at a time are a set: they come and go together, and their GPU seconds are divided.
    for segments in users.values():
        together = defaultdict(list)
        for start_s, end_s, job in segments:
            together[start_s, end_s].append(job)
        ordered = sorted(together)
        assert all(end_s <= start_s for (_, end_s), (start_s, _) in pairwise(ordered))
        for (start_s, end_s), jobs in together.items():
            assert len(set(jobs)) == len(jobs)
            for job in jobs:
                held[job] += (end_s - start_s) / len(jobs)
    expected = dict(zip(trace.names, outcome.jobs.gpu_s.tolist(), strict=True))
    assert held == pytest.approx({job: seconds for job, seconds in expected.items() if seconds})


def test_two_jobs_of_two_nodes() -> None:
    """Job a has both nodes of two GPUs for 10 s, then b one GPU."""
    trace = trace_by_hand(cluster_of(2, 2), (5.0, 40.0, 4, {4: 4.0}), (6.0, 2.0, 1, {1: 1.0}))
    table = RECORDS["segments"](replayed(trace, "fifo"))
    assert [line[:5] + line[7:] for line in zip(*table.values(), strict=True)] == [
        ("a", 5.0, 15.0, "n0", 2, 0), ("a", 5.0, 15.0, "n1", 2, 0), ("b", 15.0, 17.0, "n0", 1, 0),
    ]  # fmt: skip
    assert np.isnan(table["frequency_mhz"]).all()
