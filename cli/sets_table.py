"""The sets of jobs that may share GPUs, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattsched.cli.terminal import Justify, heading, line, table
from wattsched.cli.wording import count, listed, number

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.sizing.instance import JobSet

MOST_SETS = 12
MOST_JOBS = 6

COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("set", "left"),
    ("GPUs", "right"),
    ("pool", "left"),
    ("set to", "right"),
    ("W", "right"),
    ("jobs and their rates", "left"),
)


def print_sets(out: Console, sets: list[JobSet]) -> None:
    """Print the first sets of an instance; nothing when there are none."""
    if not sets:
        return
    heading(out, f"Sets: {len(sets):,}", "jobs that may share GPUs")
    table(out, COLUMNS, [_row(declared) for declared in sets[:MOST_SETS]])
    if len(sets) > MOST_SETS:
        line(out, (f"... {count(len(sets) - MOST_SETS, 'more set')}", "dim"), indent=2)


def _row(declared: JobSet) -> tuple[str, ...]:
    clock, limit_w = declared.frequency_mhz, declared.power_limit_w
    settings = [f"{clock} MHz" if clock is not None else "", f"{limit_w:g} W" if limit_w is not None else ""]
    return (
        declared.name,
        str(declared.gpus),
        declared.pool,
        ", ".join(filter(None, settings)),
        number(declared.power_w),
        listed((f"{job} {number(rate)}" for job, rate in declared.rates.items()), MOST_JOBS),
    )
