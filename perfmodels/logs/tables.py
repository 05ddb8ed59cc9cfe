"""Logs in tables: of ``nvidia-smi --query-gpu=... --format=csv``, and of ``dcgmi dmon -e 155,203,100,160``.

The header of nvidia-smi names the columns by the queries and their units, ``power.draw [W]``; cells are
``123.45 W``, or ``123.45`` with ``nounits``, watts in any unit of `reading.units`, and ``[N/A]``,
``[Not Supported]`` or another reason in brackets where there is no value.

``dcgmi dmon`` prints ``#Entity`` and a short name for each field, a line of units below these, and a line for
each GPU, ``GPU 0    123.456    98    1410``; both first lines again after every 14 lines. It tells no times.

A header within a log is that of what follows, as where another log was appended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter

from wattsched.perfmodels.logs.samples import (
    CLUSTERS,
    HOSTS,
    IN_MIG,
    MOST,
    SAME_GPU,
    UUID,
    Line,
    OddLines,
    Sample,
    lines_of,
    reading,
    seconds_of,
    table_lines,
)
from wattsched.reading.inputs import echo, listed, notice
from wattsched.reading.tables import Row, tell_unread
from wattsched.reading.units import Numbers

VALUE = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)?|GPU-[0-9a-f-]{36}|\d+(\.\d+)? ([mk]?W|MHz|%)"
"""Cells that show a row of nvidia-smi: a timestamp, a UUID, a value with its unit."""
ENTITY = r"\s*#\s*Entity\b"
POWER = ("power.draw.average", "power.draw", "power.draw.instant", "POWER")
CLOCK = ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr", "SMCLK")
COLUMNS = {
    "power_w": (POWER, "W"),
    "utilisation": (("utilization.gpu", "GPUTL"), "%"),
    "frequency_mhz": (CLOCK, "MHz"),
    "power_limit_w": (("enforced.power.limit", "power.limit", "PMLMT"), "W"),
}
"""Accepted names of each column of a sample, the first found counts; and its unit."""
TIME, MIG, ENABLED, INDEX, MODELS = "timestamp", "mig.mode.current", "Enabled", "index", ("name", "gpu_name")
DMON_ROWS = 14
"""Lines after which ``dcgmi dmon`` prints its header again."""
GPUS = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", INDEX, "serial", "gpu_serial")
QUERIES = {TIME, MIG, *MODELS, *GPUS, *(name for names, _ in COLUMNS.values() for name in names)}


def read_smi(text: str, name: str) -> Iterator[Sample]:
    """Samples of a log of nvidia-smi, in the order of its lines; `name` is the file's, for messages."""
    rows = table_lines(text, name, lambda cells: not QUERIES.isdisjoint(map(_query, cells)))
    return _samples(rows, name, "has no power.draw; log power.draw, without noheader in --format")


def read_dmon(text: str, name: str) -> Iterator[Sample]:
    """Samples of ``dcgmi dmon``, in the order of its lines."""
    return _samples(_dmon_rows(text, name), name, "no column POWER (-e 155)")


def _dmon_rows(text: str, name: str) -> Iterator[Line]:
    """Rows of ``dcgmi dmon`` as nvidia-smi has them; after parts of a GPU, boards are in MIG mode."""
    shorts, header, known = list[re.Match[str]](), list[str](), list[str]()
    odd, mig, headers = OddLines(name), "", list[int]()
    for line, told in enumerate(lines_of(text), start=1):
        words = told.split()
        if re.match(ENTITY, told):
            shorts = [*re.finditer(r"[^\s#]+", told)][1:]
            header = [*(one[0] for one in shorts), INDEX, MIG]
            headers.append(line)
        elif words[:1] in (["ID"], ["Id"]):  # with units below the columns that have one
            ends = [*(one.start() for one in shorts[1:]), None]
            units = [told[one.start() : end].strip() for one, end in zip(shorts, ends, strict=True)]
            stated = [f"{one[0]} [{unit}]" for one, unit in zip(shorts, units, strict=True)]
            header = [*(one.removesuffix(" []") for one in stated), INDEX, MIG]
        elif words[:1] in (["GPU-I"], ["GPU-CI"]):
            mig = ENABLED
        elif words[:1] == ["GPU"] and words[1:2] and words[1].isdecimal():
            if header != known:
                yield header, line, header
            known = header
            if len(words) == len(header):
                yield header, line, [*words[2:], words[1], mig]
            else:
                odd.leave_out(line, f"{len(words) - 2} values of the {len(shorts)} columns")
    odd.tell()
    gaps = [after - before - 2 for before, after in pairwise(headers)]
    usual = gaps[0] if len(gaps) > 1 else DMON_ROWS
    _tell_joined(name, next((at for at, gap in zip(headers[1:], gaps, strict=True) if gap != usual), 0))


def _tell_joined(name: str, line: int) -> None:
    """Point at a header on a line, 0 for none, of a log that tells neither times nor nodes."""
    if line:
        told = f"the header comes again on line {line}, as where logs are joined"
        notice(f"{name}: doubtful: {told}; {SAME_GPU}")


def _query(cell: str) -> str:
    return cell.partition(" [")[0]


def _samples(rows: Iterable[Line], name: str, lacks: str) -> Iterator[Sample]:
    """Samples of the rows below each header; `lacks` is told of one without watts."""
    for names, below in groupby(rows, key=itemgetter(0)):
        yield from _samples_below(names, below, name, lacks)


def _samples_below(names: list[str], rows: Iterator[Line], name: str, lacks: str) -> Iterator[Sample]:
    """Samples of the rows with these names of columns, the first of which is the header."""
    _, line, _ = next(rows)
    place = f"{name}, line {line}"
    named = {_query(cell): cell for cell in names}
    powers = [echo(named[query]) for query in POWER if query in named]
    if not powers:
        unknown = any(re.fullmatch(VALUE, one) for one in names)
        lacks = f"has no header, so that its columns are not known: {lacks}" if unknown else lacks
        raise ValueError(f"{place}: {lacks}, found {listed(named)}")

    def first(queries: Iterable[str]) -> str | None:
        return next((named[query] for query in queries if query in named), None)

    found = {column: of for column, (queries, _) in COLUMNS.items() if (of := first(queries)) is not None}
    watts = {of: Numbers(of, "power", place) for column, of in found.items() if COLUMNS[column][1] == "W"}
    readers = {
        column: partial(reading, most=MOST[column], unit=COLUMNS[column][1], read=watts.get(of))
        for column, of in found.items()
    }
    gpu, model, in_mig = first(GPUS), first(MODELS), False
    hosts = [cell for query, cell in named.items() if query.lower() in (*CLUSTERS, *HOSTS)]
    tell_unread(name, (of for query, of in named.items() if query not in QUERIES and of not in hosts))
    timeless, again = TIME not in named and not hosts and not (gpu and "uuid" in gpu), 0
    for _, line, cells in rows:
        if cells == names:
            again = again or line * timeless
            continue
        row = Row(dict(zip(names, cells, strict=True)), f"{name}, line {line}")
        values = {column: row.read(of, readers[column]) for column, of in found.items()}
        in_mig |= row.cells.get(MIG) == ENABLED
        if TIME in row.cells:
            (time_s,), zoned = row.read(TIME, seconds_of)
            values |= {"time_s": time_s, "local_line": 0 if zoned else line}
        own = row.cells[gpu] if gpu else "0"
        told = own if own.startswith(UUID) else "/".join([*(row.cells[host] for host in hosts), own])
        yield Sample("", told, **values, model=row.cells[model] if model else "")
    remarks = {
        f"assumed: the column {powers[0]} is taken, not {', '.join(powers[1:])}": bool(powers[1:]),
        "assumed: all samples are of one GPU, as the log has neither index nor uuid": gpu is None,
        IN_MIG: in_mig,
    }
    _tell_joined(name, again)
    for told in (remark for remark, holds in remarks.items() if holds):
        notice(f"{name}: {told}")
    for of, read in watts.items():
        read.tell(f"{name}, column {echo(of)}")
