r"""Gavel's published files (OSDI 2020): job lists, throughputs, and measured pairs of jobs that share a GPU.

A list, ``traces/*.csv``, counts steps, not seconds. What a step takes depends on how the list was made, and
the throughputs that are published with it tell which:

* those with a column ``vc`` (Philly's arrivals, GPU counts and durations, types drawn at random): steps are
  the recorded seconds times the rate of the type on one V100, whatever the GPU count, rounded down. Dividing
  by this rate, of ``oracle_pair_throughputs.json``, gives whole seconds for every job of the published list.
* those of the testbed: steps over the rate on so many V100, of ``simulation_throughputs.json``. It gives
  whole seconds for every job of ``physical_minimize_makespan.csv``.

The throughputs are a JSON object ``{gpu: {job: {"null": t, other: [t1, t2]}}}`` of iterations per second:
alone, and of both jobs when they share the GPU, zeros where they do not fit into its memory. A job's
utilisation was not measured. It is taken from the pairs: two copies of a job of utilisation u that share a
GPU run at :math:`1 / \max(1, 2u)` of their speed alone, so that :math:`u = 1 / (2 v)` for a measured relative
speed v. The pairs serve `sharing`, and `sizing` as sets of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

from wattsched.instances.errors import InputError
from wattsched.instances.io import read_json
from wattsched.instances.sharing.instance import (
    Alone,
    Job,
    JobClass,
    Limits,
    MeasuredSet,
    SharingInstance,
    UnitType,
)
from wattsched.instances.sizing.instance import JobSet
from wattsched.instances.traces.job_lists import of_cluster
from wattsched.instances.traces.recorded import TraceJob
from wattsched.perfmodels.co_location import power_at
from wattsched.reading.inputs import COMPANIONS, beside
from wattsched.reading.tables import Row, rows_of

COLUMNS = ("job_type", "total_steps", "arrival_time_s", "scale_factor")
GPU = "v100"
ALONE = "null"
ON_ONE_GPU, ON_ALL_GPUS = COMPANIONS


def read_gavel(
    path: str | Path, virtual_cluster: str | None = None, throughputs: str | Path | None = None
) -> list[TraceJob]:
    """Jobs of a list; times in seconds on its clock.

    The list has no job names: ``row17`` is the job in line 18. What its job types train is not told further:
    their models differ from those of the catalogue.

    Parameters
    ----------
    virtual_cluster : str, optional
        Take the jobs of this virtual cluster only (default: of all).
    throughputs : str, optional
        File of throughputs (default: the one that the list needs, in its folder or the one above).

    Raises
    ------
    ValueError
        For a type without a throughput, no file of throughputs, or no job of the virtual cluster.
    """
    rows = list(rows_of(path, COLUMNS, ("vc",), tell=True))
    philly = bool(rows) and "vc" in rows[0].cells
    rates = _rates(throughputs or _beside(Path(path), ON_ONE_GPU if philly else ON_ALL_GPUS))
    jobs = []
    for number, row in enumerate(rows, start=1):
        gpus = row.count("scale_factor", least=1)
        seconds = row.number("total_steps") / _rate(row, rates, 1 if philly else gpus)
        job = TraceJob(f"row{number}", row.number("arrival_time_s"), seconds, gpus)
        jobs.append((row.text("vc") if philly else "", job))
    return of_cluster(path, jobs, virtual_cluster)


def _beside(path: Path, name: str) -> Path:
    """File of throughputs of that name, in the folder of a list or the one above."""
    for file in beside(path, name):
        if file.is_file():
            return file
    raise ValueError(
        f"{path}: steps become seconds with '{name}', which is not in its folder or the one above"
    )


def _rates(path: str | Path) -> Mapping[str, Any]:
    """Steps per second of every job type on V100 alone."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get(GPU), dict):
        raise InputError([f"must be an object with '{GPU}', an object of job types"], str(path))
    found: Mapping[str, Any] = document[GPU]
    return found


def _rate(row: Row, rates: Mapping[str, Any], gpus: int) -> float:
    """Steps per second of a job's type on so many V100."""
    kind = row.text("job_type")
    # Tables over GPU counts write the count into the name.
    for name in (f"('{kind}', {gpus})", *([kind] if gpus == 1 else [])):
        entry = rates.get(name)
        rate = entry.get(ALONE) if isinstance(entry, dict) else None
        if isinstance(rate, int | float) and rate > 0:
            return float(rate)
    raise row.fault("job_type", f"no throughput of '{kind}' on {gpus} {GPU} is known")


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
    """Read a table of pairs; classes are in the order of their names. All faults are an `InputError`."""
    document, source = read_json(path), str(path)
    if not isinstance(document, dict) or not all(isinstance(jobs, dict) for jobs in document.values()):
        raise InputError(["must be an object of GPU types, each an object of jobs"], source)
    try:
        alone = {gpu: dict(_speeds_alone(gpu, jobs)) for gpu, jobs in document.items()}
        slowdowns = {gpu: _slowdowns(gpu, jobs, alone[gpu]) for gpu, jobs in document.items()}
    except ValueError as error:
        raise InputError([str(error)], source) from None
    classes = [
        _class(name, alone, slowdowns) for name in sorted({name for t in alone.values() for name in t})
    ]
    sets = [
        MeasuredSet(unit_type=gpu, classes=list(pair), slowdown=list(factors or ()), fits=factors is not None)
        for gpu, pairs in slowdowns.items()
        for pair, factors in pairs.items()
    ]
    return PairTable(tuple(document), classes, sets)


Pairs = dict[tuple[str, str], tuple[float, float] | None]


def _class(name: str, alone: Mapping[str, Mapping[str, float]], pairs: Mapping[str, Pairs]) -> JobClass:
    """Class of jobs, from the speeds alone and the pairs on each GPU type."""
    return JobClass(
        name=name,
        alone={
            gpu: Alone(
                epoch_s=EPOCH_ITERATIONS / speeds[name], utilisation_pct=_utilisation_pct(name, pairs[gpu])
            )
            for gpu, speeds in alone.items()
            if name in speeds
        },
    )


def _speeds_alone(gpu: str, jobs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Job types of a GPU type in the file, and their iterations per second alone."""
    for name, row in jobs.items():
        speed: Any = row.get(ALONE) if isinstance(row, dict) else None
        if not (_is_speed(speed) and speed > 0):
            raise ValueError(
                f"{gpu}: '{name}' needs '{ALONE}', its iterations per second alone, got {speed!r:.40}"
            )
        yield name, float(speed)


def _slowdowns(gpu: str, jobs: Mapping[str, Any], alone: Mapping[str, float]) -> Pairs:
    """Epoch times of both jobs of a pair over those alone, by their names in order; None if they do not fit.

    A pair is there twice if both jobs name each other: the speeds' mean counts.
    """
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
    """Epoch times of a pair over those alone, from its measured speeds; of two alike the mean of both."""
    if not all(min(speeds) > 0 for speeds in measured):
        return None
    first, second = (alone[name] / fmean(speeds[i] for speeds in measured) for i, name in enumerate(pair))
    if pair[0] == pair[1]:
        first = second = (first + second) / 2
    return first, second


def _utilisation_pct(name: str, pairs: Pairs) -> float:
    """Share of the GPU that a job keeps busy: from two copies of it, or else from all its pairs."""
    # Of a factor f = 1 / v, f / 2 is the utilisation: that of two copies fills the GPU.
    own = pairs.get((name, name))
    others = [f[pair.index(name)] for pair, f in pairs.items() if f is not None and name in pair]
    factors = others if own is None else own[:1]
    return min(100.0, 50.0 * median(factors)) if factors else 100.0


def _is_speed(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )


def read_jobs(path: str | Path, most: int | None = None) -> list[Job]:
    """Jobs with one GPU of a Gavel trace, in its order, at most so many.

    Its columns are ``job_type``, ``total_steps`` and ``scale_factor``. Without such a job it is a ValueError.
    """
    jobs: list[Job] = []
    columns = ("job_type", "total_steps", "scale_factor")
    for number, row in enumerate(rows_of(path, columns, tell=True), start=1):
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
        More fields of the instance, which is validated.
    """
    types = [
        UnitType(name=name, count=count, idle_power_w=idle_w, full_power_w=full_w)
        for name, count in gpus.items()
        for idle_w, full_w in [GPU_POWER_W[name]]
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


def sets_of_pairs(
    table: PairTable, jobs: Sequence[Job], gpu: str, pool: str | None = None, least: float = 1.0
) -> list[JobSet]:
    """Pairs of jobs that were measured to fit on one GPU of a type.

    Rates are in epochs of `EPOCH_ITERATIONS` per second, watts those of `gpu_power_w`.

    Parameters
    ----------
    gpu : str
        GPU type of the table.
    pool : str, optional
        Pool of the sets; default: one that is called like the GPU type.
    least : float
        Pairs whose speeds, relative to those alone, do not add up to more than this are left out.
    """
    alone = {c.name: c.alone[gpu] for c in table.classes if gpu in c.alone}
    measured = {tuple(s.classes): s.slowdown for s in table.sets if s.unit_type == gpu and s.fits}
    sets = []
    for pair in combinations(jobs, 2):
        # Classes of a pair are in the order of their names.
        one, other = sorted(pair, key=lambda job: job.job_class)
        slowdown = measured.get((one.job_class, other.job_class))
        if slowdown is None or sum(1 / factor for factor in slowdown) <= least:
            continue
        of_both = [alone[job.job_class] for job in (one, other)]
        epochs_s = [a.epoch_s * factor for a, factor in zip(of_both, slowdown, strict=True)]
        sets.append(
            JobSet(
                name=f"{one.name}+{other.name}",
                pool=pool or gpu,
                gpus=1,
                power_w=gpu_power_w(gpu, sum(a.utilisation_pct for a in of_both)),
                rates={one.name: 1 / epochs_s[0], other.name: 1 / epochs_s[1]},
            )
        )
    return sets


def gpu_power_w(gpu: str, utilisation_pct: float) -> float:
    """Watts of a GPU at a utilisation, by EaCO's law between the idle and full watts of the data sheet."""
    return float(power_at(utilisation_pct, *GPU_POWER_W[gpu]))
