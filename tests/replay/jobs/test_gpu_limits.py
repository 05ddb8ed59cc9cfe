"""Fixed power limits of GPUs: which settings jobs are left with."""

from __future__ import annotations

import numpy as np
import pytest

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces.recorded import TraceJob
from wattsched.replay.jobs.caps import distinct_limits, limited
from wattsched.replay.jobs.trace import trace_of_durations


@pytest.mark.parametrize("gpu_type", ["A100", "V100", "A40", "T4"])
@pytest.mark.parametrize("limit_w", [90.0, 150.0, 225.0, 1000.0])
def test_jobs_run_at_the_highest_setting_within_a_limit(gpu_type: str, limit_w: float) -> None:
    jobs = [TraceJob(f"j{j}", float(j), 600.0, 1 + j % 5) for j in range(12)]
    free = trace_of_durations(homogeneous_cluster(2, 8, gpu_type), jobs, seed=1)
    kept = limited(free, limit_w)
    np.testing.assert_array_equal(kept.work, free.work)
    of, rows = free.configurations, kept.configurations
    for j, (before, now) in enumerate(zip(free.request[:, 0], kept.request[:, 0], strict=True)):
        same = (of.kind == of.of_job[j]) & (of.gpus == of.gpus[before])
        same &= (of.batch_size == of.batch_size[before]) | np.isnan(of.batch_size)
        told_w = np.where(np.isnan(of.power_limit_w), of.power_w / of.gpus, of.power_limit_w)
        within = same & (told_w <= limit_w)
        fastest = of.rate[within].max() if within.any() else of.rate[same][told_w[same].argmin()]
        assert rows.rate[now] == fastest
        assert rows.gpus[now] == of.gpus[before]
        assert rows.batch_size[now] == of.batch_size[before] or np.isnan(of.batch_size[before])


def test_limits_that_change_nothing_are_left_out() -> None:
    jobs = [TraceJob("a", 0.0, 600.0, 4, model="bert")]
    (v100, a100) = (trace_of_durations(homogeneous_cluster(1, 8, kind), jobs) for kind in ("V100", "A100"))
    assert distinct_limits([v100], [100.0, 250.0, 400.0, 125.0, 110.0]) == [125.0, 110.0]
    lowest_w = a100.configurations.power_w.min() / 4
    assert distinct_limits([a100], [lowest_w - 1, lowest_w - 2, 4000.0]) == [lowest_w - 1]
