"""A small session, and options of jobs for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched import Session

CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}, "A100": {"idle_power_w": 50.0}},
    "nodes": [
        {"name": "n0", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0, "unavailable": [3]},
        {"name": "n1", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0},
        {"name": "n2", "gpu_type": "A100", "gpus": 4},
    ],
    "power_domains": [{"name": "feed", "members": ["n0"], "power_cap_w": 5000.0}],
}
TABLE = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "rate": [1.0, 1.9, 3.5], "power_w": [200.0, 390.0, 750.0]}


def options_of(n: int, seed: int = 0) -> dict[str, Any]:
    """Own tables of jobs, in arrays."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 4, n)
    gpus = np.concatenate([np.array([1, 2, 4])[:many] for many in size])
    return {
        "start": np.concatenate([[0], np.cumsum(size)]),
        "pool": "A",
        "gpus": gpus,
        "rate": gpus**0.8 * rng.uniform(0.5, 2.0, len(gpus)),
        "power_w": 200.0 * gpus,
    }


def session(**fields: Any) -> Session:
    """A session of the cluster that knows the table."""
    return Session(CLUSTER, **{"objective": "total-completion", "tables": {"t": TABLE}, **fields})
