"""Streams of EaCO's classes at random."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from tests.benchmarks.conftest import load_script
from wattsched.instances.generators.sharing import eaco_classes, eaco_node, eaco_sets
from wattsched.instances.sharing.instance import Job, SharingInstance

__all__ = ["load_script"]


def _stream(nodes: int, seed: int) -> tuple[SharingInstance, list[float]]:
    rng = np.random.default_rng(seed)
    classes = eaco_classes()
    jobs = []
    for j in range(40):
        name = classes[rng.integers(len(classes))].name
        jobs.append(Job(name=f"j{j}", job_class=name, remaining_epochs=float(rng.uniform(0.5, 30))))
    instance = SharingInstance(
        problem="sharing", unit_types=[eaco_node(nodes)], classes=classes, sets=eaco_sets(), jobs=jobs
    )
    return instance, np.cumsum(rng.exponential(2500.0, len(jobs))).tolist()


@pytest.fixture(scope="session")
def eaco_stream() -> Callable[[int, int], tuple[SharingInstance, list[float]]]:
    """Stream of 40 jobs by the number of nodes and the seed."""
    return _stream


@pytest.fixture(scope="session")
def bound(load_script: Callable[[str], ModuleType]) -> ModuleType:
    """The least energy of any policy."""
    return load_script("studies.sharing_bound")
