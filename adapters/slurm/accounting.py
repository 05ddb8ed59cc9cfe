"""Read Slurm's accounting: jobs that have run, from ``sacct --parsable2`` or ``sacct --json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import TypeVar

from wattsched.adapters.slurm.documents import AccountedRow, AccountedRows, TresRow, document_in, names_in
from wattsched.adapters.slurm.inventory import gpus_in
from wattsched.instances.errors import MOST_FAULTS, InputError
from wattsched.instances.traces.job_lists import LOCAL, ZONED, clock_s, moment_s
from wattsched.reading.inputs import Cells, Row, echo, listed

FIELDS = (
    *("JobID", "User", "Account", "Partition", "State", "Submit", "Eligible", "Start", "End", "Elapsed"),
    *("AllocTRES", "ReqTRES", "ConsumedEnergyRaw", "NodeList", "JobName"),
)
"""Fields that we ask for, names of jobs last, as these may hold the separator."""
NEEDED = ("JobID", "State", "Submit", "Start")
ONE_OF = (("Elapsed", "ElapsedRaw", "End"), ("AllocTRES", "ReqTRES"))

JSON = "sacct --json"

ValueT = TypeVar("ValueT")

_NEVER = frozenset(["", "Unknown", "None", "N/A", "Invalid"])
_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_COUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTP]?)")
_GPU_COUNT = re.compile(r"(?:^|,)(gres/gpu(?::[^=,]*)?=([^,]*))")
_ENERGY = re.compile(r"(?:^|,)energy=([^,]+)")
MOST_J = 1e15
"""Larger values mean that Slurm does not know the energy."""


@dataclass(frozen=True)
class Accounted:
    """A job that Slurm has accounted for, or an array's task; its steps are counted in.

    Attributes
    ----------
    state : str
        How it ended, or that it has not, such as ``COMPLETED``.
    eligible_s : float
        From when on Slurm could have started it, in seconds since 1970.
    start_s : float, optional
        None where it never started.
    elapsed_s : float
        For how long it ran, until now where it still does.
    gpu_types : frozenset of str
        Of its GPUs, as far as Slurm tells.
    energy_j : float, optional
        Of its nodes or GPUs, whatever the site's sensors measure.
    """

    id: str
    user: str
    account: str
    state: str
    eligible_s: float
    start_s: float | None
    elapsed_s: float
    gpus: int
    gpu_types: frozenset[str]
    energy_j: float | None
    nodes: tuple[str, ...]


def read_accounting(text: str, zone: tzinfo | None = None) -> list[Accounted]:
    """Parse the output of ``sacct``; `zone` applies to times without one, by default this machine's."""
    if text.lstrip().startswith("{"):
        rows = document_in(AccountedRows, JSON, text).jobs
        return [_of_document(row, f"jobs[{n}]") for n, row in enumerate(rows)]
    return _of_table(text, zone)


def _of_document(row: AccountedRow, place: str) -> Accounted:
    allocated, requested = _tres_text(row.tres.allocated), _tres_text(row.tres.requested)
    part = "allocated" if row.tres.allocated else "requested"
    try:
        gpus, kinds = _count_gpus(allocated if row.tres.allocated else requested)
    except ValueError as error:
        raise InputError([f"{place}.tres.{part}: {error}"], JSON) from None
    id = str(row.job_id)
    if row.array_job and row.array_task is not None:
        id = f"{row.array_job}_{row.array_task}"
    elif row.het_job and row.het_offset is not None:
        id = f"{row.het_job}+{row.het_offset}"
    return Accounted(
        id=id,
        user=row.user,
        account=row.account,
        # The last state is the newest: PENDING, RESIZING is a record that a change of size ended.
        state=next(reversed(row.state.current), ""),
        eligible_s=max(row.time.eligible or 0.0, row.time.submission or 0.0),
        start_s=row.time.start or None,
        elapsed_s=row.time.elapsed or 0.0,
        gpus=gpus,
        gpu_types=kinds,
        energy_j=_known_j(_energy_in(allocated), [step.energy_j for step in row.steps]),
        nodes=tuple(row.nodes),
    )


def _tres_text(entries: Iterable[TresRow]) -> str:
    """Format TRES as tables have them: ``gres/gpu:a100=4,energy=17``."""
    named = ((f"{one.type}/{one.name}" if one.name else one.type, one.count) for one in entries)
    return ",".join(f"{name}={count:.16g}" for name, count in named if count is not None)


def _count_gpus(tres: str) -> tuple[int, frozenset[str]]:
    """Return the number of GPUs in a TRES text, and their types; an entry without a type is the total."""
    for entry, number in _GPU_COUNT.findall(tres):
        if not re.fullmatch("[0-9]{1,6}", number):
            raise ValueError(f"{echo(entry)} has no whole number of GPUs")
    entries = gpus_in(tres)
    total = [count for kind, count, _ in entries if not kind]
    typed = {kind: count for kind, count, _ in entries if kind and count}
    return (total[0] if total else sum(typed.values())), frozenset(typed)


def _energy_in(tres: str) -> float | None:
    match = _ENERGY.search(tres)
    return None if match is None or not _COUNT.fullmatch(match[1]) else amount(match[1])


def _known_j(own: float | None, steps: Iterable[float | None]) -> float | None:
    """Return a job's joules: its own, or those of the largest step, as steps overlap on the same nodes."""
    known = [one for one in (own, max((s for s in steps if s), default=None)) if one and 0 < one < MOST_J]
    return known[0] if known else None


def _hosts(text: str) -> list[str]:
    return [] if text in _NEVER else names_in(text)


def amount(text: str) -> float:
    """Parse a number as Slurm prints it: ``1.5K`` is 1,500."""
    found = _COUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{echo(text)} is not a number such as 17 or 1.5K")
    return float(found[1]) * _SUFFIXES[found[2]]


def _of_table(text: str, zone: tzinfo | None) -> list[Accounted]:
    faults: list[str] = []
    found: list[tuple[Accounted, float | None, list[float | None]]] = []
    last: dict[str, int] = {}
    for row in _rows(text, faults):
        read = Cells(row, faults)
        id, _, step = read("JobID", Row.text, "").partition(".")
        own_j = read.optional("ConsumedEnergyRaw", _in_cell(amount)) or read.optional(
            "ConsumedEnergy", _in_cell(amount)
        )
        if not step:
            last[id] = len(found)
            own_j = own_j or _energy_in(row.cells.get("AllocTRES", ""))
            found.append((_of_row(read, id, zone), own_j, []))
        elif id in last:
            found[last[id]][2].append(own_j)
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults, "sacct")
    return [replace(job, energy_j=_known_j(own_j, steps)) for job, own_j, steps in found]


def _rows(text: str, faults: list[str]) -> Iterator[Row]:
    """Rows of a table with separators between or behind its cells."""
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    header = lines[0][1].split("|") if lines else []
    behind = bool(header) and not header[-1]
    header = [name.strip() for name in (header[:-1] if behind else header)]
    missing = [name for name in NEEDED if name not in header]
    missing += [" or ".join(names) for names in ONE_OF if not set(names) & set(header)]
    if missing:
        message = f"the columns {listed(missing, '', 24)} are missing, found {listed(header, '', 24)}"
        raise InputError([f"sacct: {message}; read are {', '.join(FIELDS)}"])
    free = header.index("JobName") if "JobName" in header else -1
    for number, line in lines[1:]:
        cells = line.split("|")[:-1] if behind else line.split("|")
        more = len(cells) - len(header)
        if more > 0 and free >= 0:
            # Names of jobs may hold the separator.
            cells[free : free + more + 1] = ["|".join(cells[free : free + more + 1])]
        if len(cells) != len(header):
            faults.append(f"line {number}: {len(cells):,} cells, the header has {len(header):,} columns")
            continue
        yield Row(dict(zip(header, cells, strict=True)), f"line {number}")


def _of_row(read: Cells, id: str, zone: tzinfo | None) -> Accounted:
    cells = read.row.cells

    def time_s(row: Row, column: str) -> float | None:
        return None if row.cells[column].strip() in _NEVER else _epoch_s(row, column, zone)

    submit_s, start_s = read("Submit", time_s, None), read("Start", time_s, None)
    eligible_s, end_s = read.optional("Eligible", time_s), read.optional("End", time_s)
    elapsed_s = read.optional("ElapsedRaw", Row.number)
    if elapsed_s is None:
        elapsed_s = read.optional("Elapsed", _elapsed_s)
    if elapsed_s is None:
        elapsed_s = 0.0 if start_s is None or end_s is None else max(0.0, end_s - start_s)
    column = "AllocTRES" if cells.get("AllocTRES", "").strip() else "ReqTRES"
    gpus, kinds = read.optional(column, _in_cell(_count_gpus)) or (0, frozenset())
    state = read("State", Row.text, "").partition(" ")[0].rstrip("+").upper()
    return Accounted(
        id=id,
        user=cells.get("User", "").strip(),
        account=cells.get("Account", "").strip(),
        state=state,
        eligible_s=max(eligible_s or 0.0, submit_s or 0.0) or start_s or 0.0,
        start_s=start_s,
        elapsed_s=elapsed_s,
        gpus=gpus,
        gpu_types=kinds,
        energy_j=None,
        nodes=tuple(read.optional("NodeList", _in_cell(_hosts)) or ()),
    )


def _epoch_s(row: Row, column: str, zone: tzinfo | None) -> float:
    """Seconds since 1970 of a time as ``SLURM_TIME_FORMAT`` has it: standard, ``%s``, or with a zone."""
    text = row.text(column)
    try:
        found, form = moment_s(text)
        if form == LOCAL:
            return datetime.fromtimestamp(found, UTC).replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError, OSError):
        message = f"{echo(text)} is no time like 2026-11-03T08:30:00; SLURM_TIME_FORMAT=standard prints these"
        raise row.fault(column, message) from None
    return found if form == ZONED else row.number(column)


def _elapsed_s(row: Row, column: str) -> float:
    text = row.text(column)
    if (found := clock_s(text)) is None:
        raise row.fault(column, f"{echo(text)} is not [D-]HH:MM:SS")
    return found


def _in_cell(read: Callable[[str], ValueT]) -> Callable[[Row, str], ValueT]:
    """Read a cell, whose line and column are told with what is wrong with it."""

    def read_cell(row: Row, column: str) -> ValueT:
        try:
            return read(row.cells[column].strip())
        except ValueError as error:
            raise row.fault(column, str(error)) from None

    return read_cell
