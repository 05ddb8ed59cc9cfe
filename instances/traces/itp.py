"""Microsoft ITP traces of 2021 (ElasticFlow, ASPLOS 2023): ``raw/*.csv`` and ``elasticflow/*.csv.gz``."""

from __future__ import annotations

from pathlib import Path

from wattsched.instances.traces.rows import Row, rows_of
from wattsched.instances.traces.snapshot import TraceJob
from wattsched.perfmodels.catalogue import models

COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")


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
    for row in rows_of(path, COLUMNS):
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
