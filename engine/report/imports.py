"""The table of an import: what was read, converted, assumed and left out, as printed and kept in a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from wattsched.instances.traces import TraceJob
from wattsched.instances.units import S_PER_H
from wattsched.report.wording import count, number


@dataclass(frozen=True)
class Entry:
    """Jobs, or other records, that an import treated alike, with their number and GPU hours where known.

    They are read, converted, assumed, left out or noted; what cannot be right is doubtful.
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
        found = re.fullmatch(r"(|.*?: )(left out|assumed|converted|doubtful): (.*)", sentence)
        return cls(found[2], found[1] + found[3]) if found else cls("noted", sentence)

    def sentence(self) -> str:
        """Entry of jobs in words: ``left out: without GPUs, 3 jobs, 0 GPU h``."""
        records = [] if self.records is None else [count(self.records, "job")]
        hours = [] if self.gpu_h is None else [f"{number(self.gpu_h)} GPU h"]
        return f"{self.treatment}: {', '.join([self.what, *records, *hours])}"


def gpu_hours(jobs: Iterable[TraceJob]) -> float:
    """GPU hours that jobs held."""
    return sum(job.gpus * job.duration_s for job in jobs) / S_PER_H


def table_of(entries: Sequence[Entry], record: str = "job") -> tuple[list[str], list[list[str]]]:
    """Return the titles and rows of a table of entries."""
    amounts = [["" if n is None else number(n) for n in (one.records, one.gpu_h)] for one in entries]
    rows = [[one.treatment, *told, one.what] for one, told in zip(entries, amounts, strict=True)]
    return ["", f">{record}s", ">GPU h", ""], rows
