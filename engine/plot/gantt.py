"""Schedules: who held which GPUs when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from wattsched.instances.errors import require_known, require_range
from wattsched.plot.blocks import Blocks, Colouring, name_rows
from wattsched.plot.style import FAINT, Axes, axes_for, label, legend, unit_of_time
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import listed
from wattsched.reading.tables import rows_of
from wattsched.replay.jobs.outcome import RECORDS, Outcome
from wattsched.topology.arrays import FloatArray, IntArray

SIZE_IN = (7.2, 4.6)
NAMES = ("job", "node")
REQUIRED = (*NAMES, "start_s", "end_s", "gpus", "first_gpu")
OPTIONAL = ("frequency_mhz", "batch_size")
COLUMNS = (*REQUIRED, *OPTIONAL)
"""Columns of the table `segments` of a replay."""


def schedule(
    source: Outcome | pd.DataFrame | str | Path,
    *,
    rows: Literal["gpus", "jobs"] = "gpus",
    colour: Literal["gpus", "frequency_mhz", "batch_size", "job"] | Mapping[str, str] = "gpus",
    ax: Axes | None = None,
) -> Axes:
    """Draw a schedule (Gantt chart): jobs over time, on GPUs and nodes.

    Parameters
    ----------
    source : Outcome, DataFrame, str or Path
        A replay, or its table ``segments`` as a frame or a file (``.csv``, ``.parquet``), which ``wattsched
        replay -o`` writes: job, start_s, end_s, node, gpus, first_gpu and, if wanted, frequency_mhz (MHz) and
        batch_size. The nodes of a table have the GPUs that are used in it.
    rows : {"gpus", "jobs"}
        Whether a row is a GPU, node below node, or a job, in the order of their starts.
    colour : {"gpus", "frequency_mhz", "batch_size", "job"}, or mapping of str to str
        By how many GPUs the job has then, by its clock, batch size or name, or by what the mapping says of
        it, such as its user. Numbers that have more values than there are colours are put into ranges.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Time from the first arrival, or in tables the first start, in seconds, minutes, hours or days. Jobs
        that share GPUs divide their height. Names stand where they fit.

    Raises
    ------
    ValueError, TypeError
        For tables without segments, missing columns, cells that are no numbers, and arguments of another
        type.
    OSError
        When a file cannot be read.
    """
    require_types(schedule, locals())
    require_known("rows", rows, ("gpus", "jobs"))
    if not isinstance(colour, Mapping):
        require_known("colour", colour, ("gpus", "frequency_mhz", "batch_size", "job"))
    axes = axes_for(ax, SIZE_IN)
    segments = Segments.of(source)
    colouring = Colouring.of(segments.job, segments.values, colour)
    segments, colouring = segments.joined(colouring)
    unit, unit_s = unit_of_time(float(segments.end_s.max() - segments.begin_s))
    left, right = (segments.start_s - segments.begin_s) / unit_s, (segments.end_s - segments.begin_s) / unit_s
    axes.set_xlim(0.0, float(right.max()))
    first = "the first arrival" if isinstance(source, Outcome) else "the first start"
    if rows == "gpus":
        top, bottom = segments.on_gpus()
        gpus = np.array([*segments.nodes.values()], dtype=float)
        ends = np.cumsum(gpus)
        axes.set_ylim(float(ends[-1]), 0.0)
        axes.hlines(ends[:-1], 0.0, float(right.max()), color=FAINT, linewidth=0.6, zorder=0)
        name_rows(axes, np.asarray(ends - gpus / 2), [*segments.nodes])
        label(axes, f"time from {first}, {unit}", "GPUs, by node")
    else:
        jobs = list(dict.fromkeys(segments.job))
        place = dict(zip(jobs, range(len(jobs)), strict=True))
        row = np.array([place[job] for job in segments.job], dtype=float)
        top, bottom = row + 0.1, row + 0.9
        axes.set_ylim(float(len(jobs)), 0.0)
        name_rows(axes, np.arange(0.5, len(jobs)), jobs)
        label(axes, f"time from {first}, {unit}", "jobs, by their start")
    blocks = Blocks(segments.job, left, right, top, bottom)
    blocks.draw(axes, colouring)
    axes.spines[["top", "right"]].set_visible(False)
    legend(axes, colouring.handles(), title=colouring.title or None)
    if rows == "gpus":
        blocks.name(axes, colouring)
    return axes


@dataclass(frozen=True)
class Segments:
    """Jobs on neighbouring GPUs of a node, each from a start to an end.

    Attributes
    ----------
    nodes : dict of str to int
        GPUs of each node, in the order of the rows.
    begin_s : float
        Where time begins.
    first : int array, shape (n_segments,)
        Number of the first GPU of each.
    values : dict of str to float array
        What they can be coloured by.
    """

    nodes: dict[str, int]
    begin_s: float
    job: list[str]
    node: list[str]
    start_s: FloatArray
    end_s: FloatArray
    gpus: IntArray
    first: IntArray
    values: dict[str, FloatArray]

    @classmethod
    def of(cls, source: Outcome | pd.DataFrame | str | Path) -> Segments:
        """Segments of a replay, or of a table as a frame or a file."""
        table = RECORDS["segments"](source) if isinstance(source, Outcome) else _read(source)
        require_range(len(table["job"]) > 0, "source", "a table with a segment at least", "none")
        job, node = ([str(name) for name in table[column]] for column in NAMES)
        columns = {name: _numbers(name, table[name]) for name in COLUMNS if name not in NAMES}
        start_s, end_s = columns["start_s"], columns["end_s"]
        gpus, first = (columns[name].astype(np.int64) for name in ("gpus", "first_gpu"))
        for i in np.flatnonzero(~((start_s < end_s) & (gpus >= 1) & (first >= 0)))[:1].tolist():
            message = f"segment {i + 1}, of job '{job[i]}',"
            require_range(
                bool(start_s[i] < end_s[i]), f"source: end_s of {message}", "after its start", end_s[i]
            )
            require_range(bool(gpus[i] >= 1), f"source: gpus of {message}", "at least 1", gpus[i])
            require_range(bool(first[i] >= 0), f"source: first_gpu of {message}", "at least 0", first[i])
        if isinstance(source, Outcome):
            nodes, begin_s = {one.name: one.gpus for one in source.trace.cluster.nodes}, source.begin_s
        else:
            known: dict[str, int] = {}
            for name, end in zip(node, (first + gpus).tolist(), strict=True):
                known[name] = max(end, known.get(name, 0))
            nodes, begin_s = {name: known[name] for name in sorted(known, key=_natural)}, float(start_s.min())
        # What a job starts at once, on whichever nodes, is coloured by all its GPUs.
        _, together = np.unique(np.stack([_codes(job), start_s]), axis=1, return_inverse=True)
        together = together.reshape(-1)
        values = {"gpus": np.bincount(together, gpus)[together].astype(float)}
        values |= {name: columns[name] for name in OPTIONAL}
        return cls(nodes, begin_s, job, node, start_s, end_s, gpus, first, values)

    def joined(self, colouring: Colouring) -> tuple[Segments, Colouring]:
        """Join those of a job that follow one another in the same place and colour."""
        share, of = self._shares()
        place = [_codes(self.job), _codes(self.node), self.first, self.gpus, colouring.code, share, of]
        order = np.lexsort((self.start_s, *place))
        keys = np.stack(place)[:, order]
        same = (np.diff(keys) == 0).all(axis=0) & (self.end_s[order][:-1] == self.start_s[order][1:])
        begins = np.flatnonzero(np.append(True, ~same))
        kept, last = order[begins], order[np.append(begins[1:], len(order)) - 1]
        by_start = np.lexsort((self.first[kept], self.start_s[kept]))
        kept, last = kept[by_start], last[by_start]
        few = Segments(
            self.nodes,
            self.begin_s,
            [self.job[i] for i in kept.tolist()],
            [self.node[i] for i in kept.tolist()],
            self.start_s[kept],
            self.end_s[last],
            self.gpus[kept],
            self.first[kept],
            {"share": share[kept], "of": of[kept]},  # of the height, for `on_gpus`
        )
        return few, Colouring(colouring.title, colouring.names, colouring.code[kept])

    def on_gpus(self) -> tuple[FloatArray, FloatArray]:
        """Return where segments begin and end among all GPUs, the first of the first node being 0 to 1."""
        begin = dict(zip(self.nodes, np.cumsum([0, *self.nodes.values()]).tolist(), strict=False))
        start = np.array([begin[name] for name in self.node]) + self.first
        share, of = self.values["share"], self.values["of"]
        return start + self.gpus * share / of, start + self.gpus * (share + 1) / of

    def _shares(self) -> tuple[FloatArray, FloatArray]:
        """Return each segment's number among those on the same GPUs at the same time, and their count."""
        alike = np.stack([_codes(self.node), self.first, self.gpus, self.start_s, self.end_s])
        _, group, count = np.unique(alike, axis=1, return_inverse=True, return_counts=True)
        group = group.reshape(-1)
        order = np.argsort(group, kind="stable")
        number = np.empty(len(group))
        number[order] = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
        return number, count[group].astype(float)


def _codes(names: Sequence[str]) -> FloatArray:
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=float)


def _natural(name: str) -> list[tuple[int, str]]:
    """Key by which n2 comes before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _read(source: pd.DataFrame | str | Path) -> Mapping[str, Sequence[Any]]:
    """Columns of a table; those that are optional may be missing."""
    if not isinstance(source, pd.DataFrame) and not str(source).endswith(".parquet"):
        lines = [row.cells for row in rows_of(source, REQUIRED, OPTIONAL)]
        return {name: [line.get(name, "") for line in lines] for name in COLUMNS}
    frame = source if isinstance(source, pd.DataFrame) else pd.read_parquet(source)
    missing = listed([name for name in REQUIRED if name not in frame])
    require_range(
        not missing, "source", f"a table with {missing}", f"one with {listed(map(str, frame.columns))}"
    )
    nothing = [None] * len(frame)
    return {name: frame[name].tolist() if name in frame else nothing for name in COLUMNS}


def _numbers(name: str, values: Sequence[Any]) -> FloatArray:
    """Column of numbers; nan where a clock or batch size is not stated."""
    optional = name in OPTIONAL
    numbers = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            numbers[i] = np.nan if optional and value in ("", None) else float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"source: {name} of segment {i + 1} must be a number, got {value!r:.60}"
            ) from None
    bad = np.isinf(numbers) if optional else ~np.isfinite(numbers)
    for i in np.flatnonzero(bad)[:1].tolist():
        raise ValueError(f"source: {name} of segment {i + 1} must be a finite number, got {numbers[i]:g}")
    return numbers
