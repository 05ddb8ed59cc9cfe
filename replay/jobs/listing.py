"""A list of jobs with models or tables as a CSV file, for traces of one's own.

Lists of recorded jobs, which tell durations instead of work, are read by `instances.traces.job_lists`.

Columns, in any order:

=================  ==================================================================================
``job``            name, unique
``arrival_s``      seconds from any moment on
``work``           in the unit of the model's rate (samples) or of the table's
``requested_gpus`` what the user asked for
``model``          a model of the catalogue; empty where the job has a table
``table``          name of an option table in the file of tables; empty, or no column, where it has a model
``min_gpus``       optional bounds on the GPUs that it may use; empty for none
``max_gpus``
=================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import RootModel

from wattsched.instances.errors import validated
from wattsched.instances.io import read_json
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.perfmodels.profile import CATALOGUE, Profiles
from wattsched.reading.inputs import listed
from wattsched.reading.tables import SMALLEST, Row, csv_lines, rows_of, tell_unread
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.topology.cluster import Cluster

COLUMNS = ("job", "arrival_s", "work", "requested_gpus")
OPTIONAL = ("model", "table", "min_gpus", "max_gpus")


def tells_work(path: str | Path) -> bool:
    """True if a list of jobs has a column of this kind of list; else it tells durations."""
    _, header = next(csv_lines(path))
    return not {"work", "arrival_s", "requested_gpus"}.isdisjoint(header)


def read_listing(
    path: str | Path,
    cluster: Cluster,
    tables: Mapping[str, OptionTable] | None = None,
    profiles: Profiles = CATALOGUE,
) -> Trace:
    """Read a list of jobs; a ValueError has the line and column of what is malformed, or of no use here."""
    tables = tables or {}
    jobs: dict[str, Job] = {}
    arrivals, requests = [], []
    for row in rows_of(path, COLUMNS, OPTIONAL):
        if not jobs and (unread := [name for name in row.cells if name not in (*COLUMNS, *OPTIONAL)]):
            limits = "; policies know the work of each job exactly" * ("time_limit" in unread)
            tell_unread(path, unread, limits)
        job = _job(row, tables, profiles)
        if job.name in jobs:
            raise row.fault("job", f"the job '{job.name}' occurs twice")
        jobs[job.name] = job
        arrivals.append(row.number("arrival_s"))
        requests.append(_request(row, job, cluster))
    if not jobs:
        raise ValueError(f"{path}: has no job")
    return trace_of(cluster, list(jobs.values()), arrivals, requests, tables, profiles)


def read_tables(path: str | Path) -> dict[str, OptionTable]:
    """Read option tables: a JSON object of tables by name, as `tables` of an instance."""
    return validated(RootModel[dict[str, OptionTable]], read_json(path), str(path)).root


def _job(row: Row, tables: Mapping[str, OptionTable], profiles: Profiles) -> Job:
    model, table = (row.cells.get(name, "").strip() for name in ("model", "table"))
    if bool(model) == bool(table):
        raise row.fault("model", "give a model or a table, one of the two")
    if model and model not in profiles.models:
        raise row.fault("model", f"'{model}' is not in the catalogue, which has {', '.join(profiles.models)}")
    if table and table not in tables:
        known = f"there are {listed(tables, '')}" if tables else "no file of tables was given"
        raise row.fault("table", f"there is no table '{table}', {known}")
    least, most = (
        row.count(name, least=1) if row.cells.get(name, "").strip() else None
        for name in ("min_gpus", "max_gpus")
    )
    if least is not None and most is not None and least > most:
        raise row.fault("min_gpus", f"is {least}, above max_gpus {most}")
    return Job(
        name=row.text("job"),
        remaining_work=row.number("work", least=SMALLEST),
        model=model or None,
        options=table or None,
        min_gpus=least,
        max_gpus=most,
    )


def _request(row: Row, job: Job, cluster: Cluster) -> int:
    """GPUs asked for, which the job could use and the cluster could give."""
    gpus = row.count("requested_gpus", least=1)
    available = sum(node.gpus for node in cluster.nodes)
    if job.min_gpus is not None and gpus < job.min_gpus:
        raise row.fault("requested_gpus", f"is {gpus}, below min_gpus {job.min_gpus}")
    if job.max_gpus is not None and gpus > job.max_gpus:
        raise row.fault("requested_gpus", f"is {gpus}, above max_gpus {job.max_gpus}")
    if gpus > available:
        raise row.fault("requested_gpus", f"is {gpus:,}, the cluster has {available:,} GPUs")
    return gpus
