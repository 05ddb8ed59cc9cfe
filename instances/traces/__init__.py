"""Readers of public traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from wattsched.instances.traces.gavel import read_gavel
from wattsched.instances.traces.job_lists import read_itp, read_pai, read_philly
from wattsched.instances.traces.openb import read_openb
from wattsched.instances.traces.snapshot import TraceJob as TraceJob
from wattsched.instances.traces.snapshot import busiest_s as busiest_s
from wattsched.instances.traces.snapshot import round_at as round_at


@dataclass(frozen=True)
class Format:
    """A trace format.

    Attributes
    ----------
    yields : {"jobs", "cluster"}
        What `read` returns: a list of `TraceJob` for `round_at`, or a Cluster for its `cluster`.
    read : callable
        Takes a path and the options of the format.
    numbered : bool
        The files do not name their jobs: `read` numbers them, in every file from the start.
    windows : bool
        With a list of tasks it makes windows of `placement`.
    """

    name: str
    description: str
    yields: Literal["jobs", "cluster"]
    read: Callable[..., Any]
    numbered: bool = False
    windows: bool = False


_FORMATS = (
    Format("openb", "nodes of Alibaba's GPU cluster trace 2023", "cluster", read_openb, windows=True),
    Format("itp", "jobs of a cluster of Microsoft's ITP traces 2021", "jobs", read_itp),
    Format("philly", "jobs of Microsoft's Philly clusters 2017", "jobs", read_philly, numbered=True),
    Format(
        "pai", "jobs of Alibaba's PAI clusters 2020, as GAIA sampled them", "jobs", read_pai, numbered=True
    ),
    Format("gavel", "jobs of Gavel's traces (OSDI 2020)", "jobs", read_gavel, numbered=True),
)


def formats() -> dict[str, Format]:
    """Formats by name."""
    return {form.name: form for form in _FORMATS}
