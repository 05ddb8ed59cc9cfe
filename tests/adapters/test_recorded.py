"""Clusters of what schedulers call their GPUs: known types by any name, others by what stands in for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.options import StatedOptions
from wattsched.adapters.recorded import Machine, Recorded, cluster_of
from wattsched.adapters.slurm.options import SiteOptions
from wattsched.instances.clusters import GPU_TYPES, server_power_w
from wattsched.instances.errors import InputError
from wattsched.instances.gpu_names import BOARD_POWER_W, IDLE_PART, common_name, gpu_type_named
from wattsched.instances.traces import TraceJob
from wattsched.instances.traces.roster import Roster
from wattsched.perfmodels.profile import models
from wattsched.replay.jobs.trace import trace_of_durations
from wattsched.report.imports import Entry
from wattsched.topology.pools import pools_of


@pytest.mark.parametrize(
    ("name", "known", "memory_gib"),
    [
        ("A100", "A100", 80),
        ("a100", "A100", 80),
        ("nvidia_a100-sxm4-40gb", "A100", 40),
        ("NVIDIA-A100-SXM4-80GB", "A100", 80),
        ("Tesla-V100-SXM2-16GB", "V100", 16),
        ("tesla_t4", "T4", 16),
        ("NVIDIA-H100-80GB-HBM3", "H100", 80),
        ("nvidia_l40s", "L40S", 48),
        ("NVIDIA B200", "B200", 180),
        ("AMD_Instinct_MI300X_OAM", "MI300X", 192),
        ("gpu", "gpu", 80),
        ("a1000", "a1000", 80),
    ],
)
def test_known_types_by_any_name(name: str, known: str, memory_gib: float) -> None:
    kind, told = gpu_type_named(name)
    assert common_name(name) == known
    assert kind.profile == (None if name == "A100" else known if known in GPU_TYPES else "A100")
    assert kind.memory_gib == memory_gib
    assert bool(told) == (name != "A100")
    assert ("not known" in told) == (known not in GPU_TYPES)


@pytest.mark.parametrize("name", [*BOARD_POWER_W, "NVIDIA-H800", "nvidia_l4"])
def test_types_that_are_not_measured_draw_their_board_limit(name: str) -> None:
    kind, told = gpu_type_named(name)
    most_w = BOARD_POWER_W[common_name(name)]
    full_w = GPU_TYPES["A100"].max_power_w or 0
    assert (kind.max_power_w, kind.idle_power_w) == (most_w, pytest.approx(IDLE_PART * most_w, rel=0.02))
    assert kind.power_factor == pytest.approx(most_w / full_w)
    assert told == f"as fast as A100, with its watts times {most_w:g}/400"


@pytest.mark.parametrize(
    "name", ["H100", "gpu", "nvidia_a100-sxm4-40gb", "L40S", "H800", "AMD_Instinct_MI300X_OAM"]
)
def test_jobs_run_on_clusters_of_any_type_as_long_as_recorded(name: str) -> None:
    cluster = cluster_of([Machine(f"n{i}", {name: 8}) for i in range(2)], "site", [])
    jobs = [TraceJob(f"j{i}", 0, 600, 1 << i % 5, gpu_type=name) for i in range(40)]
    trace = trace_of_durations(cluster, jobs)
    np.testing.assert_allclose(trace.work / trace.requested_rate, 600)
    roster = Roster(cluster, pools_of(cluster))
    drawn = {roster.start(number, gpus).model for number in range(40) for gpus in (1, 8)}
    assert drawn <= set(models("training"))


def test_a_stand_in_replaces_what_a_name_says() -> None:
    entries: list[Entry] = []
    cluster = cluster_of([Machine("n", {"A100": 4})], "site", entries, stand_ins={"A100": "T4"})
    assert (cluster.gpu_types["A100"].profile, cluster.gpu_types["A100"].max_power_w) == ("T4", 70)
    assert entries[0] == Entry("assumed", "GPU type 'A100' counts as T4, as you say")


def test_only_switches_above_nodes_are_kept_and_circles_are_refused() -> None:
    above = {"rack": "top", "top": None, "other": "top"}
    cluster = cluster_of([Machine("n", {"A100": 4}, "rack")], "site", [], switches=above)
    assert {group.name: group.parent for group in cluster.groups} == {"rack": "top", "top": None}
    with pytest.raises(InputError, match="the groups form a cycle: a -> b -> a"):
        cluster_of([Machine("n", {"A100": 4}, "a")], "site", [], switches={"a": "b", "b": "a"})


RUNS = st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 20), st.integers(1, 8))
"""Arrival, wait, duration and GPUs of a job."""


@given(st.lists(RUNS, min_size=1, max_size=8), st.lists(RUNS, max_size=4), st.integers(1, 12))
def test_the_table_has_every_gpu_hour_and_points_at_more_gpus_than_there_are(
    kept: list[tuple[int, ...]], others: list[tuple[int, ...]], there: int
) -> None:
    found = Recorded(cluster=cluster_of([Machine("n", {"A100": there})], "site", []))
    for number, (arrival, wait, duration, gpus) in enumerate(kept):
        found.add(TraceJob(f"j{number}", arrival, duration, gpus), f"state {number % 2}", wait)
    for _, _, duration, gpus in others:
        found.leave_out("for a reason", gpus, duration)
    found.leave_out("without an end", 8, math.inf)
    found.left_out["counted elsewhere"] += 1
    rows = found.table()
    hours = {part: [one.gpu_h for one in rows if one.treatment == part] for part in ("read", "left out")}
    assert sum(hours["read"]) * 3600 == pytest.approx(sum(run[2] * run[3] for run in kept))
    assert sum(one or 0.0 for one in hours["left out"]) * 3600 == pytest.approx(
        sum(run[2] * run[3] for run in others)
    )
    assert sum(one.records or 0 for one in rows if one.treatment in hours) == len(kept) + len(others) + 2
    held = [
        sum(gpus for arrival, wait, duration, gpus in kept if 0 <= second - arrival - wait < duration)
        for second in range(60)
    ]
    doubtful = [one for one in rows if one.treatment == "doubtful"]
    assert len(doubtful) == (max(held) > there)
    for one in doubtful:
        assert one.what.startswith(
            f"jobs hold {max(held)} GPUs on 1970-01-01 00:00:{held.index(max(held)):02d} "
        )
        assert one.gpu_h is not None
        assert one.gpu_h * 3600 == pytest.approx(sum(max(0, gpus - there) for gpus in held))


@pytest.mark.parametrize("form", [SiteOptions, KubernetesOptions])
def test_rounds_count_the_same_watts_of_a_server_as_imports_unless_the_site_states_them(
    form: type[StatedOptions],
) -> None:
    for kinds in ({"NVIDIA-H100-80GB-HBM3": 8}, {"h100": 4}, {"A100": 8}, {"T4": 4, "H100": 2}):
        assert form().server_w(kinds) == server_power_w(kinds)
        assert form(base_power_w=200).server_w(kinds) == 200


@pytest.mark.parametrize(
    ("kind", "share"), [("a100_1g.5gb", 1 / 7), ("Tesla-T4-SHARED-4", 1 / 4), ("A100", 1), (None, 1)]
)
def test_gpu_hours_of_a_slice_are_its_share_of_the_board(kind: str | None, share: float) -> None:
    found = Recorded()
    found.add(TraceJob("a", 0, 7200, 4, gpu_type=kind), "ended", 0)
    found.leave_out("for a reason", 4, 3600, kind)
    assert [one.gpu_h for one in found.table()] == pytest.approx([8 * share, 4 * share])
    assert found.lines()[0] == f"1 job, {8 * share:.4g} GPU h"


@pytest.mark.parametrize(
    ("kinds", "treatment"), [({"a100": 4}, "assumed"), ({"a100": 4, "a100_1g.5gb": 7}, "doubtful")]
)
def test_jobs_of_no_clear_type_beside_slices_are_pointed_at(kinds: dict[str, int], treatment: str) -> None:
    found = Recorded(machines=[Machine("n1", kinds)])
    found.add(TraceJob("j", 0.0, 7200.0, 7), "completed", 0.0)
    found.note_gaps([])
    (row,) = found.entries
    assert (row.treatment, row.gpu_h, row.what.partition(":")[0]) == (treatment, 14, "GPU type not clear")
