"""Read Slurm's accounting: jobs that have run, from ``sacct --parsable2`` or ``sacct --json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from math import inf
from typing import NamedTuple, TypeVar

from wattsched.adapters.slurm.documents import (
    UNKNOWN,
    AccountedRow,
    AccountedRows,
    TresRow,
    document_in,
    names_in,
)
from wattsched.instances.errors import MOST_FAULTS, InputError
from wattsched.instances.gpu_parts import AS_ONE_TYPE, as_one_type
from wattsched.reading.clocks import LOCAL, ZONED, clock_s, fitting, moment_s, moments_s
from wattsched.reading.inputs import Cells, Row, echo, listed

FIELDS = (
    *("JobID", "User", "Account", "State", "Submit", "Eligible", "Start", "End", "Elapsed", "Suspended"),
    *("Timelimit", "AllocTRES", "ReqTRES", "ConsumedEnergyRaw", "NodeList", "Cluster", "JobName"),
)
"""Fields that we ask for, names of jobs last, as these may hold the separator."""
NEEDED = ("JobID", "State", "Submit", "Start")
ONE_OF = (("Elapsed", "ElapsedRaw", "End"), ("AllocTRES", "ReqTRES"))

JSON = "sacct --json"

ValueT = TypeVar("ValueT")

TIMES = ("Submit", "Eligible", "Start", "End")
"""Columns of times, in the order in which they happen."""
FREE_TEXTS = ("JobName", "Comment", "AdminComment", "SystemComment", "Extra", "SubmitLine", "WorkDir")
"""Columns whose text may hold the separator."""
_UNKNOWN = {"Unknown", "None", "N/A", "Invalid", "INVALID", "Partition_Limit", "UNLIMITED", "4.29G"}
_UNKNOWN |= {str(number) for number in UNKNOWN}
_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_COUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTPE]?)")
_GPU_COUNT = re.compile(r"(?:^|,)(gres/gpu(?::([^=,]*))?=([^,]*))")
_OTHER_GRES = re.compile(r"(?:^|,)(gres/(?!gpu[:=])[^:=,]*)")
_ENERGY = re.compile(r"(?:^|,)energy=([^,]+)")
_TASKS = re.compile(r"(?<=[\[,])(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?(?=[\],%])")


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
        For how long it ran, until now where it still does; not for how long it was suspended.
    gpus : int, optional
        None where Slurm does not know how many.
    gpu_types : frozenset of str
        Of its GPUs, as far as Slurm tells.
    energy_j : float, optional
        Of its nodes or GPUs, whatever the site's sensors measure.
    steps : dict of str to Step
        Those that have energy, where the job has none of its own.
    partly_measured : bool
        True if only steps have energy, and not of all its nodes and time.
    requested, converted : bool
        True if its GPUs are those that it asked for; if they stand for slices of several types.
    restarts : int, optional
        How often it was requeued or restarted before.
    time_limit_s : float, optional
        None where it had no limit of its own.
    other_gres : tuple of str
        Generic resources that are no GPUs, such as ``gres/shard``.
    local, ambiguous : bool
        True if a time has no zone; and if it may be either of two in the hour that comes twice in autumn.
    eligible_told : bool
        False if it started, and the records do not say when it was eligible.
    """

    id: str
    user: str
    account: str
    state: str
    eligible_s: float
    start_s: float | None
    elapsed_s: float
    gpus: int | None
    gpu_types: frozenset[str]
    energy_j: float | None
    nodes: tuple[str, ...]
    time_limit_s: float | None = None
    other_gres: tuple[str, ...] = ()
    end_s: float | None = None
    suspended_s: float | None = None
    cluster: str = ""
    steps: Mapping[str, Step] = field(default_factory=dict, compare=False)
    partly_measured: bool = field(default=False, compare=False)
    requested: bool = field(default=False, compare=False)
    converted: bool = field(default=False, compare=False)
    restarts: int | None = field(default=None, compare=False)
    local: bool = field(default=False, compare=False)
    ambiguous: bool = field(default=False, compare=False)
    eligible_told: bool = field(default=True, compare=False)

    @property
    def held_s(self) -> float:
        """Seconds that it held its GPUs: from start to end, as a suspended job keeps them."""
        told_s = self.elapsed_s + (0.0 if self.end_s else self.suspended_s or 0.0)
        return max(told_s, (self.end_s or 0.0) - (self.start_s or inf))

    @property
    def last_s(self) -> float:
        """When it ended, or until when it is known to have run; 0 where it never started."""
        return 0.0 if self.start_s is None else self.start_s + self.held_s

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """Treatments of its times and GPUs by the import, and why, unless they fit to a second."""
        lasted_s = self.end_s - (self.start_s or 0.0) if self.end_s else self.held_s
        rest_s = lasted_s - self.elapsed_s - (self.suspended_s or 0.0)
        misfit = not -1 <= rest_s <= (inf if self.suspended_s is None else 1)
        remarks = {
            ("doubtful", "Start is before Submit or Eligible"): self.eligible_s > (self.start_s or inf) + 1,
            ("doubtful", "Elapsed is not the time from Start to End; is --time-zone right?"): misfit,
            ("assumed", "suspended for a time: GPUs are held until the end"): self.held_s > self.elapsed_s,
            ("assumed", "Eligible is not told: waits count from Submit"): not self.eligible_told,
            ("assumed", "GPUs are those requested, as allocated ones are not told"): self.requested,
            ("converted", AS_ONE_TYPE): self.converted,
        }
        return [remark for remark, holds in remarks.items() if holds]

    @property
    def tasks(self) -> int:
        """Jobs that its record stands for: one, or the tasks of an array that wait, as in ``7_[4-9%2]``."""
        parts = _TASKS.findall(self.id)
        return sum(len(range(int(a), int(b or a) + 1, int(step or 1))) for a, b, step in parts) or 1


def read_accounting(text: str, zone: tzinfo | None = None) -> list[Accounted]:
    """Parse the output of ``sacct``; `zone` applies to times without one, by default this machine's."""
    if text.lstrip().startswith("{"):
        rows = document_in(AccountedRows, JSON, text).jobs
        return [_of_document(row, f"jobs[{n}]") for n, row in enumerate(rows)]
    return _of_table(text, zone)


def _of_document(row: AccountedRow, place: str) -> Accounted:
    """Job of a row of ``sacct --json``; `place` names the row in messages."""
    allocated, requested = _tres_text(row.allocated), _tres_text(row.requested)
    part, tres = ("allocated", allocated) if row.allocated else ("requested", requested)
    try:
        gpus, kinds, converted = _count_gpus(tres)
    except ValueError as error:
        raise InputError([f"{place}.tres.{part}: {error}"], JSON) from None
    id = str(row.job_id)
    if row.array_job and row.array_task is not None:
        id = f"{row.array_job}_{row.array_task}"
    elif row.array_job and row.array_tasks:
        id = f"{row.array_job}_[{row.array_tasks}]"
    elif row.het_job and row.het_offset is not None:
        id = f"{row.het_job}+{row.het_offset}"
    job = Accounted(
        id=id,
        cluster=row.cluster,
        user=row.user,
        account=row.account,
        # The last state is the newest: PENDING, RESIZING is a record that a change of size ended.
        state=next(reversed(row.state), ""),
        eligible_s=max(row.eligible or 0.0, row.submission or 0.0),
        start_s=row.start or None,
        elapsed_s=row.elapsed or 0.0,
        gpus=gpus,
        gpu_types=kinds,
        energy_j=None,
        nodes=tuple(row.nodes),
        time_limit_s=60 * row.limit_min if row.limit_min else None,
        other_gres=tuple(dict.fromkeys(_OTHER_GRES.findall(tres))),
        end_s=row.end or None,
        suspended_s=row.suspended,
        requested=not row.allocated,
        converted=converted,
        restarts=row.restart_cnt,
    )
    steps = (Step(s.energy_j or 0.0, frozenset(s.nodes), s.start or 0.0, s.elapsed or 0.0) for s in row.steps)
    names = (str(one.id or n) for n, one in enumerate(row.steps))
    return _measured(job, _energy_in(allocated), dict(zip(names, steps, strict=True)))


def _tres_text(entries: Iterable[TresRow]) -> str:
    """Format TRES as tables have them: ``gres/gpu:a100=4,energy=17``."""
    named = ((f"{one.type}/{one.name}" if one.name else one.type, one.count) for one in entries)
    return ",".join(f"{name}={min(UNKNOWN) if count is None else count:.16g}" for name, count in named)


def _count_gpus(tres: str) -> tuple[int | None, frozenset[str], bool]:
    """Return the GPUs in a TRES text, by an entry without type or all, their types, and if as of one type."""
    if tres.endswith("+"):
        raise ValueError(f"{echo(tres)} is cut off; sacct --parsable2 prints all of it")
    counts, unknown = dict[str, int](), not tres
    for entry, kind, number in _GPU_COUNT.findall(tres):
        known = int(number) if re.fullmatch("[0-9]{1,20}", number) else -1
        if not 0 <= known < 1e6 and known not in UNKNOWN:
            raise ValueError(f"{echo(entry)} has no whole number of GPUs")
        unknown |= known in UNKNOWN
        counts |= {} if known in UNKNOWN else {kind: known}
    typed = {kind: count for kind, count in counts.items() if kind and count}
    total = counts.get("", None if unknown and not typed else sum(typed.values()))
    if total != sum(typed.values()) or (of_one := as_one_type(typed)) == typed:
        return total, frozenset(typed), False
    return sum(of_one.values()), frozenset(of_one), True


def _energy_in(tres: str) -> float | None:
    match = _ENERGY.search(tres)
    return None if match is None or not _COUNT.fullmatch(match[1]) else amount(match[1])


class Step(NamedTuple):
    """A step's joules, nodes, start in seconds since 1970, and seconds; those that are untold empty or 0."""

    energy_j: float
    nodes: frozenset[str] = frozenset()
    start_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def node_s(self) -> float:
        """Seconds of all its nodes."""
        return len(self.nodes) * self.elapsed_s

    def with_part(self, other: Step) -> Step:
        """Join two parts of a step, each with the energy of the whole."""
        start_s = min(self.start_s, other.start_s)
        end_s = max(one.start_s + one.elapsed_s for one in (self, other))
        return Step(max(self.energy_j, other.energy_j), self.nodes | other.nodes, start_s, end_s - start_s)

    def of(self, job: Accounted) -> Step:
        """Return the step with its job's nodes, start and seconds where it does not tell its own."""
        nodes = self.nodes or frozenset(job.nodes or [""])
        start_s = self.start_s or job.start_s or 0.0
        return Step(self.energy_j, nodes, start_s, self.elapsed_s or job.held_s or 1.0)

    def overlaps(self, other: Step) -> bool:
        """True if both are on a node at the same time."""
        before, after = sorted([self, other], key=lambda step: step.start_s)
        return after.start_s < before.start_s + before.elapsed_s and bool(self.nodes & other.nodes)


COVERED = (0.9, 1.1)
"""Parts of a job's nodes and time that its steps' energy may be of, to stand for the job's."""


def _measured(job: Accounted, own_j: float | None, steps: Mapping[str, Step]) -> Accounted:
    """Return a job with its own joules, or those of steps that do not overlap and cover its nodes and time.

    A step's sensors count all that is drawn on its nodes; of steps that overlap, as the batch script and what
    it starts do, the one of most nodes and seconds counts.
    """
    if own_j and own_j > 0:
        return replace(job, energy_j=own_j)
    kept = list[Step]()
    told = {name: step.of(job) for name, step in steps.items() if step.energy_j > 0}
    for step in sorted(told.values(), key=lambda step: (step.node_s, step.energy_j), reverse=True):
        if not any(step.overlaps(other) for other in kept):
            kept.append(step)
    node_s, energy_j = sum(step.node_s for step in kept), sum(step.energy_j for step in kept)
    whole_s = max(1, len(job.nodes)) * (job.held_s or 1.0)  # Slurm tells whole seconds
    least, most = COVERED
    covered = least * whole_s <= node_s <= most * whole_s
    whole_j = energy_j * whole_s / node_s if covered else None
    return replace(job, energy_j=whole_j, steps=told, partly_measured=bool(kept) and not covered)


def as_one_run(first: Accounted, one: Accounted) -> Accounted:
    """Join two parts of a run that touch or overlap, the later one second: Slurm's energy is of the whole."""
    common_s = max(0.0, min(first.last_s, one.last_s) - (one.start_s or 0.0))
    last = max(first, one, key=lambda part: part.last_s)
    energies_j = [part.energy_j for part in (first, one) if part.energy_j]
    known = last.energy_j or first.state == one.state  # of one that still ran it is not of the whole
    joined = replace(
        last,
        start_s=first.start_s,
        end_s=last.last_s,
        elapsed_s=max(first.elapsed_s, one.elapsed_s, first.elapsed_s + one.elapsed_s - common_s),
        suspended_s=None,
        energy_j=max(energies_j, default=None) if known else None,
    )
    if not (first.steps and one.steps):
        return joined
    parts = {name: step.with_part(first.steps.get(name, step)) for name, step in one.steps.items()}
    return _measured(joined, None, {**first.steps, **parts})


def amount(text: str) -> float | None:
    """Parse a number as Slurm prints it: ``1.5K`` is 1,500; None where it stands for an unknown one."""
    found = _COUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{echo(text)} is not a number such as 17 or 1.5K")
    number = float(found[1]) * _SUFFIXES[found[2]]
    return None if number in UNKNOWN else number


def _of_table(text: str, zone: tzinfo | None) -> list[Accounted]:
    """Jobs of a table, with their energy or that of their steps, which follow them."""
    faults: list[str] = []
    found: list[tuple[Accounted, float | None, dict[str, Step]]] = []
    steps, joules = dict[str, dict[str, Step]](), _in_cell(amount)
    for row in _rows(text, faults):
        read = Cells(row, faults)
        id, _, step = read("JobID", Row.text, "").partition(".")
        own_j = read.optional("ConsumedEnergyRaw", joules) or read.optional("ConsumedEnergy", joules)
        if not step:
            steps[id] = {}
            own_j = own_j or _energy_in(row.cells.get("AllocTRES", ""))
            found.append((_of_row(read, id, zone), own_j, steps[id]))
        elif id in steps and own_j:
            steps[id][step] = _step_of(read, own_j, zone)
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults, "sacct")
    return [_measured(job, own_j, its_steps) for job, own_j, its_steps in found]


def _step_of(read: Cells, own_j: float, zone: tzinfo | None) -> Step:
    """Read a row of a step; its start is the first of the moments that it may be."""
    starts_s, _ = read.optional("Start", partial(_readings, zone)) or ([0.0], "")
    elapsed_s = read.optional("ElapsedRaw", Row.number) or read.optional("Elapsed", _elapsed_s) or 0.0
    return Step(own_j, frozenset(read.optional("NodeList", _in_cell(names_in)) or ()), starts_s[0], elapsed_s)


def _rows(text: str, faults: list[str]) -> Iterator[Row]:
    """Rows of a table with separators between or behind its cells; `faults` takes those of lines."""
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    header = list[str]()
    for number, line in lines or [(1, "")]:
        cells = line.split("|")
        if not header or {*NEEDED} <= {*cells}:  # again, where files were joined
            behind = not cells[-1]
            header = [name.strip() for name in (cells[:-1] if behind else cells)]
            missing = [name for name in NEEDED if name not in header]
            missing += [" or ".join(names) for names in ONE_OF if not set(names) & set(header)]
            if missing:
                lacking, there = (listed(names, quote="", most=24) for names in (missing, header))
                message = f"the columns {lacking} are missing, found {there}; read are {', '.join(FIELDS)}"
                raise InputError([f"sacct: {message}"])
            free = [place for place, name in enumerate(header) if name in FREE_TEXTS]
            continue
        cells = cells[:-1] if behind else cells
        more = len(cells) - len(header)
        if more > 0 and len(free) == 1:
            cells[free[0] : free[0] + more + 1] = ["|".join(cells[free[0] : free[0] + more + 1])]
        if len(cells) != len(header):
            faults.append(f"line {number}: {len(cells):,} cells, the header has {len(header):,} columns")
            continue
        told = ["" if cell.strip() in _UNKNOWN else cell for cell in cells]
        yield Row(dict(zip(header, told, strict=True)), f"line {number}")


def _of_row(read: Cells, id: str, zone: tzinfo | None) -> Accounted:
    """Job of a row of a table, without its energy."""
    cells = read.row.cells
    elapsed_s = read.optional("ElapsedRaw", Row.number)
    if elapsed_s is None:
        elapsed_s = read.optional("Elapsed", _elapsed_s)
    suspended_s = read.optional("Suspended", _elapsed_s)
    told = {name: found for name in TIMES if (found := read.optional(name, partial(_readings, zone)))}
    held_s = None if elapsed_s is None else elapsed_s + (suspended_s or 0.0)
    lasted_s = held_s if {"Start", "End"} <= told.keys() else None
    # A time in the hour that comes twice in autumn has two readings; those are taken that fit the others.
    fit, ambiguous = fitting([readings for readings, _ in told.values()], lasted_s)
    time_s = dict(zip(told, fit, strict=True))
    start_s, end_s = time_s.get("Start"), time_s.get("End")
    if elapsed_s is None:
        elapsed_s = max(0.0, (end_s or 0.0) - (start_s or inf) - (suspended_s or 0.0))
    limit_min = read.optional("TimelimitRaw", Row.number)
    limit_s = 60 * limit_min if limit_min else read.optional("Timelimit", _elapsed_s)
    column = "AllocTRES" if cells.get("AllocTRES", "").strip() else "ReqTRES"
    gpus, kinds, converted = read.optional(column, _in_cell(_count_gpus)) or (None, frozenset(), False)
    state = read("State", Row.text, "").partition(" ")[0].rstrip("+").upper()
    return Accounted(
        id=id,
        cluster=cells.get("Cluster", "").strip(),
        user=cells.get("User", "").strip(),
        account=cells.get("Account", "").strip(),
        state=state,
        eligible_s=max(time_s.get("Eligible", 0.0), time_s.get("Submit", 0.0)) or start_s or 0.0,
        start_s=start_s,
        elapsed_s=elapsed_s,
        gpus=gpus,
        gpu_types=kinds,
        energy_j=None,
        nodes=tuple(read.optional("NodeList", _in_cell(names_in)) or ()),
        time_limit_s=limit_s or None,
        other_gres=tuple(dict.fromkeys(_OTHER_GRES.findall(cells.get(column, "")))),
        end_s=end_s,
        suspended_s=suspended_s,
        local=any(form == LOCAL for _, form in told.values()),
        ambiguous=ambiguous,
        requested=column == "ReqTRES",
        converted=converted,
        restarts=read.optional("Restarts", Row.count),
        eligible_told="Eligible" in told or not start_s,
    )


def _readings(zone: tzinfo | None, row: Row, column: str) -> tuple[list[float], str]:
    """What a time may be, in seconds since 1970, and its form: standard, ``%s``, or with a zone."""
    text = row.text(column)
    try:
        found_s, form = moment_s(text)
        if form == LOCAL:
            return moments_s(found_s, zone), form
    except (ValueError, OverflowError, OSError) as error:
        expected = "a time in --time-zone like 2026-11-03T08:30:00, as SLURM_TIME_FORMAT=standard prints it"
        raise row.fault(column, f"{echo(text)}: {error}; expected {expected}") from None
    return [found_s if form == ZONED else row.number(column)], form


def _elapsed_s(row: Row, column: str) -> float:
    """Seconds in a cell such as ``1-02:30:00``."""
    text = row.text(column)
    if (found := clock_s(text)) is None:
        raise row.fault(column, f"{echo(text)} is not [D-]HH:MM:SS")
    return found


def _in_cell(read: Callable[[str], ValueT]) -> Callable[[Row, str], ValueT]:
    """Make a reader of cells of one of texts; its faults name line and column."""

    def read_cell(row: Row, column: str) -> ValueT:
        try:
            return read(row.cells[column].strip())
        except ValueError as error:
            raise row.fault(column, str(error)) from None

    return read_cell
