"""Job lists of Alibaba's PAI clusters 2020, as GAIA sampled them (ASPLOS 2024): ``pai_*.csv``."""

from __future__ import annotations

from pathlib import Path

from wattsched.instances.traces.rows import Row, rows_of
from wattsched.instances.traces.snapshot import TraceJob
from wattsched.topology.buddy import block_size

COLUMNS = ("arrival_time", "length", "cpus")
UNITS = {"s": 1.0, "h": 3600.0}
YEAR_H = 366 * 24.0


def read_pai(path: str | Path, unit: str | None = None) -> list[TraceJob]:
    """Jobs of a list; times in seconds on its clock.

    The list has no job names: ``row17`` is the job in line 18. Its ``cpus`` is the authors' count of
    resources, which are GPUs in the trace that they sampled. We take it for GPUs, rounded up to a power of
    two as clusters hand them out.

    Parameters
    ----------
    unit : str, optional
        Of its times, s or h. Default: hours where all jobs arrive within a year of them, else seconds.

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or for another unit.
    OSError
        When the file cannot be read.
    """
    if unit not in (None, *UNITS):
        raise ValueError(f"unit: '{unit}' is not one of {', '.join(UNITS)}")
    rows = [(row.number("arrival_time"), row.number("length"), _gpus(row)) for row in rows_of(path, COLUMNS)]
    last = max((arrival for arrival, _, _ in rows), default=0.0)
    to_s = UNITS[unit or ("h" if last <= YEAR_H else "s")]
    return [
        TraceJob(f"row{number}", arrival * to_s, length * to_s, gpus)
        for number, (arrival, length, gpus) in enumerate(rows, start=1)
    ]


def _gpus(row: Row) -> int:
    cpus = row.count("cpus")
    return int(block_size(cpus)) if cpus else 0
