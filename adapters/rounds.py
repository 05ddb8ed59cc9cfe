"""Rounds on a cluster, whoever schedules it: one after the other, told of everything anew, and reported."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from threading import Event
from typing import Any, Generic, TypeVar

from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import PER_KWH
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
        if made.unwritten:
            self.notes.append(f"{made.unwritten}: the cap is kept, and nothing is started")

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

    A job that waits and cannot be understood is taken out of `jobs`.

    Returns
    -------
    dict of str to str
        What is wrong with those, by name.

    Raises
    ------
    InputError
        For anything else: without a job that runs, its GPUs would be taken to be free.
    """
    session.goes_on = True  # the cap is kept also where nothing can be written
    if before := session.session.to_instance().by_column().names:
        session.remove(before)
    session.update(
        cluster=cluster,
        power_w=None if math.isinf(cap_w) else max(cap_w, 1e-3),
        objective=objective,
        round_s=round_s,
        change_cost=change_cost,
        tenants=tenants,
        carbon_g_per_kwh=carbon_g_per_kwh,
    )
    try:
        if jobs:
            session.upsert(jobs)
        return {}
    except InputError:
        pass
    left_out = dict[str, str]()
    for job in list(jobs):
        try:
            session.upsert([job])
        except InputError as error:
            if "current" in job:
                raise
            left_out[job["name"]] = "; ".join(error.faults)
            jobs.remove(job)
    return left_out
