"""The jobs of a round by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import BaseModel

from wattsched.instances.errors import MOST_LINES, refuse
from wattsched.instances.sizing.decision import AssignmentColumns, Holdings, held_by
from wattsched.instances.sizing.job import Job, Placement, faults_of
from wattsched.topology.arrays import BoolArray, IntArray, alike
from wattsched.topology.column import NONE, Coded, Made
from wattsched.topology.columns import RecordColumns

CHOICES = ("pools", "batch_sizes", "gpu_counts", "frequencies_mhz", "power_limits_w")
"""Fields that leave a job some of the options of its table or model."""

BOUNDS = ("min_gpus", "max_gpus")
"""Fields that bound its GPU count."""

SHARED = ("options", "model", *CHOICES, "tenant")
"""Fields, beside the bounds, that jobs of one kind have in common."""


class ModelKind(NamedTuple):
    """Fields that jobs of one kind with a performance model have in common, named as in `Job`."""

    model: str
    batch_sizes: list[int] | None
    gpu_counts: list[int] | None
    frequencies_mhz: list[int] | None
    power_limits_w: list[float] | None


class JobColumns(RecordColumns[Job]):
    """Jobs by column.

    `options` and `model` are the names, or tables, that jobs share; `current` what each holds, or the
    assignments of those that run, as the decision before has them: jobs that are not here are left out.
    """

    record: ClassVar[type[BaseModel]] = Job
    key: ClassVar[str] = "name"
    nested: ClassVar[Mapping[str, type[RecordColumns[Any]]]] = {"current": AssignmentColumns}

    def __init__(self, columns: Mapping[str, Any]) -> None:
        super().__init__(columns)
        if isinstance(current := columns.get("current"), AssignmentColumns):
            self.columns["current"] = held_by(len(self), self.place, current)

    def sound(self) -> Self:
        """Return itself; a ValueError for what no job can be."""
        refuse(islice(self._contradictions(), MOST_LINES))
        return self

    def _contradictions(self) -> Iterator[str]:
        """Yield the contradictions that `Job` finds in one job, for all jobs."""
        fewest, most = self.counts("min_gpus"), self.counts("max_gpus")
        odd = (self.coded("options").codes == NONE) == (self.coded("model").codes == NONE)
        odd |= (fewest > most) & (most > 0)
        odd |= self.fixed & ~self.placed
        for j in np.flatnonzero(odd).tolist():
            yield from (f"job '{self.names[j]}': {told}" for told in faults_of(self[j]))

    @cached_property
    def fixed(self) -> BoolArray:
        """Mask of the jobs that keep the GPUs they hold, shape (n_jobs,)."""
        return ~self.flags("preemptible")

    @cached_property
    def current(self) -> Coded:
        """Column of the placements that the jobs hold now."""
        return self.coded("current")

    @cached_property
    def running(self) -> IntArray:
        """Jobs that run now."""
        return np.flatnonzero(self.current.codes != NONE)

    def held(self, j: int) -> Placement | None:
        """Return the placement that a job holds now; None if it does not run."""
        held: Placement | None = self.current.at(j)
        return held

    @cached_property
    def holdings(self) -> Holdings:
        """Placements that jobs hold now, by column; `current` has the code of each job's."""
        return Holdings.of(self.current.values)

    @cached_property
    def placed(self) -> BoolArray:
        """Mask of the jobs whose GPUs are known, shape (n_jobs,)."""
        return np.append(np.diff(self.holdings.start) > 0, False)[self.current.codes]

    @cached_property
    def shares(self) -> BoolArray:
        """Mask of the jobs that share their GPUs now, shape (n_jobs,)."""
        return np.append(self.holdings.set.codes != NONE, False)[self.current.codes]

    @cached_property
    def assigned(self) -> AssignmentColumns | None:
        """Assignments that running jobs hold, in their order; None where not all of them are by column."""
        if not isinstance(self.current.values, Holdings):
            return None
        names = [self.names[j] for j in self.running.tolist()]
        return self.holdings.assignments(self.current.codes[self.running], names)

    def document(self) -> dict[str, Any]:
        """Columns as a file has them."""
        if self.assigned is None:
            return super().document()
        others = JobColumns({name: column for name, column in self.columns.items() if name != "current"})
        return {**others.document(), "current": self.assigned.document()}

    @cached_property
    def kinds(self) -> tuple[IntArray, IntArray]:
        """A job of every kind, and the kind of each job.

        Jobs are of one kind when they have the same table or model, choices, tenant and bounds on the GPU
        count. The kinds are in the order of these, so that they hardly change when jobs come and go.
        """
        # A field that no job states is the same for all.
        columns = [self.coded(name).codes for name in SHARED if name in self.columns]
        columns += [self.counts(name) for name in BOUNDS if name in self.columns]
        first, kind = alike(columns or [np.zeros(len(self), dtype=np.int64)])
        order = np.lexsort([column[first] for column in reversed(columns)]) if columns else first
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return first[order], rank[kind]

    @cached_property
    def content_of_kinds(self) -> list[Any]:
        """Values that identify the kinds of jobs: equal where all kinds are the same, in order."""
        first, _ = self.kinds
        bounds = [(name, self.counts(name)[first].tobytes()) for name in BOUNDS if name in self.columns]
        found: list[Any] = [len(first), *bounds]
        for name in SHARED:
            if name in self.columns:
                column = self.coded(name).take(first)
                made = isinstance(column.values, Made)
                found += [name, column.values, column.codes.tobytes()] if made else [name, column.tolist()]
        return found

    @cached_property
    def of_models(self) -> dict[int, ModelKind]:
        """Kinds of jobs with a performance model, by number, and what their jobs have in common."""
        if "model" not in self.columns:
            return {}
        first, _ = self.kinds
        kinds = np.flatnonzero(self.coded("model").codes[first] != NONE)
        columns = (self.coded(name).take(first[kinds]).tolist() for name in ModelKind._fields)
        return dict(zip(kinds.tolist(), map(ModelKind._make, zip(*columns, strict=True)), strict=True))
