"""The `philly-like` family: sizes and durations as in the Philly traces, models of the catalogue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.instance import Instance
from wattsched.instances.traces.snapshot import TraceJob, first_come_round

GPU_SHARES = {1: 93.2, 2: 2.2, 4: 2.3, 8: 2.0, 12: 0.01, 16: 0.24, 24: 0.01, 32: 0.08, 64: 0.01}
"""Per cent of the 82,247 jobs of the Philly list by GPU count (64 and 128 are published as one)."""

DURATION_QUANTILES_S = {0.0: 10.0, 0.5: 1144.0, 0.75: 2932.0, 0.9: 11_265.0, 0.99: 254_758.0, 1.0: 752_000.0}
"""Published quantiles of the list's durations.

The ends are not published: the lower one is assumed, the upper one gives the published mean of 13,136 s.
Between quantiles durations are log-uniform.
"""


def philly_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    power_fraction: float = 0.7,
    restart_s: float = 30.0,
    gpu_type: str = "A100",
) -> Instance:
    """Sizes and durations of the Philly traces, models of the catalogue, the first jobs running already.

    Jobs came in the order of their names; those that fitted run on the GPUs that their users asked for.

    Parameters
    ----------
    power_fraction : float
        Cap of the site's power as a fraction of the full draw.
    restart_s : float
        Time that a running job loses when it changes or stops.
    gpu_type : str
        One of `clusters.GPU_TYPES`.

    Raises
    ------
    ValueError
        For a fraction out of range or an unknown GPU type.
    """
    rng = np.random.default_rng(seed)
    shares = np.array(list(GPU_SHARES.values()))
    asked = rng.choice(list(GPU_SHARES), size=jobs, p=shares / shares.sum())
    # Looked at in a moment of its life that is as likely as any other.
    remaining_s = durations_s(rng.random(jobs)) * rng.uniform(0.02, 1.0, jobs)
    gpus = max(1, int(asked.sum()) // 2) if gpus is None else gpus
    cluster = homogeneous_cluster(nodes=-(-gpus // 8), gpus_per_node=8, gpu_type=gpu_type)
    digits = len(str(jobs - 1))
    names = [f"job{j:0{digits}d}" for j in range(jobs)]
    return first_come_round(
        [
            TraceJob(name, 0.0, s, g)
            for name, s, g in zip(names, remaining_s.tolist(), asked.tolist(), strict=True)
        ],
        cluster,
        seed=seed,
        restart_s=restart_s,
        power_fraction=power_fraction,
        name=f"philly-like-{jobs}-{seed}",
    )


def durations_s(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Durations at levels of the distribution, 0 to 1."""
    quantiles = np.log(list(DURATION_QUANTILES_S.values()))
    return np.asarray(np.exp(np.interp(levels, list(DURATION_QUANTILES_S), quantiles)))
