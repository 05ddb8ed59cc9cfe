"""Columns of tables of measured steps and of their jobs: what they are called elsewhere, and their units."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from wattsched.reading.clocks import LOCAL, moment_s
from wattsched.reading.inputs import listed
from wattsched.reading.tables import Row, rows_of, tell_unread
from wattsched.reading.units import Numbers, Quantity, unit_in, without_unit

SYNONYMS = {
    "gpus": ("num gpus", "number of gpus", "n gpus", "ngpus", "gpu count", "num replicas"),
    "nodes": ("num nodes", "number of nodes", "n nodes", "nnodes", "node count"),
    "local_batch": ("local bsz", "local batch size", "batch size per gpu", "per gpu batch size"),
    "batch_size": ("global batch size", "global batch", "total batch size"),
    "throughput": (
        "samples/s",
        "samples per second",
        "throughput samples/s",
        "throughput samples per second",
    ),
    "iterations_per_s": ("iterations/s", "it/s", "iterations per second", "steps per second", "steps/s"),
    "step_time_s": ("step time", "iteration time", "time per step", "time per iteration", "step duration"),
    "time_per_epoch_s": ("time per epoch", "epoch time"),
    "sync_time_s": ("sync time", "synchronisation time", "synchronization time"),
    "frequency_mhz": (
        *(
            "frequency",
            "freq",
            "clock",
            "clocks",
            "gpu frequency",
            "gpu freq",
            "gpu clock",
            "clock frequency",
        ),
        *(
            "sm frequency",
            "sm freq",
            "sm clock",
            "clocks sm",
            "clocks current sm",
            "core clock",
            "graphics clock",
        ),
    ),
    "power_w": (
        "power",
        "average power",
        "avg power",
        "mean power",
        "gpu power",
        "power draw",
        "power per gpu",
    ),
    "power_limit_w": (
        "power limit",
        "powerlimit",
        "power cap",
        "powercap",
        "gpu power limit",
        "gpu power cap",
    ),
    "job": ("job id", "jobid", "pod"),
    "start": ("start time", "started", "begin", "begin time"),
    "end": ("end time", "ended", "finish time", "finished"),
    "steps": ("iterations", "num steps", "number of steps"),
}
"""Other names of columns: in lower case, without separators of words, and without the unit."""
QUANTITIES: dict[str, Quantity] = {
    "step_time_s": "time",
    "time_per_epoch_s": "time",
    "sync_time_s": "time",
    "frequency_mhz": "frequency",
    "power_w": "power",
    "power_limit_w": "power",
}
"""Quantities of the columns that are read in any unit."""
TIMES, IN_UTC = ("start", "end"), " utc"


def column_of(stated: str, known: Iterable[str]) -> str | None:
    """Return the known column that a name in a header stands for, whatever its case, separators and unit."""
    plain = _plain(stated)
    for name in known:
        names = {name.replace("_", " "), *SYNONYMS.get(name, ())}
        bare = without_unit(re.sub(r"[-.]", " ", stated), QUANTITIES[name]) if name in QUANTITIES else plain
        bare = bare.removesuffix(IN_UTC) if name in TIMES else bare
        if names & {plain, bare}:
            return name
    return None


def _plain(stated: str) -> str:
    return re.sub(r"[-.\s_()]+", " ", stated).strip().lower()


def read_table(
    path: str | Path, known: Collection[str], also: Collection[str] = ()
) -> tuple[dict[str, str], list[Row]]:
    """Read a table; a notice names the columns that are neither known nor one of `also`.

    Returns
    -------
    names : dict of str to str
        Of each name in the header what it is called in the rows; empty for a table without rows.
    rows : list of Row
        Cells of known columns are in our units.
    """
    names, readers, rows = dict[str, str](), dict[str, Numbers](), list[Row]()
    for row in rows_of(path, ()):
        if not names:
            names = _names(path, list(row.cells), known, also)
            readers = {
                stated: Numbers(stated if unit_in(stated, of) else "", of, f"{path}, line 1")
                for stated, name in names.items()
                if name in known and (of := QUANTITIES.get(name))
            }
        if any(cell.strip() for cell in row.cells.values()):
            cells = {name: _cell(row, stated, name, readers.get(stated)) for stated, name in names.items()}
            rows.append(Row(cells, row.place))
    for stated, read in readers.items():
        read.tell(f"{path}, column '{stated}'")
    return names, rows


def _names(
    path: str | Path, header: list[str], known: Collection[str], also: Collection[str]
) -> dict[str, str]:
    """Return what each column of a header is called; those that are not read keep their names."""
    found = {stated: name for stated in header if (name := column_of(stated, known))}
    for name in {*found.values()}:
        same = [stated for stated, one in found.items() if one == name]
        if len(same) > 1 and name not in same:
            raise ValueError(f"{path}, line 1: the columns {listed(same)} are both '{name}'; keep one")
        for stated in same if len(same) > 1 else ():
            if stated != name:
                del found[stated]
    # Of both batches the local one is read, and beside the global one columns that are numbers of GPUs.
    read = {*found.values()}
    numbered = [stated for stated in header if stated.isdecimal() and "batch_size" in read]
    if {"local_batch", "batch_size"} <= read:
        read.discard("batch_size")
    kept = {*also, *numbered, *(stated for stated, name in found.items() if name in read)}
    tell_unread(path, (stated for stated in header if stated not in kept))
    return {stated: found.get(stated, stated) for stated in header}


def _cell(row: Row, stated: str, name: str, numbers: Numbers | None) -> str:
    """Return a cell, of a quantity in our unit, and of a time in the zone that the header states."""

    def converted(text: str) -> str:
        if numbers is None or not text:
            return text
        value = numbers(text)
        return repr(round(value, 6) if name == "frequency_mhz" else value).removesuffix(".0")

    text = row.cells[stated].strip()
    if name in TIMES and _plain(stated).endswith(IN_UTC) and text:
        return f"{text}Z" if row.read(stated, moment_s)[1] == LOCAL else text
    is_number = name in {*SYNONYMS} - {*TIMES, "job"} or name.isdecimal()
    return row.read(stated, converted) if is_number else text
