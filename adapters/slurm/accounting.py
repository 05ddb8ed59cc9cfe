"""Read Slurm's accounting: jobs that have run, from ``sacct --parsable2`` or ``sacct --json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from math import inf
from typing import NamedTuple

from pydantic import AliasPath

from wattsched.adapters.parts import Part, listing
from wattsched.adapters.slurm.documents import UNKNOWN, AccountedRow, document_in, names_in
from wattsched.instances.errors import MOST_FAULTS, InputError
from wattsched.instances.gpu_parts import AS_ONE_TYPE, as_one_type, has_parts
from wattsched.reading.clocks import LOCAL, ZONED, clock_s, fitting, moment_s, moments_s
from wattsched.reading.inputs import Cells, Row, bounded, count_in, echo, listed, text_in

FIELDS = (
    *("JobID", "User", "Account", "State", "Submit", "Eligible", "Start", "End", "Elapsed", "Suspended"),
    *("Timelimit", "AllocTRES", "ReqTRES", "ConsumedEnergyRaw", "NodeList", "Cluster", "JobName"),
)
"""Fields that we ask for, names of jobs last, as these may hold the separator."""
NEEDED = ("JobID", "State", "Submit", "Start")
ONE_OF = (("Elapsed", "ElapsedRaw", "End"), ("AllocTRES", "ReqTRES"))

JSON = "sacct --json"

STILL_RUN = frozenset(["RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"])
WAITING = frozenset(["PENDING", "CONFIGURING"])
"""Records in other states have ended: RESIZING is of the time before a job's size was changed."""
BEYOND_LIMIT, BEYOND_LIMIT_S = 1.1, 600.0
"""Factor of its time limit, and seconds more, for which OverTimeLimit and KillWait let a job run."""
AS_CUT = "as sacct --truncate cuts runs: without energy"
RUNAWAY = "is it a runaway job? sacctmgr show runaway lists these"

TIMES = ("Submit", "Eligible", "Start", "End")
"""Columns of times, in the order in which they happen."""
FREE_TEXTS = ("JobName", "Comment", "AdminComment", "SystemComment", "Extra", "SubmitLine", "WorkDir")
"""Columns whose text may hold the separator."""
WHOLE = "sacct --parsable2 prints all of it"
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
        Of its GPUs, as far as Slurm tells; '' for those without a type beside others.
    energy_j : float, optional
        Of its nodes or GPUs, whatever the site's sensors measure.
    steps : dict of str to Step
        Those that have energy.
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
    start_cut, end_cut : bool
        True if it may have begun before its start, or gone on after its end, which ``sacct -T`` has cut.
    begun : int
        Of an array's tasks that its record calls waiting, those of which other records tell.
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
    start_cut: bool = field(default=False, compare=False)
    end_cut: bool = field(default=False, compare=False)
    begun: int = field(default=0, compare=False)

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
        beyond_limit = self.elapsed_s > BEYOND_LIMIT * (self.time_limit_s or inf) + BEYOND_LIMIT_S
        runs_on = self.state == "RUNNING" and not self.end_s
        remarks = {
            ("doubtful", "Start is before Submit or Eligible"): self.eligible_s > (self.start_s or inf) + 1,
            ("doubtful", "Elapsed is not the time from Start to End; is --time-zone right?"): misfit,
            ("doubtful", f"starts with others at the first second, {AS_CUT}; arrives then"): self.start_cut,
            ("doubtful", f"ends with others at the last second, or runs on, {AS_CUT}"): self.end_cut,
            ("doubtful", "ran longer than its time limit"): beyond_limit and not runs_on,
            ("doubtful", f"still runs after its time limit: {RUNAWAY}"): beyond_limit and runs_on,
            ("assumed", "suspended for a time: GPUs are held until the end"): self.held_s > self.elapsed_s,
            ("assumed", "Eligible is not told: waits count from Submit"): not self.eligible_told,
            ("assumed", "GPUs are those requested, as allocated ones are not told"): self.requested,
            ("assumed", "a time is in the hour that comes twice: the first is taken"): self.ambiguous,
            ("converted", AS_ONE_TYPE): self.converted,
        }
        return [remark for remark, holds in remarks.items() if holds]

    @property
    def tasks(self) -> int:
        """Jobs that its record stands for: one, or the tasks of an array that wait, as in ``7_[4-9%2]``."""
        return (sum(map(len, self._ranges)) or 1) - self.begun

    @property
    def _ranges(self) -> list[range]:
        parts = _TASKS.findall(self.id)
        return [range(int(first), int(last or first) + 1, int(step or 1)) for first, last, step in parts]

    def without(self, tasks: Iterable[int]) -> Accounted:
        """Return the record of an array's waiting tasks without those of these numbers."""
        return replace(self, begun=sum(any(task in some for some in self._ranges) for task in tasks))


class _DocumentRow(Row):
    """Cells of a part of a document, whose faults name its fields."""

    __slots__ = ("_fields",)

    def __init__(self, part: Part, name: str, place: str):
        super().__init__({column: cell for column, cell in part if isinstance(cell, str)}, place)
        self.cells["JobID"], self._fields = name, type(part).model_fields

    def fault(self, column: str, what: str) -> ValueError:
        """Error that says where it is."""
        path = getattr(self._fields.get(column), "validation_alias", AliasPath("job_id")).path
        return ValueError(f"{self.place}.{'.'.join(map(str, path))}: {what}")


def _document_rows(text: str) -> Iterator[Row]:
    """Rows of ``sacct --json``, those of a job's steps behind its own."""
    for n, job in enumerate(document_in(listing("jobs", AccountedRow), JSON, text).jobs):
        yield _DocumentRow(job, job.name, f"jobs[{n}]")
        for k, step in enumerate(job.steps):
            yield _DocumentRow(step, f"{job.name}.{step.id or k}", f"jobs[{n}].steps[{k}]")


def _count_gpus(tres: str) -> tuple[int | None, frozenset[str], bool]:
    """Return the GPUs in a TRES text, by an entry without type or all, their types, and if as of one type."""
    if tres.endswith("+"):
        raise ValueError(f"{echo(tres)} is cut off; {WHOLE}")
    counts, unknown = dict[str, int](), not tres
    for entry, kind, number in _GPU_COUNT.findall(tres):
        known = int(number) if re.fullmatch("[0-9]{1,20}", number) else -1
        if not 0 <= known < 1e6 and known not in UNKNOWN:
            raise ValueError(f"{echo(entry)} has no whole number of GPUs")
        unknown |= known in UNKNOWN
        counts |= {} if known in UNKNOWN else {kind: known}
    typed = {kind: count for kind, count in counts.items() if kind and count}
    total = counts.get("", None if unknown and not typed else sum(typed.values()))
    if total != (of_types := sum(typed.values())):
        some = has_parts(typed) or (total or 0) > of_types > 0
        return total, frozenset({*typed, ""} if some else typed), False
    if (of_one := as_one_type(typed)) == typed:
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
    """Return a job with the joules of steps that do not overlap and cover its nodes and time, or its own.

    A step's sensors count all that is drawn on its nodes; of steps that overlap, as the batch script and what
    it starts do, the one of most nodes and seconds counts. Slurm's own energy of a job is the sum over all
    steps unless it has an ``extern`` step; so it counts only where no step tells any.
    """
    told = {name: step.of(job) for name, step in steps.items() if step.energy_j > 0}
    if not told:
        return replace(job, energy_j=own_j if own_j and own_j > 0 else None)
    kept = list[Step]()
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
        start_cut=first.start_cut,
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


def read_accounting(text: str, zone: tzinfo | None = None) -> list[Accounted]:
    """Parse the output of ``sacct``; `zone` applies to times without one, by default this machine's.

    Jobs have their energy or that of their steps, which follow them.
    """
    faults: list[str] = []
    found: list[tuple[Accounted, float | None, dict[str, Step]]] = []
    steps = dict[str, dict[str, Step]]()
    is_document = text.lstrip().startswith("{")
    for row in _document_rows(text) if is_document else _rows(text, faults):
        read = Cells(row, faults)
        id, _, step = read("JobID", text_in, "").partition(".")
        own_j = read.optional("ConsumedEnergyRaw", amount) or read.optional("ConsumedEnergy", amount)
        if id and not step:
            steps[id] = {}
            own_j = own_j or _energy_in(row.cells.get("AllocTRES", ""))
            found.append((_of_row(read, id, zone), own_j, steps[id]))
        elif id in steps and own_j:
            steps[id][step] = _step_of(read, own_j, zone)
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults, JSON if is_document else "sacct")
    return _with_cuts([_measured(job, own_j, its_steps) for job, own_j, its_steps in found])


def _with_cuts(jobs: Sequence[Accounted]) -> list[Accounted]:
    """Mark runs of an export that ``sacct --truncate`` may have cut.

    So look several jobs, eligible at different times, that begin at its first second or end at its last one,
    where ``scancel`` has not ended them; and jobs that have an end but still run, with all that end then.
    """
    ran = [job for job in jobs if job.start_s and job.state not in WAITING]
    first_s = min((job.start_s or inf for job in ran), default=inf)
    last_s = max((job.end_s or 0.0 for job in ran), default=0.0)
    begun = {job.eligible_s for job in ran if job.start_s == first_s} - {first_s}
    ends_s = {job.end_s for job in jobs if job.end_s and job.state in {"RUNNING", "SUSPENDED", *WAITING}}
    ended = {job.eligible_s for job in ran if job.end_s == last_s and job.state != "CANCELLED"}
    ends_s |= {last_s} if len(ended) > 1 else set()
    began_s = first_s if len(begun) > 1 else None
    return [
        replace(job, start_cut=job.start_s == began_s != job.eligible_s, end_cut=job.end_s in ends_s)
        for job in jobs
    ]


def _step_of(read: Cells, own_j: float, zone: tzinfo | None) -> Step:
    """Read a row of a step; its start is the first of the moments that it may be."""
    starts_s, _ = read.optional("Start", partial(_readings, zone)) or ([0.0], "")
    nodes = frozenset(read.optional("NodeList", names_in) or ())
    return Step(own_j, nodes, starts_s[0], _seconds_in(read, "Elapsed") or 0.0)


def _rows(text: str, faults: list[str]) -> Iterator[Row]:
    """Rows of a table, padded or with separators between or behind cells; `faults` takes those of lines."""
    header = list[str]()
    for number, cells in _lines(text, faults) if text.strip() else [(1, [""])]:
        if not header or {*NEEDED} <= {*cells}:  # again, where files were joined
            behind = not cells[-1]
            header = [name.strip() for name in (cells[:-1] if behind else cells)]
            missing = [name for name in NEEDED if name not in header]
            missing += [" or ".join(names) for names in ONE_OF if not set(names) & set(header)]
            if missing:
                lacking, there = (listed(names, quote="", most=24) for names in (missing, header))
                message = f"the columns {lacking} are missing, found {there}; read are {', '.join(FIELDS)}"
                message += "; --noheader leaves the names of columns out" * header[0][:1].isdecimal()
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


def are_dashes(line: str) -> bool:
    """True for the line below the header of a padded table."""
    return re.fullmatch(" *-[- ]*", line) is not None


def _lines(text: str, faults: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines of a table and their cells: between separators, or where the dashes below a header are."""
    lines, places, least = text.splitlines(), list[tuple[int, int]](), 0
    for number, (line, below) in enumerate(zip(lines, [*lines[1:], ""], strict=True), start=1):
        if are_dashes(below):
            places = [found.span() for found in re.finditer("-+", below)]
            # sacct fills all lines with spaces, which some editors take away.
            least = places[-1][1] if below.endswith(" ") else 0
        if not line.strip() or are_dashes(line):
            continue
        cells = [line[begin:end].strip() for begin, end in places] or line.split("|")
        if places and "".join(cells).replace(" ", "") != line.replace(" ", ""):
            faults.append(f"line {number}: is not below its dashes; {WHOLE}")
        elif len(line) < least:
            faults.append(f"line {number}: ends before its dashes; {WHOLE}")
        elif places and (
            cut := [
                cell
                for cell, (begin, end) in zip(cells, places, strict=True)
                if cell.endswith("+") and len(cell) == end - begin
            ]
        ):
            faults.append(f"line {number}: {echo(cut[0])} is cut off; {WHOLE}")
        else:
            yield number, cells


def _of_row(read: Cells, id: str, zone: tzinfo | None) -> Accounted:
    """Job of a row of a table, without its energy."""
    cells = read.row.cells
    elapsed_s, suspended_s = (_seconds_in(read, column) for column in ("Elapsed", "Suspended"))
    told = {name: found for name in TIMES if (found := read.optional(name, partial(_readings, zone)))}
    held_s = None if elapsed_s is None else elapsed_s + (suspended_s or 0.0)
    lasted_s = held_s if {"Start", "End"} <= told.keys() else None
    # A time in the hour that comes twice in autumn has two readings; those are taken that fit the others.
    fit, ambiguous = fitting([readings for readings, _ in told.values()], lasted_s)
    time_s = dict(zip(told, fit, strict=True))
    start_s, end_s = time_s.get("Start") or None, time_s.get("End") or None  # documents say 0
    if elapsed_s is None:
        elapsed_s = max(0.0, (end_s or 0.0) - (start_s or inf) - (suspended_s or 0.0))
    column = "AllocTRES" if cells.get("AllocTRES", "").strip() else "ReqTRES"
    gpus, kinds, converted = read.optional(column, _count_gpus) or (None, frozenset(), False)
    # Of several in a document the last one is the newest: PENDING, RESIZING is of a size that has changed.
    states = read("State", text_in, "").upper().removesuffix(",COMPLETING" if end_s else "")
    state = states.rpartition(",")[2].partition(" ")[0].rstrip("+")
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
        nodes=tuple(read.optional("NodeList", names_in) or ()),
        time_limit_s=_seconds_in(read, "Timelimit", 60.0) or None,
        other_gres=tuple(dict.fromkeys(_OTHER_GRES.findall(cells.get(column, "")))),
        end_s=end_s,
        suspended_s=suspended_s,
        local=any(form == LOCAL for _, form in told.values()),
        ambiguous=ambiguous,
        requested=column == "ReqTRES",
        converted=converted,
        restarts=read.optional("Restarts", count_in),
        eligible_told="Eligible" in told or not start_s,
    )


def _readings(zone: tzinfo | None, text: str) -> tuple[list[float], str]:
    """What a time may be, in seconds since 1970, and its form: standard, ``%s``, or with a zone."""
    try:
        found_s, form = moment_s(text)
        if form == LOCAL:
            return moments_s(found_s, zone), form
    except (ValueError, OverflowError, OSError) as error:
        expected = "a time in --time-zone like 2026-11-03T08:30:00, as SLURM_TIME_FORMAT=standard prints it"
        raise ValueError(f"{echo(text)}: {error}; expected {expected}") from None
    return [found_s if form == ZONED else bounded(text)], form


def _seconds_in(read: Cells, column: str, unit_s: float = 1.0) -> float | None:
    """Seconds in a column, or in the one of plain numbers of it, in a unit."""
    number = read.optional(f"{column}Raw", bounded)
    return read.optional(column, _elapsed_s) if number is None else unit_s * number


def _elapsed_s(text: str) -> float:
    """Seconds of a text such as ``1-02:30:00``."""
    if (found := clock_s(text)) is None:
        raise ValueError(f"{echo(text)} is not [D-]HH:MM:SS")
    return found
