"""Read Slurm's accounting: jobs that have run, from ``sacct --parsable2`` or ``sacct --json``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import tzinfo
from functools import partial
from math import inf

from pydantic import AliasPath

from wattsched.adapters.parts import Part, listing
from wattsched.adapters.slurm.accounted import Accounted, Step, measured, with_cuts
from wattsched.adapters.slurm.documents import AccountedRow, document_in, names_in
from wattsched.instances.errors import MOST_FAULTS, InputError
from wattsched.instances.gpu_parts import as_one_type, has_parts
from wattsched.reading.clocks import LOCAL, ZONED, clock_s, fitting, moment_s, moments_s
from wattsched.reading.inputs import UNKNOWN, echo, listed
from wattsched.reading.tables import Cells, Row, bounded, count_in, text_in

FIELDS = (
    *("JobID", "User", "Account", "State", "Submit", "Eligible", "Start", "End", "Elapsed", "Suspended"),
    *("Timelimit", "AllocTRES", "ReqTRES", "ConsumedEnergyRaw", "NodeList", "Cluster", "JobName"),
)
"""Fields that we ask for, names of jobs last, as these may hold the separator."""
NEEDED = ("JobID", "State", "Submit", "Start")
ONE_OF = (("Elapsed", "ElapsedRaw", "End"), ("AllocTRES", "ReqTRES"))

JSON = "sacct --json"

TIMES = ("Submit", "Eligible", "Start", "End")
"""Columns of times, in the order in which they happen."""
FREE_TEXTS = ("JobName", "Comment", "AdminComment", "SystemComment", "Extra", "SubmitLine", "WorkDir")
"""Columns whose text may hold the separator."""
WHOLE = "sacct --parsable2 prints all of it"
_UNKNOWN = {"Unknown", "None", "N/A", "Invalid", "INVALID", "Partition_Limit", "UNLIMITED", "4.29G"}
_UNKNOWN |= {str(number) for number in UNKNOWN}
_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_COUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTPE]?)")
_GPU_COUNT = re.compile(r"(?:^|[,;])(gres/gpu(?::([^=,;]*))?=([^,;]*))")
_OTHER_GRES = re.compile(r"(?:^|,)(gres/(?!gpu[:=])[^:=,]*)")
_ENERGY = re.compile(r"(?:^|,)energy=([^,]+)")


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
    is_document, alone = text.lstrip().startswith("{"), ""
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
        alone = alone or f"{id}.{step}" * (id not in steps)
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults, JSON if is_document else "sacct")
    if alone and not found:
        told = f"tells of steps alone, as of {echo(alone)}; sacct --allocations prints their jobs"
        raise InputError([told], "sacct")
    return with_cuts([measured(job, own_j, its_steps) for job, own_j, its_steps in found])


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


def separator_in(text: str) -> str | None:
    """Return what separates the cells of a table: ``|``, or a tab or comma where all lines have its cells."""
    header, *lines = text.strip("\r\n").splitlines() or [""]
    for sign in "\t," if "JobID" in header else "":
        columns = len(header.split(sign))
        if "|" not in header and all(len(_cells(line, sign)) == columns > 1 for line in lines if line):
            return sign
    return "|" if "|" in header else None


def _cells(line: str, sign: str) -> list[str]:
    """Return the cells of a line; those with commas may be quoted."""
    if sign != ",":
        return line.split(sign)
    return [quoted or plain for quoted, plain in re.findall(r'(?:^|,)(?:"([^"]*)"|([^,]*))', line)]


def _lines(text: str, faults: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines of a table and their cells: between separators, or where the dashes below a header are."""
    lines, places, least = text.splitlines(), list[tuple[int, int]](), 0
    sign = separator_in(text) or "|"
    for number, (line, below) in enumerate(zip(lines, [*lines[1:], ""], strict=True), start=1):
        if are_dashes(below):
            places = [found.span() for found in re.finditer("-+", below)]
            # sacct fills all lines with spaces, which some editors take away.
            least = places[-1][1] if below.endswith(" ") else 0
        if not line.strip() or are_dashes(line):
            continue
        cells = [line[begin:end].strip() for begin, end in places] or _cells(line, sign)
        widths = zip(cells, (end - begin for begin, end in places), strict=False)
        cut = [cell for cell, width in widths if cell.endswith("+") and len(cell) == width]
        if places and "".join(cells).replace(" ", "") != line.replace(" ", ""):
            faults.append(f"line {number}: is not below its dashes; {WHOLE}")
        elif len(line) < least:
            faults.append(f"line {number}: ends before its dashes; {WHOLE}")
        elif cut:
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
        job_name=cells.get("JobName", "").strip(),
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
    return read.optional(column, partial(_elapsed_s, column)) if number is None else unit_s * number


def _elapsed_s(column: str, text: str) -> float:
    """Seconds of a text such as ``1-02:30:00``."""
    if (found := clock_s(text)) is None:
        raw = f"; a plain number belongs into {column}Raw" if text.isdecimal() else ""
        raise ValueError(f"{echo(text)} is not [D-]HH:MM:SS, as sacct prints it{raw}")
    return found
