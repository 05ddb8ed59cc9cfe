"""Readers of job lists that record arrival, duration and GPUs of each job.

ITP: Microsoft's traces of 2021 (ElasticFlow, ASPLOS 2023), ``raw/*.csv`` and ``elasticflow/*.csv.gz``.
Philly: Microsoft's clusters in 2017, as Pollux used them, ``philly_jobs.csv.gz``. PAI: Alibaba's clusters in
2020, as GAIA sampled them (ASPLOS 2024), ``pai_*.csv``.

A plain list is what a user can write by hand, and what imports write. `COLUMNS` and `OPTIONAL` are in any
order; others are not looked at. Lines that begin with ``# `` may stand before them, and are repeated by who
reads the list.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from wattsched.instances.errors import MOST_FAULTS, InputError
from wattsched.instances.io import csv_text_cell
from wattsched.instances.traces.recorded import TraceJob
from wattsched.instances.units import S_PER_H
from wattsched.perfmodels.profile import CATALOGUE, Profiles
from wattsched.reading.clocks import LOCAL, SECONDS, clock_s, is_since_1970, moment_s
from wattsched.reading.inputs import echo, listed, notice, number_in, printable
from wattsched.reading.tables import Cells, bounded, comments_of, count_in, rows_of, text_in
from wattsched.reading.units import Numbers, watts_column
from wattsched.topology.buddy import block_size
from wattsched.topology.cluster import MOST_GPUS
from wattsched.topology.fields import shortened

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
    """
    jobs: dict[str, TraceJob] = {}
    for row in rows_of(path, ITP_COLUMNS, ("model_name", "batch_size"), tell=True):
        name = row.text("job_id")
        if name in jobs:
            raise row.fault("job_id", f"the job '{name}' occurs twice")
        jobs[name] = TraceJob(
            name=name,
            submitted_s=row.number("submission_time"),
            duration_s=row.number("duration"),
            gpus=row.count("num_gpu"),
            model=row.read("model_name", partial(_model, known)) if "model_name" in row.cells else None,
            batch_size=row.count("batch_size", least=1) if "batch_size" in row.cells else None,
        )
    return list(jobs.values())


def _model(known: Profiles, name: str) -> str:
    """Model of the catalogue that a cell names."""
    if text_in(name) not in known.models:
        raise ValueError(f"{echo(name)} is not in the catalogue, which has {', '.join(known.models)}")
    return name


PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def read_philly(path: str | Path, virtual_cluster: str | None = None) -> list[TraceJob]:
    """Jobs of all virtual clusters, or of one; times in seconds from the first submission in the file.

    The list has no job names: ``row17`` is the job in line 18.

    Parameters
    ----------
    virtual_cluster : str, optional
        Take the jobs of this virtual cluster only (default: of all).
    """
    read = []
    for n, row in enumerate(rows_of(path, PHILLY_COLUMNS, tell=True), start=1):
        # Of wall clocks without a zone, whose differences are all that is used.
        submitted_s, _ = row.read("timestamp", _arrival)
        job = TraceJob(f"row{n}", submitted_s, row.number("duration"), row.count("num_gpus"))
        read.append((row.text("cluster"), job))
    first = min((job.submitted_s for _, job in read), default=0.0)
    jobs = of_cluster(path, read, virtual_cluster)
    return [replace(job, submitted_s=job.submitted_s - first) for job in jobs]


def of_cluster(
    path: str | Path, jobs: Iterable[tuple[str, TraceJob]], virtual_cluster: str | None
) -> list[TraceJob]:
    """Jobs of a virtual cluster, whose name is beside each, or of all; a ValueError where none is of it."""
    jobs = list(jobs)
    found = [job for name, job in jobs if virtual_cluster in (None, name)]
    if not found and virtual_cluster is not None:
        known = listed(sorted({name for name, _ in jobs if name}), quote="") or "none"
        raise ValueError(f"{path}: no job is of the virtual cluster '{virtual_cluster}', there are {known}")
    return found


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
    """
    if unit not in (None, *UNITS):
        raise ValueError(f"unit: '{unit}' is not one of {', '.join(UNITS)}")
    rows = [
        (row.number("arrival_time"), row.number("length"), row.count("cpus"))
        for row in rows_of(path, PAI_COLUMNS, tell=True)
    ]
    last = max((arrival for arrival, _, _ in rows), default=0.0)
    if unit is None:
        unit = "h" if last <= YEAR_H else "s"
        guess = "hours: in hours, all jobs" if unit == "h" else "seconds: in hours, not all jobs"
        told = f"the times are taken for {guess} arrive within a year"
        other = f"if that is wrong, give --unit, in Python unit, '{'h' if unit == 's' else 's'}'"
        notice(f"{path}: {told}; {other}")
    to_s = UNITS[unit]
    return [
        TraceJob(f"row{number}", arrival * to_s, length * to_s, int(block_size(cpus)) if cpus else 0)
        for number, (arrival, length, cpus) in enumerate(rows, start=1)
    ]


LONGEST_S = 100 * 366 * 86_400.0
"""Upper limit on a job's duration: 100 years; rates times much more exceed the range of a round."""

SHORTEST_S = 300.0
"""The longest job of a cluster's list lasts longer; where it does not, durations may be hours or days."""
SHEET_DAYS, DAYS_TO_1970 = (36_526, 73_050), 25_569
"""Days by which spreadsheets write dates of this century, which are those since the end of 1899."""

COLUMNS = ("job", "arrival", "duration", "gpus")
OPTIONAL = (
    *("gpu_type", "watts", "wait", "user", "account", "model", "time_limit", "job_name"),
    *("min_gpus", "max_gpus"),
)


def read_plain(path: str | Path, known: Profiles = CATALOGUE) -> list[TraceJob]:
    """Jobs of a list; times in seconds on its clock, of dates from the first one.

    What is filled in where a job names no model, and what is not used, is said in warnings. All malformed
    cells are an `InputError`.

    Parameters
    ----------
    known : Profiles
        Models that a job may name.
    """
    faults: list[str] = []
    jobs: dict[str, TraceJob] = {}
    first_form = first_line = ""
    columns: Iterable[str] = ()
    watts: tuple[str, Numbers] | None = None
    for row in rows_of(path, COLUMNS, OPTIONAL):
        read, columns = Cells(row, faults), row.cells
        watts = watts or watts_column(row.cells, row.place)
        job, form = _job(read, known, *watts)
        if job.name and job.name in jobs:
            read.fault("job", f"the job {echo(job.name)} occurs twice")
        if form and not first_form:
            first_form, first_line = form, row.place.rpartition(", ")[2]
        if form and form != first_form:
            mixed = f"{echo(row.text('arrival'))} is {form}, in {first_line} there is {first_form}"
            read.fault("arrival", mixed)
        jobs[job.name] = job
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults)
    found = list(jobs.values())
    for column, numbers in [watts] if watts else []:
        if column in columns:
            numbers.tell(f"{path}, column {echo(column)}")
            columns = [name for name in columns if name != column]
    _notice(path, columns, found, local=first_form == LOCAL)
    first_s = min((job.submitted_s for job in found), default=0.0)
    if not first_form or (first_form == SECONDS and not is_since_1970(first_s)):
        return found
    return [replace(job, submitted_s=job.submitted_s - first_s) for job in found]


def first_arrival(path: str | Path) -> datetime | None:
    """Time of the first arrival of a list, in UTC or without a zone; None on a clock of its own."""
    first_s, form = min(moment_s(row.text("arrival")) for row in rows_of(path, COLUMNS, OPTIONAL))
    if form == SECONDS and not is_since_1970(first_s):
        return None
    return datetime.fromtimestamp(first_s, UTC).replace(tzinfo=None if form == LOCAL else UTC)


def _job(read: Cells, known: Profiles, column: str, watts: Numbers) -> tuple[TraceJob, str]:
    """Job of a row, and how its arrival is written; empty where that cannot be read."""
    arrival_s, form = read("arrival", _arrival, (0.0, ""))
    job = TraceJob(
        name=read("job", text_in, ""),
        submitted_s=arrival_s,
        duration_s=read("duration", _duration_s, 0.0),
        gpus=read("gpus", partial(count_in, most=MOST_GPUS), 0),
        gpu_type=read.optional("gpu_type", text_in),
        power_w=read.optional(
            column, lambda cell: None if math.isnan(watts(cell)) else bounded(cell, read=watts)
        ),
        waited_s=read.optional("wait", _duration_s),
        user=read.optional("user", text_in) or "",
        account=read.optional("account", text_in) or "",
        model=read.optional("model", partial(_model, known)),
        time_limit_s=read.optional("time_limit", _time_limit_s) or None,
        job_name=read.optional("job_name", shortened) or "",
        min_gpus=read.optional("min_gpus", partial(count_in, least=1, most=MOST_GPUS)),
        max_gpus=read.optional("max_gpus", partial(count_in, least=1, most=MOST_GPUS)),
    )
    if not (job.min_gpus or 0) <= job.gpus <= (job.max_gpus or MOST_GPUS):
        bounds = f"min_gpus {job.min_gpus or job.gpus} to max_gpus {job.max_gpus or job.gpus}"
        read.fault("gpus", f"{job.gpus} is not within {bounds}")
    return job, form


def _arrival(cell: str) -> tuple[float, str]:
    """Seconds of an arrival, and how it is written: as they are, or as a date."""
    found_s, form = moment_s(text_in(cell))
    return (bounded(cell) if form == SECONDS else found_s), form


def _duration_s(cell: str) -> float:
    """Seconds of a number of them, or of ``[D-]HH:MM:SS``."""
    found = bounded(cell, read=_clock_or_number_s)
    if found > LONGEST_S:
        raise ValueError(f"{echo(cell)} is longer than a century")
    return found


def _time_limit_s(cell: str) -> float:
    """Seconds of a time limit, 0 for Slurm's word for none."""
    return 0.0 if cell.lower() == "unlimited" else _duration_s(cell)


def _clock_or_number_s(text: str) -> float:
    if (found := clock_s(text)) is not None:
        return found
    try:
        return number_in(text)
    except ValueError:
        expected = "a number of seconds nor HH:MM:SS nor D-HH:MM:SS"
        raise ValueError(f"{echo(text)} is neither {expected}") from None


def _notice(path: str | Path, columns: Iterable[str], jobs: Sequence[TraceJob], *, local: bool) -> None:
    """Warn of columns and jobs of a list that are not used, and of models that are assumed."""
    told = list(filter(None, comments_of(path)))
    if strange := [name for name in columns if name not in (*COLUMNS, *OPTIONAL)]:
        told.append(f"not read: the columns {listed(strange)}; read are {', '.join((*COLUMNS, *OPTIONAL))}")
    if local:
        told.append("assumed: arrivals have no zone and are UTC, whose clocks never change")
    using = [job for job in jobs if job.gpus and job.duration_s]
    if len(using) < len(jobs):
        told.append(f"left out: {len(jobs) - len(using):,} without GPUs or duration")
    if drawn := sum(job.model is None for job in using):
        of = f"{drawn:,} of {len(using):,} jobs name no model"
        told.append(f"assumed: {of}; which of the catalogue each trains is drawn by the seed")
    if 0 < (untyped := sum(job.gpu_type is None for job in using)) < len(using):
        of = f"{untyped:,} of {len(using):,} jobs name no GPU type"
        told.append(f"assumed: {of}; they run as long on whatever GPUs they get first")
    if measured := sum(job.power_w is not None for job in using):
        told.append(f"not used: watts, told of {measured:,} of {len(using):,} jobs; draws are the models'")
    told += _doubtful_units(using)
    if late := sum(job.duration_s > (job.time_limit_s or job.duration_s) for job in using):
        told.append(f"doubtful: {late:,} of {len(using):,} jobs ran longer than their time_limit")
    for line in told:
        notice(f"{path}: {line}")


def _doubtful_units(jobs: Sequence[TraceJob]) -> list[str]:
    """Point at arrivals and durations that seem to be days or hours; they are read as seconds."""
    told = list[str]()
    if jobs and (longest := max(jobs, key=lambda job: job.duration_s)).duration_s < SHORTEST_S:
        of = f"column 'duration' is read as seconds, at most {longest.duration_s:.9g} of {echo(longest.name)}"
        told.append(f"doubtful: {of}; write hours as 1:30:00 and days as 1-06:00:00")
    sheet = [job for job in jobs if SHEET_DAYS[0] <= job.submitted_s <= SHEET_DAYS[1]]
    if sheet and len(sheet) == len(jobs) and (cut := [job for job in sheet if job.submitted_s % 1]):
        date = datetime.fromtimestamp(round((cut[0].submitted_s - DAYS_TO_1970) * 86_400), UTC)
        of = f"column 'arrival' is read as seconds, as {cut[0].submitted_s:.12g} of {echo(cut[0].name)}"
        told.append(f"doubtful: {of}; if they are a spreadsheet's days, write {date:%Y-%m-%d %H:%M:%S}")
    return told


def csv_of(jobs: Iterable[TraceJob], comments: Iterable[str] = ()) -> str:
    """Write jobs as such a list, those columns that tell something, and times since 1970 as dates in UTC.

    Names that are longer than the reader takes are `shortened`. Comments come first, each in a line that
    begins with ``#``; rows that have this sign are quoted, so that ``pandas.read_csv(..., comment="#")``
    reads the list, too.
    """
    jobs = sorted(jobs, key=lambda job: (job.submitted_s, job.name))
    columns = {
        "job": [_name_cell(job.name) for job in jobs],
        "arrival": [_date(job.submitted_s) for job in jobs],
        "duration": [f"{job.duration_s:.12g}" for job in jobs],
        "gpus": [str(job.gpus) for job in jobs],
        "gpu_type": [_name_cell(job.gpu_type or "") for job in jobs],
        "watts": ["" if job.power_w is None else f"{job.power_w:.6g}" for job in jobs],
        "wait": ["" if job.waited_s is None else f"{job.waited_s:.12g}" for job in jobs],
        "user": [_name_cell(job.user) for job in jobs],
        "account": [_name_cell(job.account) for job in jobs],
        "model": [job.model or "" for job in jobs],
        "time_limit": ["" if job.time_limit_s is None else f"{job.time_limit_s:.12g}" for job in jobs],
        "job_name": [_name_cell(job.job_name) for job in jobs],
        "min_gpus": [str(job.min_gpus or "") for job in jobs],
        "max_gpus": [str(job.max_gpus or "") for job in jobs],
    }
    kept = {name: cells for name, cells in columns.items() if name in COLUMNS or any(cells)}
    out = io.StringIO()
    out.writelines(f"# {printable(comment)}\n" for comment in comments)
    plain = csv.writer(out, lineterminator="\n")
    quoted = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(kept)
    for row in zip(*kept.values(), strict=True):
        (quoted if "#" in "".join(row) else plain).writerow(row)
    return out.getvalue()


def _name_cell(name: str) -> str:
    """A name that this list's reader takes."""
    return csv_text_cell(shortened(name))


def _date(time_s: float) -> str:
    moment = datetime.fromtimestamp(time_s, UTC)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")[:-6] + "Z"
