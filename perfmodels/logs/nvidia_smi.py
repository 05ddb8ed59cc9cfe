"""Logs of ``nvidia-smi --query-gpu=... --format=csv -l SECONDS``.

The header names the columns by the queries and their units, ``power.draw [W]``; cells are ``123.45 W``, or
``123.45`` with ``nounits``, watts in any unit of `reading.units`, and ``[N/A]``, ``[Not Supported]`` or
another reason in brackets where there is no value. A log to which another was appended has the header again.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from wattsched.perfmodels.logs.samples import (
    CLUSTERS,
    HOSTS,
    IN_MIG,
    MOST,
    UUID,
    Sample,
    cells_of,
    csv_rows,
    reading,
    seconds_of,
)
from wattsched.reading.inputs import NoticeWarning, echo, listed
from wattsched.reading.units import Numbers

NAME = "nvidia-smi"
VALUE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)?|GPU-[0-9a-f-]{36}|\d+(\.\d+)? ([mk]?W|MHz|%)")
"""Cells that show a row of such a log: a timestamp, a UUID, a value with its unit."""
POWER = ("power.draw.average", "power.draw", "power.draw.instant")
CLOCK = ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr")
COLUMNS = {
    "power_w": (POWER, "W"),
    "utilisation": (("utilization.gpu",), "%"),
    "frequency_mhz": (CLOCK, "MHz"),
    "power_limit_w": (("enforced.power.limit", "power.limit"), "W"),
}
"""Accepted names of each column of a sample, the first found counts; and its unit."""
MODELS = ("name", "gpu_name")
GPUS = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "serial", "gpu_serial")


def recognises(text: str) -> bool:
    """True if a text begins as such a log does, with its header or without."""
    first = cells_of(text.lstrip().partition("\n")[0])
    return any(cell.startswith(POWER) or VALUE.fullmatch(cell) for cell in first)


def read(text: str, name: str) -> Iterator[Sample]:
    """Samples of a log, in the order of its lines; `name` is the file's, for messages."""
    rows = csv_rows(text, name)
    first, header = next(rows)
    queries = {query.partition(" [")[0]: place for place, query in enumerate(header)}
    if not any(query in queries for query in POWER):
        unknown = any(map(VALUE.fullmatch, header))
        told = "has no header, so that its columns are not known" if unknown else "has no power.draw"
        raise ValueError(f"{name}, line {first}: {told}; log power.draw, without noheader in --format")
    # Column of a sample -> place in the log's rows, unit, and the reader of watts.
    found = {
        column: (k, unit, Numbers(header[k], "power", f"{name}, line {first}") if unit == "W" else None)
        for column, (names, unit) in COLUMNS.items()
        if (k := next((queries[query] for query in names if query in queries), None)) is not None
    }
    taken, *others = (header[queries[query]] for query in POWER if query in queries)
    mig, in_mig = queries.get("mig.mode.current"), False
    gpu, model = (next((queries[one] for one in names if one in queries), None) for names in (GPUS, MODELS))
    hosts = [k for query, k in queries.items() if query.lower() in (*CLUSTERS, *HOSTS)]
    time = queries.get("timestamp")
    for line, cells in rows:
        place = f"{name}, line {line}, column"
        values = {
            column: reading(cells[k], f"{place} {echo(header[k])}", MOST[column], unit, read)
            for column, (k, unit, read) in found.items()
        }
        in_mig |= mig is not None and cells[mig] == "Enabled"
        if time is not None:
            (time_s,), zoned = seconds_of(cells[time], f"{place} 'timestamp'")
            values |= {"time_s": time_s, "local_line": 0 if zoned else line}
        own = "0" if gpu is None else cells[gpu]
        named = own if own.startswith(UUID) else "/".join([*(cells[k] for k in hosts), own])
        yield Sample("", named, **values, model="" if model is None else cells[model])
    remarks = {
        f"assumed: the column {echo(taken)} is taken, not {listed(others)}": others,
        "assumed: all samples are of one GPU, as the log has neither index nor uuid": gpu is None,
        IN_MIG: in_mig,
    }
    for told in (remark for remark, holds in remarks.items() if holds):
        warnings.warn(f"{name}: {told}", NoticeWarning, stacklevel=2)
    for k, _, read in found.values():
        if read is not None:
            read.tell(f"{name}, column {echo(header[k])}")
