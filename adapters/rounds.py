"""Rounds on a cluster, whoever schedules it: how they are decided, what they do, and what is told of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

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


class Reason(str):
    """Reason why a job waits, and its kind; without one the job takes no part in decisions."""

    kind: str

    def __new__(cls, text: str, kind: str = "excluded") -> Reason:
        """Make it of its text and its kind, one of those by which waiting jobs are counted."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Settings by which rounds are decided and done.

    Attributes
    ----------
    every_s : float
        Between rounds.
    deadline_s : float
        For a decision.
    apply : bool
        Whether anything is done; else it is only told.
    reasons : int
        Reasons why jobs wait that are written in a round at most.
    explain_s : float
        Seconds of a round, after all is done, to look for when these jobs start, and on which smaller size.
    """

    objective: str = "work-value"
    every_s: float = 30.0
    deadline_s: float = 5.0
    change_cost: float = 0.0
    apply: bool = False
    reasons: int = 20
    explain_s: float = 2.0


@dataclass
class Report:
    """Report of what a round did, or would do.

    Attributes
    ----------
    power_w, cap_w : float
        Draw by the model, corrected by readings, after the round, and the cap; None is no cap.
    planned_w : float, optional
        In shadow mode the draw if the plan were carried out.
    margin_w, measured_w : float, optional
        Margin that the cap keeps for errors of the model (in shadow mode the plan's), and the draw with jobs
        as they are read.
    domains : dict of str to dict
        These by power domain, '' for the site, and `next_cap_w` from the time `next_cap_s` (since 1970) on.
    cap_unknown, unread_s : bool, float
        Whether the cap is not known, and seconds without a reading; None where nothing is read.
    decided_s, took_s : float
        Seconds of the decision, and of the whole round.
    started, stopped, changed : dict
        Jobs by id or name, and how; in shadow mode what would be. Changed are clocks and power limits.
    postponed : dict
        Decided starts that cannot be yet, and why: the next round looks again.
    waiting : dict
        Why the other jobs wait, those that are paused among them.
    alarms : list of str
        What an operator has to see to: the cap is not kept, or not known.
    notes : list of str
        What else an operator should know.
    """

    also_done: ClassVar[Mapping[str, str]] = {}
    """Other actions on jobs, and the attribute that has the jobs."""

    number: int = 0
    time_s: float = 0.0
    running: int = 0
    queued: int = 0
    power_w: float = 0.0
    cap_w: float | None = None
    planned_w: float | None = None
    margin_w: float = 0.0
    measured_w: float | None = None
    domains: dict[str, dict[str, float]] = field(default_factory=dict)
    cap_unknown: bool = False
    unread_s: float | None = None
    reason: str = ""
    gap: float | None = None
    decided_s: float = 0.0
    took_s: float = 0.0
    started: dict[Any, str] = field(default_factory=dict)
    stopped: dict[Any, str] = field(default_factory=dict)
    changed: dict[Any, str] = field(default_factory=dict)
    postponed: dict[Any, str] = field(default_factory=dict)
    waiting: dict[Any, str] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, made: Round) -> None:
        """Take over from the session's round how its decision ended."""
        self.number, self.gap = made.number, made.decision.gap
        self.reason = made.decision.brief.termination.reason
        self.decided_s += made.decision.time_s["total"]

    def note_not_stopped(self, jobs: Mapping[Any, str], kind: str = "") -> None:
        """Say once of jobs that were not stopped why."""
        notes = [f"{kind}{name} was not stopped: {why}" for name, why in jobs.items()]
        self.notes += [note for note in notes if note not in self.notes]

    @property
    def jobs(self) -> dict[str, dict[Any, str]]:
        """Return the jobs by what is done to them."""
        own = {what: getattr(self, name) for what, name in self.also_done.items()}
        done = {"start": self.started, "change": self.changed, "stop": self.stopped}
        return {**done, **own, "postpone": self.postponed, "wait": self.waiting}

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """Starts and stops that a decision asks for.

    Attributes
    ----------
    starts : list
        Those whose GPUs or watts others have to leave first are among them.
    stops : dict
        Jobs to be stopped, and why.
    reasons : dict
        Why other jobs wait.
    moved : list of str
        Jobs that would have to be elsewhere, where jobs cannot be moved. They stay.
    lowered, raised : list
        Running jobs whose clocks or power limits change, to draw less or more.
    """

    starts: list[Any]
    stops: dict[Any, str]
    reasons: dict[Any, str]
    moved: list[str] = field(default_factory=list)
    lowered: list[Any] = field(default_factory=list)
    raised: list[Any] = field(default_factory=list)

    @property
    def begins(self) -> list[Any]:
        """Changes and starts in the order in which they are done."""
        return [*self.lowered, *self.raised, *self.starts]


def start_text(gpus: Mapping[str, int], launch: Any, power_w: float) -> str:
    """Describe a start: its GPUs by node, its settings, and its watts."""
    text = ", ".join(f"{count} of {node}" for node, count in gpus.items())
    clock = f" at {launch.frequency_mhz} MHz" if launch.frequency_mhz is not None else ""
    limit = f" at {launch.power_limit_w:g} W each" if launch.power_limit_w is not None else ""
    return f"GPUs {text}{clock}{limit}, {power_w:,.0f} W"


def require_work(objective: str) -> None:
    """Refuse objectives that do work only under a least goodput, which nobody states here."""
    if objective in SAVING:
        text = "lets every job wait that may; choose one that values work, under a cap of power"
        raise InputError([f"objective: '{objective}' {text}"])


def tell(
    session: RecordedSession,
    cluster: Mapping[str, Any],
    jobs: list[dict[str, Any]],
    *,
    cap_w: float,
    **site: Any,
) -> dict[str, str]:
    """Tell a session of everything as it is now; return the jobs that were taken out, and what is wrong.

    A job that cannot be understood is taken out of `jobs` where it waits; one that runs is told as what it
    was launched as. Where not even that can be told it is taken out, too, and is others' load. `site` is what
    else a session is told, as the objective. An `InputError` for anything else.
    """
    if before := session.session.to_instance().by_column().names:
        session.remove(before)
    power_w = None if math.isinf(cap_w) else max(cap_w, 1e-3)
    session.update(cluster=cluster, power_w=power_w, **site)
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
    """A running job without what its user says of it: what it has now is its one option."""
    table, current = job["options"], job["current"]
    own = {name: value for name, value in current.items() if name in ("gpus", "pool", *SETTINGS)}
    rows = zip(*(table.get(name, [value] * len(table["gpus"])) for name, value in own.items()), strict=True)
    place = [*rows, tuple(own.values())].index(tuple(own.values()))
    # What it has may be none of the table's rows: then it draws as much as the largest of them.
    power_w = [*table["power_w"], max(table["power_w"])][place]
    kept = {name: job[name] for name in ("name", "current", "preemptible", "tenant") if name in job}
    options = {name: [value] for name, value in own.items()} | {"power_w": [power_w], "rate": [1.0]}
    return {**kept, "pools": [current["pool"]], "options": options}


def _refused(session: RecordedSession, jobs: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Tell a session of jobs, by halves where that fails; yield the names of those refused, and why."""
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
