"""Reports of the agents on nodes (``deploy/wattsched-agent``): settings that GPUs of running jobs have.

An agent writes ``nodes/NODE.json`` in the folder of the settings. These files are bounded and checked before
they are believed: they decide which jobs' settings may change, and when a lower setting counts.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Annotated

from pydantic import Field, RootModel

from wattsched.adapters.options import NAMED, first_of
from wattsched.instances.errors import InputError, validated
from wattsched.instances.io import parse_json
from wattsched.reading.inputs import listed
from wattsched.topology.fields import Count, NonNegative, Positive, Strict

FRESH_S = 30.0
"""Seconds after which a report does not count any more: its agent has ended."""
_MOST_BYTES, _MOST_REPORTS = 65_536, 20_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}\.json")


class JobReport(Strict):
    """Settings of the GPUs of a job on a node in this run of it, their draw, and why a change failed."""

    run: Annotated[int, Field(ge=0)]
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    power_w: NonNegative | None = None
    failed: Annotated[str, Field(max_length=1_000)] | None = None


class NodeReport(Strict):
    """Report of the agent of a node: when it was written, and the jobs that have GPUs there, by number."""

    time_s: NonNegative
    jobs: dict[Annotated[str, Field(pattern="^[0-9]{1,10}$")], JobReport] = Field(max_length=10_000)


def written_in(settings: Path) -> dict[str, str]:
    """Return the texts of the reports in a folder of settings, by node.

    Files that others than root and ourselves may have written are left out, and so are links and large ones.
    """
    folder, owners, found = settings / "nodes", {0, os.geteuid()}, dict[str, str]()
    try:
        about = folder.lstat()
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)][:_MOST_REPORTS]
    except OSError:
        return {}
    if about.st_uid not in owners or about.st_mode & 0o022:
        return {}
    for name in names:
        try:
            with open(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                about = os.fstat(file.fileno())
                if stat.S_ISREG(about.st_mode) and about.st_uid in owners and not about.st_mode & 0o022:
                    found[name.removesuffix(".json")] = file.read(_MOST_BYTES).decode(errors="replace")
        except OSError:
            continue
    return found


def reports_in(text: str, time_s: float) -> tuple[dict[str, NodeReport], list[str]]:
    """Read the reports of a snapshot, by node, and notes on those that do not count."""
    found, notes, old = dict[str, NodeReport](), list[str](), list[str]()
    for node, written in validated(
        RootModel[dict[str, str]], parse_json(text.encode()), "agents"
    ).root.items():
        try:
            report = validated(NodeReport, parse_json(written.encode()), f"nodes/{node}.json")
        except InputError as error:
            notes.append(f"nodes/{node}.json: {error.faults[0]}: the report does not count")
            continue
        if abs(time_s - report.time_s) <= FRESH_S:
            found[node] = report
        else:
            old.append(node)
    notes = first_of(notes)
    if old:
        names = listed(sorted(old), most=NAMED)
        notes.append(f"the agent of {names} has written no report for {FRESH_S:.0f} s")
    return found, notes
