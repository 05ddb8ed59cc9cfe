"""Fragmentation of nodes: free GPU that the tasks of a target workload could not use.

The measure of FGD (Weng et al., USENIX ATC 2023). A class m of the target workload asks for n_m GPUs, d_m
thousandths of each, and c_m of CPU. On a node with free GPU r_1, ..., r_G, R in total, its fragments are ::

    F(m) = sum of the r_g < d_m     if the class may and can run there (GPU model, c_m, n_m of the r_g >= d_m)
         = R                        otherwise, and for a class that needs no GPU
    F    = sum over m of p_m F(m)

So F is R less what is useful to each class. A class of one GPU finds each r_g >= d_m useful by itself, and a
class of more GPUs takes whole ones: the first is a table over r, the second over the number of free GPUs,
both by GPU model and by how much CPU is left. That makes a node's fragmentation a sum of G + 1 table entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU, TargetWorkload, TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


class Fragmentation:
    """Fragmentation of node states under a target workload.

    Parameters
    ----------
    target : TargetWorkload
        Its memory requests do not matter.
    models : sequence of str
        Names of the GPU models that nodes refer to.
    most_gpus : int
        GPUs of the largest node.

    Attributes
    ----------
    scale : int
        Tasks of all classes: amounts counted by `scaled` are multiples of 1 / scale thousandths of a GPU,
        which keeps them whole numbers and differences exact.
    """

    def __init__(self, target: TargetWorkload, models: Sequence[str], most_gpus: int):
        classes = target.classes
        self.scale = int(target.count.sum())
        self.most_gpus = most_gpus
        self.cpu_steps = np.unique(classes.cpu_milli)
        of_class = allowed(classes, models)
        # Models that every class treats alike share their tables.
        kinds, kind = np.unique(of_class, axis=1, return_inverse=True)
        self.kind_of_model: IntArray = kind.reshape(-1).astype(np.int64)
        self.shape = (kinds.shape[1], 1 + len(self.cpu_steps))
        runs = kinds[:, :, None] & (classes.cpu_milli[:, None, None] <= np.append(-1, self.cpu_steps))
        # Tasks of each class that run on a kind of models with CPU of a step, (M, kinds, steps).
        count = np.where(runs, target.count[:, None, None], 0)
        self.useful_gpu = self._useful_gpu(classes, count)
        self.useful_free = self._useful_free(classes, count)

    def _useful_gpu(self, classes: TaskTable, count: IntArray) -> IntArray:
        """Useful part of one GPU to classes of one GPU by kind, step of CPU and thousandths free, flat."""
        table = np.zeros((*self.shape, WHOLE_GPU + 1), dtype=np.int64)
        for m in np.flatnonzero(classes.gpus == 1):
            table[:, :, classes.gpu_milli[m]] += count[m]
        return (np.cumsum(table, axis=2) * np.arange(WHOLE_GPU + 1)).reshape(-1)

    def _useful_free(self, classes: TaskTable, count: IntArray) -> IntArray:
        """Useful part of free GPUs to classes of several, by kind, step of CPU and their number, flat."""
        most_gpus = self.most_gpus
        table = np.zeros((*self.shape, most_gpus + 1), dtype=np.int64)
        for m in np.flatnonzero((classes.gpus > 1) & (classes.gpus <= most_gpus)):
            table[:, :, classes.gpus[m]] += count[m]
        return (np.cumsum(table, axis=2) * np.arange(most_gpus + 1) * WHOLE_GPU).reshape(-1)

    def rows(self, model: IntArray, cpu_free_milli: IntArray) -> IntArray:
        """Row of the tables for each node state, shape (S,)."""
        step = np.searchsorted(self.cpu_steps, cpu_free_milli, side="right")
        return self.kind_of_model[model] * self.shape[1] + step

    def gpu_at(self, rows: IntArray, gpu_free_milli: IntArray) -> IntArray:
        """Scaled useful part of single GPUs, of the shape that the arguments broadcast to."""
        return self.useful_gpu.take(rows * (WHOLE_GPU + 1) + gpu_free_milli)

    def free_at(self, rows: IntArray, free_gpus: IntArray) -> IntArray:
        """Scaled useful part of so many free GPUs together, of the shape that the arguments broadcast to."""
        return self.useful_free.take(rows * (self.most_gpus + 1) + free_gpus)

    def scaled(self, model: IntArray, cpu_free_milli: IntArray, gpu_free_milli: IntArray) -> IntArray:
        """Fragmentation in thousandths of a GPU times `scale`, exact, shape (S,).

        Parameters
        ----------
        model : (S,) int
            GPU model of each node state.
        cpu_free_milli : (S,) int
            Free thousandths of a vCPU.
        gpu_free_milli : (S, G) int
            Free thousandths of each GPU, 0 for GPUs that the node does not have.
        """
        free_gpus = (gpu_free_milli == WHOLE_GPU).sum(axis=1)
        useful = self._useful(self.rows(model, cpu_free_milli), gpu_free_milli, free_gpus)
        fragments: IntArray = self.scale * gpu_free_milli.sum(axis=1) - useful
        return fragments

    def _useful(self, rows: IntArray, gpu_free_milli: IntArray, free_gpus: IntArray) -> IntArray:
        """Scaled useful part of the free GPUs of node states, shape (S,)."""
        useful: IntArray = self.gpu_at(rows[:, None], gpu_free_milli).sum(axis=1)
        return useful + self.free_at(rows, free_gpus)

    def milli(self, model: IntArray, cpu_free_milli: IntArray, gpu_free_milli: IntArray) -> FloatArray:
        """Fragmentation in thousandths of a GPU, shape (S,); parameters as of `scaled`."""
        return self.scaled(model, cpu_free_milli, gpu_free_milli) / self.scale

    def drop_by_share(
        self,
        model: IntArray,
        cpu_free_milli: IntArray,
        gpu_free_milli: IntArray,
        cpu_milli: int,
        gpu_milli: int,
    ) -> IntArray:
        """Compute how much `scaled` falls if a task takes a share of each GPU in turn, shape (S, G).

        Meaningless where the GPU has less free than that.
        """
        now, then = self.rows(model, cpu_free_milli), self.rows(model, cpu_free_milli - cpu_milli)[:, None]
        free = gpu_free_milli == WHOLE_GPU
        free_gpus = free.sum(axis=1)
        others = self.gpu_at(then, gpu_free_milli)
        useful_then = others.sum(axis=1, keepdims=True) - others
        useful_then += self.gpu_at(then, np.maximum(gpu_free_milli - gpu_milli, 0))
        useful_then += self.free_at(then, free_gpus[:, None] - free)
        useful_now = self._useful(now, gpu_free_milli, free_gpus)[:, None]
        drop: IntArray = self.scale * gpu_milli + useful_then - useful_now
        return drop

    def drop_by_whole(
        self, model: IntArray, cpu_free_milli: IntArray, gpu_free_milli: IntArray, cpu_milli: int, gpus: int
    ) -> IntArray:
        """Compute how much `scaled` falls if a task takes so many free GPUs, or only CPU, shape (S,).

        Meaningless where fewer GPUs are free.
        """
        now, then = self.rows(model, cpu_free_milli), self.rows(model, cpu_free_milli - cpu_milli)
        free_gpus = (gpu_free_milli == WHOLE_GPU).sum(axis=1)
        useful_now = self._useful(now, gpu_free_milli, free_gpus)
        useful_then = self.gpu_at(then[:, None], gpu_free_milli).sum(axis=1)
        useful_then -= gpus * self.gpu_at(then, np.full(len(then), WHOLE_GPU))
        useful_then += self.free_at(then, np.maximum(free_gpus - gpus, 0))
        drop: IntArray = self.scale * WHOLE_GPU * gpus + useful_then - useful_now
        return drop


def allowed(tasks: TaskTable, models: Sequence[str]) -> BoolArray:
    """Return the mask of the GPU models that each task may use, shape (T, models)."""
    by_spec = np.array([[not spec or model in spec for model in models] for spec in tasks.specs], dtype=bool)
    return np.asarray(by_spec[tasks.spec], dtype=bool)
