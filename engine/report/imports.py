"""The table of an import: what was read, converted, assumed and left out, as printed and kept in a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from wattsched.instances.traces import TraceJob
from wattsched.instances.units import S_PER_H
from wattsched.report.wording import count, number

COLUMNS = ["", ">{}s", ">GPU h", ""]


@dataclass(frozen=True)
class Entry:
    """Jobs, or other records, that an import treated alike.

    Attributes
    ----------
    treatment : str
        read, converted, assumed, left out, noted, or doubtful for what cannot be right.
    what : str
    records : int, optional
        None where it is not about single ones.
    gpu_h : float, optional
        GPU hours of these, None where nothing tells them.
    """

    treatment: str
    what: str
    records: int | None = None
    gpu_h: float | None = None

    @classmethod
    def of(cls, treatment: str, what: str, jobs: Sequence[TraceJob]) -> Self:
        """Entry of some jobs."""
        return cls(treatment, what, len(jobs), gpu_hours(jobs))

    @classmethod
    def told(cls, sentence: str) -> Self:
        """Entry of a sentence such as ``left out: 'a', of which no log has a sample``."""
        treatment, colon, what = sentence.partition(": ")
        known = ("left out", "assumed", "converted", "doubtful")
        return cls(treatment, what) if colon and treatment in known else cls("noted", sentence)

    def sentence(self, record: str = "job") -> str:
        """Entry in words: ``left out: without GPUs, 3 jobs, 0 GPU h``."""
        records = [] if self.records is None else [count(self.records, record)]
        hours = [] if self.gpu_h is None else [f"{number(self.gpu_h)} GPU h"]
        return f"{self.treatment}: {', '.join([self.what, *records, *hours])}"


def gpu_hours(jobs: Iterable[TraceJob]) -> float:
    """GPU hours that jobs held."""
    return sum(job.gpus * job.duration_s for job in jobs) / S_PER_H


def table_of(entries: Iterable[Entry], record: str = "job") -> tuple[list[str], list[list[str]]]:
    """Return column titles and rows of a table, the same treatment named once."""
    rows, last = [], ""
    for one in entries:
        records = "" if one.records is None else f"{one.records:,}"
        hours = "" if one.gpu_h is None else number(one.gpu_h)
        rows.append([one.treatment if one.treatment != last else "", records, hours, one.what])
        last = one.treatment
    return [column.format(record) for column in COLUMNS], rows
