"""Microsoft ITP traces of 2021 (ElasticFlow, ASPLOS 2023): ``raw/clusterNN.csv``."""

from __future__ import annotations

from pathlib import Path

from wattsched.instances.traces.rows import rows_of
from wattsched.instances.traces.snapshot import TraceJob

COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


def read_itp(path: str | Path) -> list[TraceJob]:
    """Jobs of one cluster; times in seconds from the start of the collection.

    Raises
    ------
    ValueError
        With the line and column of a malformed cell.
    OSError
        When the file cannot be read.
    """
    jobs: dict[str, TraceJob] = {}
    for row in rows_of(path, COLUMNS):
        name = row.text("job_id")
        if name in jobs:
            raise row.fault("job_id", f"the job '{name}' occurs twice")
        jobs[name] = TraceJob(
            name=name,
            submitted_s=row.number("submission_time"),
            duration_s=row.number("duration"),
            gpus=row.count("num_gpu"),
        )
    return list(jobs.values())
