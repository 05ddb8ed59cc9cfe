"""Job list of Microsoft's Philly clusters, 2017, as Pollux used it: ``philly_jobs.csv.gz``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from wattsched.instances.traces.rows import Row, rows_of
from wattsched.instances.traces.snapshot import TraceJob

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


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
    for number, row in enumerate(rows_of(path, COLUMNS), start=1):
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
