"""Rounds on a cluster, whoever schedules it: one after the other, told of everything anew, and reported."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from threading import Event
from typing import Any, Generic, TypeVar

from wattsched.adapters.quarantine import why
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import PER_KWH
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.serve.database import JournalError
from wattsched.serve.recorded import RecordedSession
from wattsched.serve.rounds import Round

SAVING = ("energy", *PER_KWH)
"""Objectives that are best where nothing runs."""


class UnansweredError(Exception):
    """The cluster did not answer, or refused; the message is one line."""


@dataclass
class Report:
    """What a round did, or would do.

    Attributes
    ----------
    power_w, cap_w : float
        Draw by the model after the round, and the cap; None is no cap.
    decided_s, took_s : float
        Seconds of the decision, and of the whole round.
    notes : list of str
        What else an operator should know.
    """

    number: int
    time_s: float
    running: int = 0
    queued: int = 0
    power_w: float = 0.0
    cap_w: float | None = None
    reason: str = ""
    gap: float | None = None
    decided_s: float = 0.0
    took_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def take(self, made: Round) -> None:
        """Say how a decision ended."""
        self.number, self.gap = made.number, made.decision.gap
        self.reason = made.decision.brief.termination.reason
        self.decided_s += made.decision.time_s["total"]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


ReportT = TypeVar("ReportT", bound=Report)


class RoundLoop(ABC, Generic[ReportT]):
    """Rounds until `stop` is set.

    Attributes
    ----------
    every_s : float
        From the beginning of a round to that of the next.
    stop : threading.Event
        Ends it after the action in progress.
    """

    def __init__(self, every_s: float) -> None:
        self.every_s, self.stop = every_s, Event()

    def __iter__(self) -> Iterator[ReportT | UnansweredError | InputError]:
        """Do rounds; what has no answer, or cannot be used, is told, and tried again."""
        while not self.stop.is_set():
            begun = time.monotonic()
            try:
                report = self.round()
                report.took_s = time.monotonic() - begun
                yield report
            except (UnansweredError, InputError) as error:
                yield error
            self.stop.wait(max(0.0, self.every_s - (time.monotonic() - begun)))

    @abstractmethod
    def round(self) -> ReportT:
        """Do one round."""


def require_work(objective: str) -> None:
    """Refuse objectives that do work only under a least goodput, which nobody states here.

    Raises
    ------
    InputError
    """
    if objective in SAVING:
        told = "lets every job wait that may; choose one that values work, under a cap of power"
        raise InputError([f"objective: '{objective}' {told}"])


def tell(
    session: RecordedSession,
    cluster: Mapping[str, Any],
    jobs: list[dict[str, Any]],
    *,
    cap_w: float,
    objective: str,
    round_s: float,
    change_cost: float,
    tenants: Mapping[str, Any],
    carbon_g_per_kwh: float | None,
) -> dict[str, str]:
    """Tell a session of everything as it is now, instead of all that it had.

    A job that cannot be understood is taken out of `jobs` where it waits; one that runs is told as what it
    was launched as. Where not even that can be told it is taken out, too, and is others' load.

    Returns
    -------
    dict of str to str
        What is wrong with those that were taken out, by name.

    Raises
    ------
    InputError
        For anything else.
    """
    if before := session.session.to_instance().by_column().names:
        session.remove(before)
    site: dict[str, Any] = {
        "power_w": None if math.isinf(cap_w) else max(cap_w, 1e-3),
        "objective": objective,
        "round_s": round_s,
        "change_cost": change_cost,
        "tenants": tenants,
        "carbon_g_per_kwh": carbon_g_per_kwh,
    }
    session.update(cluster=cluster, **site)
    left_out, by_name = dict(_refused(session, jobs)), {job["name"]: job for job in jobs}
    launched = [_as_launched(by_name[name]) for name in left_out if "current" in by_name[name]]
    untold = dict(_refused(session, launched))
    for job in launched:
        if job["name"] not in untold:
            by_name[job["name"]] = job
            del left_out[job["name"]]
    if untold:
        nodes = {row["name"]: row for row in cluster["nodes"]}
        for job in (job for job in launched if job["name"] in untold):
            each_w = job["options"]["power_w"][0] / job["current"]["gpus"]
            for node, gpus in job["current"]["nodes"].items():
                row = nodes[node]
                row["unavailable"] = sorted({*row.get("unavailable", ()), *gpus})
                row["reserved_w"] = row.get("reserved_w", 0.0) + each_w * len(gpus)
        session.update(cluster=cluster)
    jobs[:] = [job for name, job in by_name.items() if name not in left_out]
    return left_out


def _as_launched(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job that runs without anything that its user says: its one option is what it has."""
    table, current = job["options"], job["current"]
    own = {name: value for name, value in current.items() if name in ("gpus", "pool", *SETTINGS)}
    rows = zip(*(table.get(name, [value] * len(table["gpus"])) for name, value in own.items()), strict=True)
    place = [*rows, tuple(own.values())].index(tuple(own.values()))
    power_w = [*table["power_w"], max(table["power_w"])][place]
    kept = {name: job[name] for name in ("name", "current", "preemptible", "tenant") if name in job}
    options = {name: [value] for name, value in own.items()} | {"power_w": [power_w], "rate": [1.0]}
    return {**kept, "pools": [current["pool"]], "options": options}


def _refused(session: RecordedSession, jobs: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Tell a session of jobs, by halves where some cannot be told, and these, and why."""
    try:
        if jobs:
            session.upsert(jobs)
    except JournalError:
        raise
    except Exception as error:
        if len(jobs) == 1:
            yield jobs[0]["name"], why(error)
            return
        half = len(jobs) // 2
        yield from _refused(session, jobs[:half])
        yield from _refused(session, jobs[half:])
