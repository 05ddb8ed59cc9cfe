"""Curves of a run over the arrived demand: allocation, power and fragmentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from wattsched.formulations.placement.fragmentation import Fragmentation
from wattsched.formulations.placement.state import ClusterState, PolicyContext
from wattsched.topology.arrays import FloatArray


@dataclass(frozen=True)
class Curves:
    """Measures after the tasks that arrived until each point of a grid, every array of shape (X,).

    Parameters
    ----------
    arrived : GPU asked for by the tasks so far, failed ones included, as a part of the GPU capacity
    allocated_pct : GPU that placed tasks asked for, percent of the capacity
    grar : "GPU resource allocation ratio" of PWR: GPU that placed tasks asked for, over that of all tasks
    eopc_cpu_w, eopc_gpu_w : "estimated overall power consumption" of PWR, of the CPU packages and the GPUs
    frag_pct : fragmentation of FGD, percent of the GPU capacity
    failed : tasks that found no place
    """

    arrived: FloatArray
    allocated_pct: FloatArray
    grar: FloatArray
    eopc_cpu_w: FloatArray
    eopc_gpu_w: FloatArray
    frag_pct: FloatArray
    failed: FloatArray

    @property
    def eopc_w(self) -> FloatArray:
        """Power of CPU packages and GPUs together."""
        return self.eopc_cpu_w + self.eopc_gpu_w

    def at(self, arrived: float) -> int:
        """Index of the grid point that is closest to this part of the capacity."""
        return int(np.abs(self.arrived - arrived).argmin())


def mean(runs: Sequence[Curves]) -> Curves:
    """Mean of runs over the same grid, point by point."""
    return Curves(*(np.mean([getattr(run, field.name) for run in runs], axis=0) for field in fields(Curves)))


def saving_pct(curves: Curves, reference: Curves) -> FloatArray:
    """Power saved with respect to a reference on the same grid, percent of the reference's, shape (X,)."""
    return 100 * (reference.eopc_w - curves.eopc_w) / reference.eopc_w


class Recorder:
    """Measures the state of a run, point by point."""

    def __init__(self, context: PolicyContext):
        nodes = context.nodes
        self._power = context.power
        self._capacity_milli = nodes.gpu_capacity_milli
        self._fragmentation = Fragmentation(context.target, nodes.models, int(nodes.gpus.max()))
        self._points: list[tuple[float, ...]] = []

    def record(self, state: ClusterState, arrived: float, asked_milli: int, failed: int) -> None:
        """Measure the state at a point of the grid, after tasks asked for so much and some found no place."""
        allocated_milli = self._capacity_milli - int(state.gpu_free_milli.sum())
        fragments = self._fragmentation.milli(state.nodes.model, state.cpu_free_milli, state.gpu_free_milli)
        self._points.append(
            (
                arrived,
                100 * allocated_milli / self._capacity_milli,
                allocated_milli / asked_milli if asked_milli else 1.0,
                float(self._power.cpu_w(state.cpu_free_milli).sum()),
                float(self._power.gpu_w(state.free_gpus()).sum()),
                100 * float(fragments.sum()) / self._capacity_milli,
                float(failed),
            )
        )

    def curves(self) -> Curves:
        """All points so far."""
        return Curves(*np.array(self._points, dtype=np.float64).T.copy())
