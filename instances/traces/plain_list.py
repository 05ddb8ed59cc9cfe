"""A plain list of recorded jobs as a CSV file: what a user can write by hand, and what imports write.

Columns, in any order; others are not looked at:

============  ========================================================================================
``job``       name, unique
``arrival``   seconds from any moment on, or dates in all rows: ``2026-11-03 08:30``, ``...T08:30:00Z``
``duration``  seconds, or ``HH:MM:SS``, or ``D-HH:MM:SS``
``gpus``      whole GPUs that it held, at most as many as a cluster may have
``gpu_type``  optional: on which GPUs of the cluster it ran; empty for the cluster's most frequent type
``watts``     optional: mean draw of its GPUs together, as measured
``user``      optional
``account``   optional
``model``     optional: what it trained, a model of the catalogue; empty where nobody knows
============  ========================================================================================
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from wattsched.inputs import Cells, Row, echo, listed, number_in, rows_of
from wattsched.instances.errors import MOST_FAULTS, InputError, NoticeWarning
from wattsched.instances.io import csv_text_cell
from wattsched.instances.traces.recorded import TraceJob
from wattsched.perfmodels.profiles import CATALOGUE, Profiles
from wattsched.topology.cluster import MOST_GPUS
from wattsched.topology.fields import shortened

LONGEST_S = 100 * 366 * 86_400.0
"""Upper limit on a job's duration: 100 years; rates times much more exceed the range of a round."""

COLUMNS = ("job", "arrival", "duration", "gpus")
OPTIONAL = ("gpu_type", "watts", "user", "account", "model")

SECONDS, LOCAL, ZONED = "seconds", "a date", "a date with a time zone"
_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,9})?)")


def read_plain(path: str | Path, known: Profiles = CATALOGUE) -> list[TraceJob]:
    """Jobs of a list; times in seconds on its clock, of dates from the first one.

    What is filled in where a job names no model, and what is not used, is said in warnings.

    Parameters
    ----------
    known : Profiles
        Models that a job may name.

    Raises
    ------
    ValueError
        For a file that is no such table, with the columns that are missing and all that there are.
    InputError
        With line, column and value of every malformed cell.
    OSError
        When the file cannot be read.
    """
    faults: list[str] = []
    jobs: dict[str, TraceJob] = {}
    begun: tuple[str, str] | None = None
    columns: Iterable[str] = ()
    for row in rows_of(path, COLUMNS, OPTIONAL):
        read, columns = Cells(row, faults), row.cells
        job, form = _job(read, known)
        if job.name and job.name in jobs:
            read.fault("job", f"the job {echo(job.name)} occurs twice")
        if form and begun is None:
            begun = form, row.place.rpartition(", ")[2]
        if form and begun is not None and form != begun[0]:
            read.fault("arrival", f"{echo(row.text('arrival'))} is {form}, in {begun[1]} there is {begun[0]}")
        jobs[job.name] = job
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults)
    found = list(jobs.values())
    _notice(path, columns, found)
    if begun is None or begun[0] == SECONDS:
        return found
    first_s = min(job.submitted_s for job in found)
    return [replace(job, submitted_s=job.submitted_s - first_s) for job in found]


def _job(read: Cells, known: Profiles) -> tuple[TraceJob, str]:
    """Job of a row, and how its arrival is written; empty where that cannot be read."""
    arrival_s, form = read("arrival", _arrival, (0.0, ""))
    job = TraceJob(
        name=read("job", Row.text, ""),
        submitted_s=arrival_s,
        duration_s=read("duration", _duration_s, 0.0),
        gpus=read("gpus", partial(Row.count, most=MOST_GPUS), 0),
        gpu_type=read.optional("gpu_type", Row.text),
        power_w=read.optional("watts", Row.number),
        user=read.optional("user", Row.text) or "",
        account=read.optional("account", Row.text) or "",
        model=read.optional("model", partial(_model, known)),
    )
    return job, form


def moment_s(text: str) -> tuple[float, str]:
    """Seconds of a moment, and how it is written: as seconds, or as a date with or without a zone.

    Of a date, those since 1970, by its zone or, without one, by its own clock.

    Raises
    ------
    ValueError
        If it is neither.
    """
    try:
        return number_in(text), SECONDS
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text) if text.isascii() else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{echo(text)} is neither a number of seconds nor a date like 2026-11-03 08:30:00")
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC).timestamp(), LOCAL
    return found.timestamp(), ZONED


def _arrival(row: Row, column: str) -> tuple[float, str]:
    text = row.text(column)
    try:
        found, form = moment_s(text)
    except ValueError as error:
        raise row.fault(column, str(error)) from None
    return (row.number(column), form) if form == SECONDS else (found, form)


def clock_s(text: str) -> float | None:
    """Seconds of ``[D-]HH:MM:SS``; None for another text."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups(default="0")
    return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


def _duration_s(row: Row, column: str) -> float:
    text = row.text(column)
    found = clock_s(text) if ":" in text else row.number(column)
    if found is None:
        raise row.fault(column, f"{echo(text)} is neither a number of seconds nor HH:MM:SS nor D-HH:MM:SS")
    if found > LONGEST_S:
        raise row.fault(column, f"{echo(text)} is longer than a century")
    return found


def _model(known: Profiles, row: Row, column: str) -> str:
    if (name := row.text(column)) not in known.models:
        told = f"{echo(name)} is not in the catalogue, which has {', '.join(known.models)}; or leave it empty"
        raise row.fault(column, told)
    return name


def _notice(path: str | Path, columns: Iterable[str], jobs: Sequence[TraceJob]) -> None:
    """Say what of a list is filled in, and what is not used."""
    told = []
    if strange := [name for name in columns if name not in (*COLUMNS, *OPTIONAL)]:
        told.append(f"not read: the columns {listed(strange)}; read are {', '.join((*COLUMNS, *OPTIONAL))}")
    using = [job for job in jobs if job.gpus and job.duration_s]
    if len(using) < len(jobs):
        told.append(f"left out: {len(jobs) - len(using):,} without GPUs or duration")
    if drawn := sum(job.model is None for job in using):
        of = f"{drawn:,} of {len(using):,} jobs name no model"
        told.append(f"assumed: {of}; which of the catalogue each trains is drawn by the seed")
    if measured := sum(job.power_w is not None for job in using):
        told.append(f"not used: watts, told of {measured:,} of {len(using):,} jobs; draws are the models'")
    for line in told:
        warnings.warn(f"{path}: {line}", NoticeWarning, stacklevel=3)


def csv_of(jobs: Iterable[TraceJob]) -> str:
    """Write jobs as such a list, those columns that tell something, and times since 1970 as dates in UTC.

    Names that are longer than the reader takes are `shortened`.
    """
    jobs = sorted(jobs, key=lambda job: (job.submitted_s, job.name))
    columns = {
        "job": [_name_cell(job.name) for job in jobs],
        "arrival": [_date(job.submitted_s) for job in jobs],
        "duration": [f"{job.duration_s:.12g}" for job in jobs],
        "gpus": [str(job.gpus) for job in jobs],
        "gpu_type": [_name_cell(job.gpu_type or "") for job in jobs],
        "watts": ["" if job.power_w is None else f"{job.power_w:.6g}" for job in jobs],
        "user": [_name_cell(job.user) for job in jobs],
        "account": [_name_cell(job.account) for job in jobs],
        "model": [job.model or "" for job in jobs],
    }
    kept = {name: cells for name, cells in columns.items() if name in COLUMNS or any(cells)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(kept)
    writer.writerows(zip(*kept.values(), strict=True))
    return out.getvalue()


def _name_cell(name: str) -> str:
    """A name that this list's reader takes."""
    return shortened(csv_text_cell(name))


def _date(time_s: float) -> str:
    moment = datetime.fromtimestamp(time_s, UTC)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")[:-6] + "Z"
