"""Readers of public traces, and of lists of one's own.

To add one: a reader in a file of its own, and its line in `FORMATS`. It takes a path; its other parameters
become options, described by its docstring. Readers raise an OSError where a file cannot be read, and a
ValueError with the line and column of a malformed cell, or for an option that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import Any, Literal

from wattsched.instances.traces.recorded import TraceJob as TraceJob
from wattsched.instances.traces.recorded import busiest_s as busiest_s
from wattsched.instances.traces.recorded import using_gpus as using_gpus
from wattsched.instances.traces.snapshot import round_at as round_at

KNOWN = "known"
"""Parameter of readers whose jobs may name models: the `Profiles` that there are. It becomes no option."""


@dataclass(frozen=True)
class Format:
    """A trace format.

    Attributes
    ----------
    yields : {"jobs", "cluster"}
        What `read` returns: a list of `TraceJob` for `round_at`, or a Cluster for its `cluster`.
    reader : str
        File and function, which is imported when it is asked for.
    numbered : bool
        The files do not name their jobs: `read` numbers them, in every file from the start.
    windows : bool
        With a list of tasks it makes windows of `placement`.
    """

    name: str
    description: str
    yields: Literal["jobs", "cluster"]
    reader: str
    numbered: bool = False
    windows: bool = False

    @cached_property
    def read(self) -> Callable[..., Any]:
        """Takes a path and the options of the format."""
        read: Callable[..., Any] = resolve_name(f"{__name__}.{self.reader}")
        return read


FORMATS = (
    Format("csv", "jobs of your own list: job, arrival, duration, gpus", "jobs", "job_lists:read_plain"),
    Format("openb", "nodes of Alibaba's GPU cluster trace 2023", "cluster", "openb:read_openb", windows=True),
    Format("itp", "jobs of a cluster of Microsoft's ITP traces 2021", "jobs", "job_lists:read_itp"),
    Format("philly", "jobs of Microsoft's Philly clusters 2017", "jobs", "job_lists:read_philly", True),
    Format(
        "pai", "jobs of Alibaba's PAI clusters 2020, as GAIA sampled them", "jobs", "job_lists:read_pai", True
    ),
    Format("gavel", "jobs of Gavel's traces (OSDI 2020)", "jobs", "gavel:read_gavel", True),
)


def formats() -> dict[str, Format]:
    """Formats by name."""
    return {form.name: form for form in FORMATS}
