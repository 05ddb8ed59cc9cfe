"""Columns of tables of measured steps and of their jobs: what else they are called, and their units."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from wattsched.reading.inputs import listed
from wattsched.reading.tables import Row, rows_of, tell_unread
from wattsched.reading.units import Numbers, Quantity, unit_in, without_unit

NAMES: dict[str, tuple[str, Quantity | None]] = {
    "gpus": (r"(num|number of|n) ?gpus|gpu count|num replicas", None),
    "nodes": (r"(num|number of|n) ?nodes|node count", None),
    "local_batch": (r"local bsz|local batch size|batch size per gpu|per gpu batch size", None),
    "batch_size": (r"(global|total) batch( size)?", None),
    "throughput": (r"(throughput )?samples(/| per )s(ec(ond)?)?", None),
    "iterations_per_s": (r"(it|its|iterations|steps)(/| per )s(ec(ond)?)?", None),
    "step_time_s": (r"(step|iteration) (time|duration)|time per (step|iteration)", "time"),
    "time_per_epoch_s": (r"time per epoch|epoch time", "time"),
    "sync_time_s": (r"sync(hroni[sz]ation)? time", "time"),
    "frequency_mhz": (
        r"((gpu|sm|core|graphics) )?(clocks?|freq(uency)?)|clock frequency|clocks (current )?sm",
        "frequency",
    ),
    "power_w": (r"((average|avg|mean|gpu) )?power( draw)?|power per gpu", "power"),
    "power_limit_w": (r"(gpu )?power ?(limit|cap)", "power"),
    "job": (r"job ?id|pod", None),
    "start": (r"start time|started|begin( time)?", None),
    "end": (r"end time|ended|finish(ed| time)", None),
    "steps": ("steps", None),
}
"""Patterns of other names, in lower case with single blanks and without the unit, and quantities."""


def column_of(stated: str, known: Collection[str]) -> str | None:
    """Return the known column that a header means, whatever its case, separators of words and unit."""
    words = re.sub(r"[-.]", " ", stated)
    plain = re.sub(r"[\s_()]+", " ", words).strip().lower()
    for name in known:
        others, quantity = NAMES.get(name, ("", None))
        bare = without_unit(words, quantity) if quantity else plain
        if plain == name.replace("_", " ") or re.fullmatch(others, bare):
            return name
    return None


def read_table(
    path: str | Path, known: Collection[str], also: Collection[str] = ()
) -> tuple[dict[str, str], list[Row]]:
    """Return what the names in a table's header are called here, and its rows by these, in our units.

    A notice names the columns that are neither known nor one of `also`. Without rows there are no names.
    """
    names, readers, rows = dict[str, str](), dict[str, Numbers](), list[Row]()
    for row in rows_of(path, ()):
        names = names or _names(path, list(row.cells), known, also)
        for stated, name in names.items() if not rows else ():
            if name in known and (of := NAMES.get(name, ("", None))[1]):
                readers[stated] = Numbers(stated if unit_in(stated, of) else "", of, f"{path}, line 1")
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
        for stated in same if name in same else ():
            found[stated] = stated  # not read, beside the column that has the name itself
    read = {*found.values()} & {*known}
    # Of both batches the local one is read; beside the global one, columns that are numbers of GPUs.
    read -= {"batch_size"} if "local_batch" in read else {*()}
    kept = {stated for stated, name in found.items() if name in read}
    kept |= {*also, *(stated for stated in header if stated.isdecimal() and "batch_size" in read)}
    tell_unread(path, (stated for stated in header if stated not in kept))
    return {stated: found.get(stated, stated) for stated in header}


def _cell(row: Row, stated: str, name: str, numbers: Numbers | None) -> str:
    """Return a cell, of a quantity in our unit."""

    def converted(text: str) -> str:
        if numbers is None or not text:
            return text
        return repr(round(numbers(text), 6) if name == "frequency_mhz" else numbers(text)).removesuffix(".0")

    is_text = name in ("job", "start", "end") or not (name in NAMES or name.isdecimal())
    return row.cells[stated].strip() if is_text else row.read(stated, converted)
