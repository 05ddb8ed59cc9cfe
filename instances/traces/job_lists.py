"""Readers of job lists that record arrival, duration and GPUs of each job.

ITP: Microsoft's traces of 2021 (ElasticFlow, ASPLOS 2023), ``raw/*.csv`` and ``elasticflow/*.csv.gz``.
Philly: Microsoft's clusters in 2017, as Pollux used them, ``philly_jobs.csv.gz``. PAI: Alibaba's clusters in
2020, as GAIA sampled them (ASPLOS 2024), ``pai_*.csv``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from wattsched.inputs import Row, listed, rows_of
from wattsched.instances.errors import NoticeWarning
from wattsched.instances.traces.recorded import TraceJob
from wattsched.instances.units import S_PER_H
from wattsched.perfmodels.profiles import CATALOGUE, Profiles
from wattsched.topology.buddy import block_size

ITP_COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


def read_itp(path: str | Path, known: Profiles = CATALOGUE) -> list[TraceJob]:
    """Jobs of one cluster; times in seconds from the start of the collection.

    The lists that ElasticFlow made of them name a model and a global batch for each job, drawn at random;
    where these columns are there, they are used. Its iterations are the duration times the measured rate,
    and tell nothing more. Its deadlines are left out.

    Parameters
    ----------
    known : Profiles
        Models that a job may name.

    Raises
    ------
    ValueError
        With the line and column of a malformed cell.
    OSError
        When the file cannot be read.
    """
    jobs: dict[str, TraceJob] = {}
    for row in rows_of(path, ITP_COLUMNS):
        name = row.text("job_id")
        if name in jobs:
            raise row.fault("job_id", f"the job '{name}' occurs twice")
        jobs[name] = TraceJob(
            name=name,
            submitted_s=row.number("submission_time"),
            duration_s=row.number("duration"),
            gpus=row.count("num_gpu"),
            model=_model(row, known),
            batch_size=row.count("batch_size", least=1) if "batch_size" in row.cells else None,
        )
    return list(jobs.values())


def _model(row: Row, known: Profiles) -> str | None:
    if "model_name" not in row.cells:
        return None
    if (model := row.text("model_name")) not in known.models:
        there = ", ".join(known.models)
        raise row.fault("model_name", f"'{model}' is not in the catalogue, which has {there}")
    return model


PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(path: str | Path, virtual_cluster: str | None = None) -> list[TraceJob]:
    """Jobs of all virtual clusters, or of one; times in seconds from the first submission in the file.

    The list has no job names: ``row17`` is the job in line 18.

    Parameters
    ----------
    virtual_cluster : str, optional
        Take the jobs of this virtual cluster only (default: of all).

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or when no job is of the virtual cluster.
    OSError
        When the file cannot be read.
    """
    read = [
        (
            row.text("cluster"),
            TraceJob(f"row{n}", _seconds(row), row.number("duration"), row.count("num_gpus")),
        )
        for n, row in enumerate(rows_of(path, PHILLY_COLUMNS), start=1)
    ]
    first = min((job.submitted_s for _, job in read), default=0.0)
    jobs = of_cluster(path, read, virtual_cluster)
    return [replace(job, submitted_s=job.submitted_s - first) for job in jobs]


def of_cluster(
    path: str | Path, jobs: Iterable[tuple[str, TraceJob]], virtual_cluster: str | None
) -> list[TraceJob]:
    """Jobs of a virtual cluster, or of all.

    Parameters
    ----------
    jobs : iterable of pairs
        Name of the virtual cluster, empty where the list has none, and job.

    Raises
    ------
    ValueError
        When no job is of the virtual cluster.
    """
    jobs = list(jobs)
    found = [job for name, job in jobs if virtual_cluster in (None, name)]
    if not found and virtual_cluster is not None:
        known = listed(sorted({name for name, _ in jobs if name}), "") or "none"
        raise ValueError(f"{path}: no job is of the virtual cluster '{virtual_cluster}', there are {known}")
    return found


def _seconds(row: Row) -> float:
    text = row.text("timestamp")
    try:
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        raise row.fault("timestamp", f"'{text}' is not a time like 2017-10-09 07:01:55") from None
    # Local wall clock without a zone: differences are all that is used.
    return (moment - datetime(2017, 1, 1)).total_seconds()


PAI_COLUMNS = ("arrival_time", "length", "cpus")
UNITS = {"s": 1, "h": S_PER_H}
YEAR_H = 366 * 24.0


def read_pai(path: str | Path, unit: str | None = None) -> list[TraceJob]:
    """Jobs of a list; times in seconds on its clock.

    The list has no job names: ``row17`` is the job in line 18. Its ``cpus`` is the authors' count of
    resources, which are GPUs in the trace that they sampled. We take it for GPUs, rounded up to a power of
    two as clusters hand them out.

    Parameters
    ----------
    unit : str, optional
        Of its times, s or h. Default: hours where all jobs arrive within a year of them, else seconds; a
        warning says which.

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or for another unit.
    OSError
        When the file cannot be read.
    """
    if unit not in (None, *UNITS):
        raise ValueError(f"unit: '{unit}' is not one of {', '.join(UNITS)}")
    rows = [
        (row.number("arrival_time"), row.number("length"), row.count("cpus"))
        for row in rows_of(path, PAI_COLUMNS)
    ]
    last = max((arrival for arrival, _, _ in rows), default=0.0)
    if unit is None:
        unit = "h" if last <= YEAR_H else "s"
        guess = "hours: in hours, all jobs" if unit == "h" else "seconds: in hours, not all jobs"
        told = f"the times are taken for {guess} arrive within a year"
        other = f"if that is wrong, give --unit, in Python unit, '{'h' if unit == 's' else 's'}'"
        warnings.warn(f"{path}: {told}; {other}", NoticeWarning, stacklevel=2)
    to_s = UNITS[unit]
    return [
        TraceJob(f"row{number}", arrival * to_s, length * to_s, int(block_size(cpus)) if cpus else 0)
        for number, (arrival, length, cpus) in enumerate(rows, start=1)
    ]
