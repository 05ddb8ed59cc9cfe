"""A decision: what every job of the round does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Tag

from wattsched.instances.errors import InputError
from wattsched.topology.arrays import IntArray, ranges
from wattsched.topology.column import Coded, Column
from wattsched.topology.columns import COLUMNS, ROWS, RecordColumns, form_of
from wattsched.topology.fields import Count, GpuNumber, Name, Positive, Strict


class Assignment(Strict):
    """A job that runs: its configuration and its concrete GPUs (node name to GPU numbers).

    ``set`` names the declared set in which it runs; all its jobs have the same GPUs.
    """

    job: Name
    gpus: Count
    pool: Name
    set: Name | None = None
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None
    nodes: dict[Name, list[GpuNumber]]


class AssignmentColumns(RecordColumns[Assignment]):
    """Assignments by column; ``node`` and ``gpu`` have an entry for every GPU, job after job."""

    record: ClassVar[type[BaseModel]] = Assignment
    key: ClassVar[str] = "job"
    several: ClassVar[Mapping[str, Any]] = {"node": Name, "gpu": GpuNumber}
    instead_of: ClassVar[frozenset[str]] = frozenset({"nodes"})

    @cached_property
    def start(self) -> IntArray:
        """GPUs of assignment j are the entries ``start[j]`` to ``start[j + 1]``."""
        return np.concatenate([[0], np.cumsum(self.counts("gpus"))]).astype(np.int64)

    @property
    def gpu(self) -> IntArray:
        """Number on its node of every GPU, shape (n_gpus,)."""
        return self.counts("gpu")

    @classmethod
    def from_records(cls, records: Sequence[Assignment]) -> Self:
        """Columns of models; an InputError where one lists other than its count of GPUs."""
        if isinstance(records, cls):
            return records
        for one in records:
            if (listed := sum(map(len, one.nodes.values()))) != one.gpus:
                told = f"job '{one.job}': nodes lists {listed:,} GPUs, gpus is {one.gpus:,}"
                raise InputError([told], "decision")
        found = super().from_records(records)
        places = [(node, gpu) for one in records for node, gpus in one.nodes.items() for gpu in gpus]
        return cls(
            found.columns
            | {
                "node": Coded.of(node for node, _ in places),
                "gpu": np.array([gpu for _, gpu in places], dtype=np.int64),
            }
        )

    def sound(self) -> Self:
        """Return itself; a ValueError where there are more or fewer GPUs than the jobs have."""
        gpus = int(self.start[-1])
        for name, entries in (("node", len(self.coded("node").codes)), ("gpu", len(self.gpu))):
            if entries != gpus:
                raise ValueError(f"'{name}' has {entries:,} entries, the jobs have {gpus:,} GPUs")
        return self

    def _several_of(self, places: IntArray) -> dict[str, Column]:
        entries = ranges(self.start[places], self.counts("gpus")[places])
        node = self.coded("node")
        return {"node": Coded(node.codes[entries], node.values), "gpu": self.gpu[entries]}

    def _made(self, j: int) -> Assignment:
        entries = slice(int(self.start[j]), int(self.start[j + 1]))
        node = self.coded("node")
        names = [node.values[code] for code in node.codes[entries].tolist()]
        return super()._made(j).model_copy(update={"nodes": by_node(names, self.gpu[entries].tolist())})

    def fields(self) -> dict[str, list[Any]]:
        """Every field that an assignment states, for all of them."""
        node, gpu, start = self.coded("node").tolist(), self.gpu.tolist(), self.start.tolist()
        nodes = [by_node(node[first:end], gpu[first:end]) for first, end in pairwise(start)]
        return super().fields() | {"nodes": nodes}


def by_node(nodes: list[str], gpus: list[int]) -> dict[str, list[int]]:
    """GPU numbers of each node."""
    found: dict[str, list[int]] = {}
    for node, gpu in zip(nodes, gpus, strict=True):
        found.setdefault(node, []).append(gpu)
    return found


class Decision(Strict):
    """Every job either runs (`jobs`) or waits (`waiting`)."""

    jobs: Annotated[
        Annotated[list[Assignment], Tag(ROWS)] | Annotated[AssignmentColumns, Tag(COLUMNS)],
        Discriminator(form_of),
    ]
    waiting: list[Name]

    def listed(self) -> Self:
        """The same with assignments as a list where they are few."""
        if not isinstance(self.jobs, AssignmentColumns):
            return self
        return self.model_copy(update={"jobs": self.jobs.listed()})
