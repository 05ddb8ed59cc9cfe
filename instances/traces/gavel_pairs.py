r"""Throughputs of jobs that share a GPU, as Gavel measured them (OSDI 2020).

The file is a JSON object ``{gpu: {job: {"null": t, other: [t1, t2]}}}`` of iterations per second: alone, and
of both jobs when they share the GPU, zeros where they do not fit into its memory. A job's utilisation was not
measured. It is taken from the pairs: two copies of a job of utilisation u that share a GPU run at
:math:`1 / \max(1, 2u)` of their speed alone, so that :math:`u = 1 / (2 v)` for a measured relative speed v.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from wattsched.instances.files import InputError, read_json
from wattsched.instances.sharing.instance import (
    Alone,
    Job,
    JobClass,
    Limits,
    MeasuredSet,
    SharingInstance,
    UnitType,
)
from wattsched.instances.traces.rows import rows_of

ALONE = "null"
EPOCH_ITERATIONS = 1000.0
"""Iterations that count as an epoch."""

GPU_POWER_W = {"v100": (30.0, 300.0), "p100": (25.0, 250.0), "k80": (25.0, 150.0)}
"""GPU to its idle and full watts, from data sheets: no power was measured."""


@dataclass(frozen=True)
class PairTable:
    """Classes and pairs as instances of `sharing` have them."""

    gpus: tuple[str, ...]
    classes: list[JobClass]
    sets: list[MeasuredSet]


def read_pairs(path: str | Path) -> PairTable:
    """Read a table of pairs; classes are in the order of their names.

    Raises
    ------
    wattsched.instances.files.InputError
        When the file cannot be read, or a number is missing or out of range.
    """
    document, source = read_json(path), str(path)
    if not isinstance(document, dict) or not all(isinstance(jobs, dict) for jobs in document.values()):
        raise InputError(["must be an object of GPU types, each an object of jobs"], source)
    try:
        alone = {gpu: dict(_speeds_alone(gpu, jobs)) for gpu, jobs in document.items()}
        slowdowns = {gpu: _slowdowns(gpu, jobs, alone[gpu]) for gpu, jobs in document.items()}
    except ValueError as error:
        raise InputError([str(error)], source) from None
    names = sorted({name for speeds in alone.values() for name in speeds})
    classes = [
        JobClass(
            name=name,
            alone={
                gpu: Alone(
                    epoch_s=EPOCH_ITERATIONS / alone[gpu][name],
                    utilisation_pct=_utilisation_pct(name, slowdowns[gpu]),
                )
                for gpu in document
                if name in alone[gpu]
            },
        )
        for name in names
    ]
    sets = [
        MeasuredSet(unit_type=gpu, classes=list(pair), slowdown=list(factors or ()), fits=factors is not None)
        for gpu, pairs in slowdowns.items()
        for pair, factors in pairs.items()
    ]
    return PairTable(tuple(document), classes, sets)


def _speeds_alone(gpu: str, jobs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, row in jobs.items():
        speed: Any = row.get(ALONE) if isinstance(row, dict) else None
        if not (_is_speed(speed) and speed > 0):
            raise ValueError(
                f"{gpu}: '{name}' needs '{ALONE}', its iterations per second alone, got {speed!r:.40}"
            )
        yield name, float(speed)


Pairs = dict[tuple[str, str], tuple[float, float] | None]


def _slowdowns(gpu: str, jobs: Mapping[str, Any], alone: Mapping[str, float]) -> Pairs:
    """Epoch times in pairs over those alone, means of both orders; None where jobs do not fit."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one, row in jobs.items():
        for other, speeds in row.items():
            if other == ALONE:
                continue
            if other not in alone:
                raise ValueError(f"{gpu}: '{one}' shares with '{other}', which is not measured alone")
            if not (isinstance(speeds, list) and len(speeds) == 2 and all(map(_is_speed, speeds))):
                raise ValueError(f"{gpu}: '{one}' with '{other}' needs two speeds, got {speeds!r:.60}")
            ordered = tuple(speeds) if one <= other else tuple(reversed(speeds))
            found.setdefault((min(one, other), max(one, other)), []).append(ordered)
    return {pair: _factors(pair, measured, alone) for pair, measured in sorted(found.items())}


def _factors(
    pair: tuple[str, str], measured: list[tuple[float, float]], alone: Mapping[str, float]
) -> tuple[float, float] | None:
    if not all(min(speeds) > 0 for speeds in measured):
        return None
    first, second = (alone[name] / fmean(speeds[i] for speeds in measured) for i, name in enumerate(pair))
    if pair[0] == pair[1]:
        first = second = (first + second) / 2
    return first, second


def _utilisation_pct(name: str, pairs: Pairs) -> float:
    """Share of the GPU that a job keeps busy: from two copies of it, or else from all its pairs."""
    own = pairs.get((name, name))
    if own is not None:
        factors = [own[0]]
    else:
        factors = [f[pair.index(name)] for pair, f in pairs.items() if f is not None and name in pair]
    return min(100.0, 50.0 * median(factors)) if factors else 100.0


def _is_speed(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )


def read_jobs(path: str | Path, most: int | None = None) -> list[Job]:
    """Jobs with one GPU of a Gavel trace, in its order.

    Its columns are ``job_type``, ``total_steps`` and ``scale_factor``.

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or when there is no such job.
    OSError
        When the file cannot be read.
    """
    jobs: list[Job] = []
    for number, row in enumerate(rows_of(path, ("job_type", "total_steps", "scale_factor")), start=1):
        if len(jobs) == most:
            break
        epochs = row.number("total_steps") / EPOCH_ITERATIONS
        if epochs <= 0:
            raise row.fault("total_steps", "must be above 0")
        if row.count("scale_factor", 1) == 1:
            jobs.append(Job(name=f"job{number}", job_class=row.text("job_type"), remaining_epochs=epochs))
    if not jobs:
        raise ValueError(f"{path}: has no job with one GPU")
    return jobs


def round_of_pairs(
    table: PairTable, jobs: list[Job], gpus: Mapping[str, int], **fields: Any
) -> SharingInstance:
    """Instance of `sharing` in which at most two jobs share a GPU, and only as measured.

    Parameters
    ----------
    gpus : mapping of str to int
        GPUs of each type of the table.
    **fields
        More fields of the instance.

    Raises
    ------
    pydantic.ValidationError
        For GPU types or classes that the table does not have, and fields that do not go together.
    """
    types = [
        UnitType(name=name, count=count, idle_power_w=GPU_POWER_W[name][0], full_power_w=GPU_POWER_W[name][1])
        for name, count in gpus.items()
    ]
    classes = [
        JobClass(name=c.name, alone={name: alone for name, alone in c.alone.items() if name in gpus})
        for c in table.classes
    ]
    given: dict[str, Any] = {
        "problem": "sharing",
        "limits": Limits(jobs_per_set=2),
        "unmeasured": "refuse",
        "unit_types": types,
        "classes": classes,
        "sets": [s for s in table.sets if s.unit_type in gpus],
        "jobs": jobs,
    }
    return SharingInstance(**(given | fields))
