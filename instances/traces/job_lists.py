"""Microsoft ITP traces of 2021 (ElasticFlow, ASPLOS 2023): ``raw/*.csv`` and ``elasticflow/*.csv.gz``.

Job list of Microsoft's Philly clusters, 2017, as Pollux used it: ``philly_jobs.csv.gz``.

Job lists of Alibaba's PAI clusters 2020, as GAIA sampled them (ASPLOS 2024): ``pai_*.csv``.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from wattsched.instances.traces.rows import Row, rows_of
from wattsched.instances.traces.snapshot import TraceJob
from wattsched.instances.units import S_PER_H
from wattsched.perfmodels.profile import models
from wattsched.topology.buddy import block_size

ITP_COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


def read_itp(path: str | Path) -> list[TraceJob]:
    """Jobs of one cluster; times in seconds from the start of the collection.

    The lists that ElasticFlow made of them name a model and a global batch for each job, drawn at random;
    where these columns are there, they are used. Its iterations are the duration times the measured rate,
    and tell nothing more. Its deadlines are left out.

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
            model=_model(row),
            batch_size=row.count("batch_size", least=1) if "batch_size" in row.cells else None,
        )
    return list(jobs.values())


def _model(row: Row) -> str | None:
    if "model_name" not in row.cells:
        return None
    if (model := row.text("model_name")) not in models():
        raise row.fault("model_name", f"'{model}' is not in the catalogue, which has {', '.join(models())}")
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
    jobs, clusters, stamps = [], set(), []
    for number, row in enumerate(rows_of(path, PHILLY_COLUMNS), start=1):
        cluster, stamp = row.text("cluster"), _seconds(row)
        clusters.add(cluster)
        stamps.append(stamp)
        if virtual_cluster in (None, cluster):
            job = TraceJob(f"row{number}", stamp, row.number("duration"), row.count("num_gpus"))
            jobs.append(job)
    if not jobs and virtual_cluster is not None:
        known = ", ".join(sorted(clusters))
        raise ValueError(f"{path}: no job is of the virtual cluster '{virtual_cluster}', there are {known}")
    first = min(stamps, default=0.0)
    return [TraceJob(j.name, j.submitted_s - first, j.duration_s, j.gpus) for j in jobs]


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
        Of its times, s or h. Default: hours where all jobs arrive within a year of them, else seconds.

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
        (row.number("arrival_time"), row.number("length"), _gpus(row)) for row in rows_of(path, PAI_COLUMNS)
    ]
    last = max((arrival for arrival, _, _ in rows), default=0.0)
    to_s = UNITS[unit or ("h" if last <= YEAR_H else "s")]
    return [
        TraceJob(f"row{number}", arrival * to_s, length * to_s, gpus)
        for number, (arrival, length, gpus) in enumerate(rows, start=1)
    ]


def _gpus(row: Row) -> int:
    cpus = row.count("cpus")
    return int(block_size(cpus)) if cpus else 0
