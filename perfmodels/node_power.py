"""Power of cluster nodes from what is in use on them: the model of PWR (Lettich et al., CCGrid 2025).

A GPU draws its full power as soon as the smallest part of it is in use, and a CPU package as soon as one of
its cores is. All numbers are data sheet values in whole watts, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import IntArray, Table

Nodes = IntArray | slice

VCPU_PER_CORE = 2
ALL = slice(None)


class GpuPower(NamedTuple):
    """Watts of one GPU without work and with any."""

    idle_w: int
    full_w: int


class CpuPackage(NamedTuple):
    """Watts of one CPU package without work and with any, and its physical cores."""

    idle_w: int
    full_w: int
    cores: int


GPU_POWER = {
    "T4": GpuPower(10, 70),
    "A10": GpuPower(30, 150),
    "P100": GpuPower(25, 250),
    "V100M16": GpuPower(30, 300),
    "V100M32": GpuPower(30, 300),
    "A100": GpuPower(50, 400),
    # Undisclosed models of the Alibaba trace, which PWR takes as A10 and A100.
    "G2": GpuPower(30, 150),
    "G3": GpuPower(50, 400),
}
"""GPU model to its power."""

CPU_PACKAGES = {
    "E5-2682 v4": CpuPackage(15, 120, 16),
    "8163": CpuPackage(20, 165, 24),
    "6326": CpuPackage(20, 185, 16),
    "8369B": CpuPackage(20, 270, 32),
    "8269CY": CpuPackage(20, 205, 26),
}
"""Intel Xeon model to its package."""

UNIFORM_CPU = "E5-2682 v4"
"""CPU of every node in PWR's published experiments: the trace does not name any."""

CPU_OF_GPU = {
    "P100": "E5-2682 v4",
    "T4": "8163",
    "V100M16": "6326",
    "V100M32": "6326",
    "A100": "8369B",
    "A10": "8369B",
    "G2": "8369B",
    "G3": "8369B",
}
"""CPU that the provider's public instances with this GPU have: PWR's mapping, unused in its experiments."""


@dataclass(frozen=True, eq=False)
class NodePower(Table):
    """Power of N nodes as a function of their free GPUs and free vCPUs.

    Every array has one entry per node; build it with `node_power`.

    Parameters
    ----------
    gpus : (N,) int
        GPUs of the node.
    gpu_idle_w, gpu_full_w : (N,) int
        Watts of each of its GPUs without work and with any.
    cores : (N,) int
        Physical cores, two vCPUs each, rounded up.
    package_cores, package_idle_w, package_full_w : (N,) int
        Physical cores and watts of each of its CPU packages.
    """

    gpus: IntArray
    gpu_idle_w: IntArray
    gpu_full_w: IntArray
    cores: IntArray
    package_cores: IntArray
    package_idle_w: IntArray
    package_full_w: IntArray

    @cached_property
    def packages(self) -> IntArray:
        """CPU packages of each node, shape (N,)."""
        return -(-self.cores // self.package_cores)

    def gpu_w(self, free_gpus: IntArray, nodes: Nodes = ALL) -> IntArray:
        """Watts of the GPUs of these nodes.

        Parameters
        ----------
        free_gpus : (S,) int
            GPUs without any work.
        nodes : (S,) int, optional
            Positions of the nodes; all N without it.
        """
        idle_w, full_w = self.gpu_idle_w[nodes], self.gpu_full_w[nodes]
        return full_w * self.gpus[nodes] - (full_w - idle_w) * free_gpus

    def cpu_w(self, cpu_free_milli: IntArray, nodes: Nodes = ALL) -> IntArray:
        """Watts of the CPU packages of these nodes.

        Free cores are the free vCPUs by two, rounded down, and no more packages are active than the busy
        cores need (``GetEnergyConsumptionNode`` of PWR's code; the formula on its slides rounds otherwise).

        Parameters
        ----------
        cpu_free_milli : (S,) int
            Free thousandths of a vCPU.
        nodes
            As of `gpu_w`.
        """
        _, active = self._busy(cpu_free_milli, nodes)
        idle_w, full_w = self.package_idle_w[nodes], self.package_full_w[nodes]
        return idle_w * self.packages[nodes] + (full_w - idle_w) * active

    def spare_vcpus(self, cpu_free_milli: IntArray, nodes: Nodes = ALL) -> IntArray:
        """VCPUs of active packages of these nodes that nothing uses; arguments as of `cpu_w`."""
        busy, active = self._busy(cpu_free_milli, nodes)
        return VCPU_PER_CORE * (active * self.package_cores[nodes] - busy)

    def _busy(self, cpu_free_milli: IntArray, nodes: Nodes) -> tuple[IntArray, IntArray]:
        """Busy cores, and the packages that they keep active."""
        busy = self.cores[nodes] - cpu_free_milli // (1000 * VCPU_PER_CORE)
        return busy, -(-busy // self.package_cores[nodes])

    def node_w(self, cpu_free_milli: IntArray, free_gpus: IntArray, nodes: Nodes = ALL) -> IntArray:
        """Watts of these nodes, CPU packages and GPUs; arguments as of `cpu_w` and `gpu_w`."""
        return self.cpu_w(cpu_free_milli, nodes) + self.gpu_w(free_gpus, nodes)


def node_power(
    cpu_milli: IntArray, gpus: IntArray, gpu_models: Sequence[str], cpu_models: Sequence[str] | None = None
) -> NodePower:
    """Look the power of nodes up; a model without an entry is a ValueError.

    Parameters
    ----------
    cpu_milli : (N,) int
        Thousandths of a vCPU of each node.
    gpus : (N,) int
        GPUs of each node.
    gpu_models : sequence of N str
        GPU model of each node, a key of `GPU_POWER`.
    cpu_models : sequence of N str, optional
        CPU model of each node, a key of `CPU_PACKAGES`; `UNIFORM_CPU` everywhere without it, and
        ``[CPU_OF_GPU[model] for model in gpu_models]`` for the models that usually go with the GPUs.
    """
    count = len(gpu_models)
    gpu = np.array([_entry(GPU_POWER, model, "GPU") for model in gpu_models], dtype=np.int64)
    cpu = np.array(
        [_entry(CPU_PACKAGES, model, "CPU") for model in cpu_models or [UNIFORM_CPU] * count], dtype=np.int64
    )
    gpu_idle_w, gpu_full_w = gpu.reshape(count, 2).T.copy()
    package_idle_w, package_full_w, package_cores = cpu.reshape(count, 3).T.copy()
    cores = -(-cpu_milli // (1000 * VCPU_PER_CORE))
    return NodePower(gpus, gpu_idle_w, gpu_full_w, cores, package_cores, package_idle_w, package_full_w)


def _entry(table: Mapping[str, tuple[int, ...]], model: str, kind: str) -> tuple[int, ...]:
    if model not in table:
        raise ValueError(f"the power of the {kind} model '{model}' is unknown; known are {', '.join(table)}")
    return table[model]
