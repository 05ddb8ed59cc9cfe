"""A decision: what every job of the round does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Tag

from wattsched.instances.errors import InputError
from wattsched.instances.sizing.job import Placement
from wattsched.topology.arrays import FloatArray, IntArray, offsets, ranges
from wattsched.topology.column import NONE, Coded, Column, Made
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
        return offsets(self.counts("gpus"))

    @property
    def gpu(self) -> IntArray:
        """Number on its node of every GPU, shape (n_gpus,)."""
        return self.counts("gpu")

    @classmethod
    def from_records(cls, records: Sequence[Assignment]) -> Self:
        """Columns of assignments; an InputError where one lists other than its count of GPUs."""
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
        """Columns of the GPUs of the assignments at these places."""
        entries = ranges(self.start[places], self.counts("gpus")[places])
        node = self.coded("node")
        return {"node": Coded(node.codes[entries], node.values), "gpu": self.gpu[entries]}

    def _made(self, j: int) -> Assignment:
        """Assignment j as a model."""
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
    """GPU numbers of each node, from the node and number of each GPU."""
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
        """The decision with assignments as a list where they are few."""
        if not isinstance(self.jobs, AssignmentColumns):
            return self
        return self.model_copy(update={"jobs": self.jobs.listed()})


_NUMBERS = ("gpus", "frequency_mhz", "power_limit_w", "batch_size")
_NAMES = ("pool", "set")


@dataclass(frozen=True, eq=False)
class Holdings(Made[Placement]):
    """Placements by column; as a sequence, each is made when it is looked at.

    Attributes
    ----------
    gpus : int array, shape (n,)
    pool, set : Coded
    frequency_mhz, batch_size : int arrays, shape (n,)
        0 for none.
    power_limit_w : float array, shape (n,)
        nan for none.
    start : int array, shape (n + 1,)
        GPUs of placement i are the entries ``start[i]`` to ``start[i + 1]``; none where they are not known.
    node : Coded
    gpu : int array, shape (n_entries,)
        Number on its node of every GPU.
    """

    gpus: IntArray
    pool: Coded
    set: Coded
    frequency_mhz: IntArray
    power_limit_w: FloatArray
    batch_size: IntArray
    start: IntArray
    node: Coded
    gpu: IntArray

    @classmethod
    def of(cls, placements: Sequence[Placement]) -> Holdings:
        """Columns of placements."""
        if isinstance(placements, cls):
            return placements
        places = [placement.places for placement in placements]
        entries = list(chain.from_iterable(places))
        return cls(
            gpus=np.array([held.gpus for held in placements], dtype=np.int64),
            pool=Coded.of(held.pool for held in placements),
            set=Coded.of(held.set for held in placements),
            frequency_mhz=_counts(held.frequency_mhz for held in placements),
            power_limit_w=np.array([held.power_limit_w for held in placements], dtype=float),
            batch_size=_counts(held.batch_size for held in placements),
            start=offsets([*map(len, places)]),
            node=Coded.of(node for node, _ in entries),
            gpu=np.array([gpu for _, gpu in entries], dtype=np.int64),
        )

    @classmethod
    def of_assignments(cls, jobs: AssignmentColumns) -> Holdings:
        """Return the holdings of jobs that run exactly as their assignments say."""
        return cls(
            gpus=jobs.counts("gpus"),
            pool=jobs.coded("pool"),
            set=jobs.coded("set"),
            frequency_mhz=jobs.counts("frequency_mhz"),
            power_limit_w=jobs.numbers("power_limit_w"),
            batch_size=jobs.counts("batch_size"),
            start=jobs.start,
            node=jobs.coded("node"),
            gpu=jobs.gpu,
        )

    def take(self, places: IntArray) -> Holdings:
        """Some of the placements."""
        size = np.diff(self.start)[places]
        entries = ranges(self.start[places], size)
        return Holdings(
            **{name: getattr(self, name)[places] for name in _NUMBERS},
            **{name: getattr(self, name).take(places) for name in _NAMES},
            start=offsets(size),
            node=self.node.take(entries),
            gpu=self.gpu[entries],
        )

    def assignments(self, places: IntArray, names: list[str]) -> AssignmentColumns | None:
        """Placements at these places as assignments of jobs of these names; None where GPUs are not known."""
        if np.any(np.diff(self.start) != self.gpus):
            return None
        columns = {name: getattr(self, name) for name in (*_NUMBERS, *_NAMES, "node", "gpu")}
        everybody = AssignmentColumns({"job": [""] * len(self), **columns}).take(places)
        return AssignmentColumns({**everybody.columns, "job": names}).without_empty()

    def __len__(self) -> int:
        return len(self.gpus)

    def _made(self, i: int) -> Placement:
        """Placement i as a model."""
        entries = slice(int(self.start[i]), int(self.start[i + 1]))
        names = [self.node.values[code] for code in self.node.codes[entries].tolist()]
        limit_w = float(self.power_limit_w[i])
        return Placement.model_construct(
            gpus=int(self.gpus[i]),
            pool=self.pool.at(i),
            set=self.set.at(i),
            frequency_mhz=int(self.frequency_mhz[i]) or None,
            power_limit_w=None if np.isnan(limit_w) else limit_w,
            batch_size=int(self.batch_size[i]) or None,
            nodes=by_node(names, self.gpu[entries].tolist()),
        )


def held_by(n: int, place: Mapping[str, int], jobs: AssignmentColumns) -> Coded:
    """Column of what n jobs hold, by name; others are left out. A job that is there twice is a ValueError."""
    known = np.fromiter(map(place.get, jobs.names, repeat(n)), np.int64, len(jobs))
    # Those of other names share the last number.
    if np.bincount(known).max(initial=0) > 1 and len(set(jobs.names)) < len(jobs):
        twice = next(name for i, name in enumerate(jobs.names) if jobs.place[name] != i)
        raise ValueError(f"'current' has job '{twice}' more than once")
    codes = np.full(n + 1, NONE)
    codes[known] = np.arange(len(jobs))
    return Coded(codes[:-1], Holdings.of_assignments(jobs))


def _counts(values: Iterable[int | None]) -> IntArray:
    return np.array([value or 0 for value in values], dtype=np.int64)
