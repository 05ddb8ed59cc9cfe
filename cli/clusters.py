"""Rounds on a real cluster: options that their commands share, their course, and what is told of each."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import click

from wattsched.cli.completion import named
from wattsched.cli.failures import NO_SOLUTION, BadInput, reason
from wattsched.cli.outputs import Output, require_extra
from wattsched.cli.parameters import JOURNAL_QUOTA, FileName, Number, Whole, option_name
from wattsched.environment.interrupts import ending_soon
from wattsched.reading.inputs import printable

if TYPE_CHECKING:
    from socket import socket

    from wattsched.adapters.budget import Budget
    from wattsched.adapters.correction import Correction
    from wattsched.adapters.loop import RoundLoop
    from wattsched.adapters.options import Stated
    from wattsched.adapters.rounds import Report
    from wattsched.serve.journal import Journal

SECONDS = {"type": Number(above=0, most=86_400), "metavar": "S"}
FILE = {"type": FileName(), "metavar": "FILE"}

SHARED: dict[str, dict[str, Any]] = {
    "power_w": {"type": Number(above=0), "metavar": "W"},
    "budget": FILE,
    "options": FILE,
    "readings": {"metavar": "FILE|DIR|URL"},
    **named("objective"),
    "every": SECONDS,
    "deadline": SECONDS,
    "change_cost": {"type": Number(0), "metavar": "C"},
    "lasting": {"type": Number(0, most=86_400), "metavar": "S"},
    "reasons": {"type": Whole(0, 10_000), "metavar": "N"},
    "journal": {"metavar": "FILE"},
    "journal_quota": JOURNAL_QUOTA,
    "metrics": {"metavar": "[HOST:]PORT"},
    "snapshot": FILE,
    "record": {"type": Output((".json",)), "metavar": "FILE"},
    "as_json": {"name": "--json"},
}
"""Arguments of `parameters.filling` for the options of `ClusterRounds`."""


@dataclass(frozen=True)
class ClusterRounds(ABC):
    """Options of a command that runs rounds on a cluster, and the course of the command.

    Parameters
    ----------
    shadow : bool
        Tell what would be done, and do nothing.
    once : bool
        One round, and no more.
    power_w : float, optional
        Watts that the site may draw.
    budget : str, optional
        File with the watts and announced changes (.json), read anew in every round.
    options : str, optional
        File of the site: watts of GPU types, options of jobs (.json).
    readings : str, optional
        Measured watts: a CSV file that grows, a folder of agents' reports, or a query of Prometheus.
    objective : str
        What is optimised.
    every : float
        Seconds from round to round.
    deadline : float
        Seconds for a decision.
    lasting : float
        Start nothing that a cut announced for the next S seconds would stop.
    reasons : int
        Write why jobs wait where their owners see it, N of them in a round at most; 0 writes none.
    journal : str, optional
        Write what was decided and done (SQLite).
    metrics : str, optional
        Figures of the rounds for Prometheus, at /metrics.
    as_json : bool
        A line of JSON for each round on standard output.
    """

    not_given_back: ClassVar[tuple[str, ...]] = ("shadow", "apply")
    """Options that --give-back cannot be combined with."""
    caps: ClassVar[tuple[str, ...]] = ("power_w", "budget")
    """Options that state the watts, of which one may be given."""

    shadow: bool = False
    apply: bool = False
    give_back: bool = False
    once: bool = False
    power_w: float | None = None
    budget: str | None = None
    options: str | None = None
    readings: str | None = None
    objective: str = "work-value"
    every: float = 30.0
    deadline: float = 5.0
    change_cost: float = 0.0
    lasting: float = 900.0
    reasons: int = 20
    journal: str | None = None
    journal_quota: float = 1000.0
    metrics: str | None = None
    snapshot: str | None = None
    record: str | None = None
    as_json: bool = False

    @property
    def changes(self) -> bool:
        """True if the cluster is changed."""
        return self.apply or self.give_back

    @property
    def single(self) -> bool:
        """True if there is only one round."""
        return self.once or self.snapshot is not None

    @property
    def policy_fields(self) -> dict[str, Any]:
        """Fields that the policies of all schedulers have in common."""
        return {
            "objective": self.objective,
            "every_s": self.every,
            "deadline_s": self.deadline,
            "change_cost": self.change_cost,
            "apply": self.changes,
            "reasons": self.reasons,
        }

    def run(self) -> int:
        """Run rounds until a signal ends them, and return the exit code."""
        from wattsched.adapters.rounds import UnansweredError, require_work

        self.require_sense()
        require_work(self.objective)
        try:
            with ExitStack() as stack:
                return self._run(stack)
        except UnansweredError as error:
            click.echo(f"no round: {printable(str(error))}", err=True)
            return NO_SOLUTION

    def _run(self, stack: ExitStack) -> int:
        """Run rounds, or give back all jobs; `stack` closes the journal and what listens."""
        from wattsched.adapters.options import require_names
        from wattsched.serve.journal import Journal

        policy = self.policy()
        ahead_s = self.every + self.deadline + 30.0  # a round ahead, and 30 s in which jobs stop
        budget = self.made_budget(
            ahead_s=ahead_s,
            lasting_s=self.lasting,
            fail_safe_w=policy.options.fail_safe_w,
            domains=[domain.name for domain in policy.options.power_domains],
        )
        if self.snapshot is None:
            budget.cap()  # a file that cannot be read is refused before anything is done
        folder = stack.enter_context(TemporaryDirectory(prefix="wattsched-"))
        path = Path(folder) / "journal" if self.journal is None else Path(self.journal)
        journal = stack.enter_context(Journal(path, quota_mb=self.journal_quota))
        stop = Event()
        stack.enter_context(stopping(stop, journal))
        rounds = self.rounds(policy, budget, journal, stack)
        rounds.stop = stop
        rounds.correction = self.correction(policy.options.watts_error)
        if self.snapshot is not None:
            budget.stand_at(rounds.seen().time_s)
        if self.changes or self.single:
            require_names(self.stated_names(rounds), self.tell, apply=self.apply)
        if self.give_back:
            return tell_given_back(rounds.give_back(), rounds.job)
        note = stack.enter_context(measured(self.metrics, journal))
        return follow(rounds, once=self.single, as_json=self.as_json, do_apply=self.apply, note=note)

    def correction(self, error: float | None) -> Correction | None:
        """Return what corrects watts by readings, or keeps a margin for the error that the site states."""
        from wattsched.adapters.correction import ERROR, Correction
        from wattsched.adapters.readings import Bounded, source_of

        if self.readings is not None:
            return Correction(error or ERROR, Bounded(source_of(self.readings)))
        return None if error is None else Correction(error)

    def looking(self, files: Any, take: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes snapshots with `take`, or loads the saved one, and saves them for --record.

        `files` is the module that loads and saves them.
        """

        def look(*arguments: Any) -> Any:
            found = take(*arguments) if self.snapshot is None else files.load(self.snapshot)
            if self.record is not None:
                files.save(self.record, found)
            return found

        return look

    def tell(self, text: str) -> None:
        """Say a text on standard error."""
        click.echo(text, err=True)

    def require_sense(self) -> None:
        """Refuse options that do not go together."""
        if self.give_back and any(getattr(self, name) for name in self.not_given_back):
            *others, last = map(option_name, self.not_given_back)
            raise BadInput(f"--give-back: cannot be combined with {', '.join(others)} or {last}")
        if self.shadow == self.changes:
            raise BadInput("give one of --shadow, which changes nothing, and --apply")
        if self.changes and self.snapshot is not None:
            raise BadInput("--snapshot: a saved snapshot can only be looked at, with --shadow")
        if self.changes and self.journal is None:
            option = "--give-back" if self.give_back else "--apply"
            raise BadInput(f"{option} needs --journal FILE, which keeps what was done")
        if len(caps := [name for name in self.caps if getattr(self, name) is not None]) > 1:
            first, second = map(option_name, caps[:2])
            raise BadInput(f"{first}: cannot be combined with {second}, which states the watts")

    def made_budget(self, **limits: Any) -> Budget:
        """Return the budget that reads the cap where the options say it is; `limits` as for `Budget`."""
        from wattsched.adapters.budget import Budget

        return Budget(self.power_w, self.budget, **limits)

    @abstractmethod
    def policy(self) -> Any:
        """Return the policy by which rounds are decided and done."""

    @abstractmethod
    def stated_names(self, rounds: Any) -> list[Stated]:
        """Return the names that are stated of the cluster, and those that it has."""

    @abstractmethod
    def rounds(self, policy: Any, budget: Budget, journal: Journal, stack: ExitStack) -> RoundLoop[Any]:
        """Return the rounds on the cluster; the stack holds what they need."""


_COLUMNS = 80
"""Columns of the line of a round; what it leaves out is in JSON."""

_LASTING = ("postpone", "wait")
"""Actions that last from round to round; all others are done once."""

_MANY, _NAMED = 20, 3
"""Jobs with the same reason of which each has a line, and those that are named where they are more."""

_LOG = 10_000
"""Columns where standard error is a log, of which a line is one thing that happened."""

Jobs = Mapping[str, Mapping[Any, str]]
"""Action -> the jobs that it is done to, and how."""


@contextmanager
def stopping(stop: Event, journal: Journal) -> Iterator[None]:
    """End after the action in progress on SIGINT and SIGTERM, and a decision with what it has."""

    def end() -> None:
        stop.set()
        journal.cancel()

    with ending_soon(end):
        yield


@contextmanager
def listening_at(option: str, at: str) -> Iterator[socket]:
    """A socket at ``[HOST:]PORT``, this machine by default."""
    from wattsched.serve.server import listening

    host, _, port = at.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise BadInput(f"{option}: must be [HOST:]PORT, got '{at}'")
    try:
        bound = listening(host, int(port))
    except OSError as error:
        raise BadInput(f"{option}: cannot listen on {host}, port {port}: {reason(error)}") from None
    with bound:
        click.echo(f"Listening on {host}, port {bound.getsockname()[1]}", err=True)
        yield bound


@contextmanager
def measured(at: str | None, journal: Journal) -> Iterator[Callable[[Any], None]]:
    """Answer Prometheus at ``[HOST:]PORT``, if it is given; yields a callable that notes a round."""
    if at is None:
        yield lambda _: None
        return
    require_extra("--metrics", "serve")
    from wattsched.adapters.measured import RoundMetrics
    from wattsched.serve.app import create
    from wattsched.serve.server import served_beside

    app = create(journal, fixed=True, sessions=False)
    with listening_at("--metrics", at) as bound, served_beside(app, bound):
        yield RoundMetrics(app.state.service.metrics).note


def follow(
    rounds: Iterable[Report | Exception],
    *,
    once: bool,
    as_json: bool,
    do_apply: bool,
    note: Callable[[Report | Exception], None] = lambda _: None,
) -> int:
    """Tell of each round, and what it did to which jobs; the exit code, of the last one.

    Why a job waits, an alarm and a note are told when they are news, and not again in each round. With `once`
    there is one round, and its `InputError` is raised. `note` is called with each report or exception.
    """
    from wattsched.adapters.measured import notify
    from wattsched.instances.errors import InputError

    code, noted, alarmed, before = 0, list[str](), list[str](), dict[str, dict[Any, str]]()
    for told in rounds:
        note(told)
        notify()
        if isinstance(told, Exception):
            if once and isinstance(told, InputError):
                raise told
            code = NO_SOLUTION
            click.echo(f"no round: {printable(str(told))}", err=True)
            document: dict[str, Any] = {"error": str(told), "alarms": [str(told)]}
        else:
            code = 0
            jobs = told.jobs
            notes = [note for note in told.notes if note not in noted]
            news = {} if as_json else _news(jobs, before, do_apply)
            alarms = [alarm for alarm in told.alarms if alarm not in alarmed]
            _tell(told, news, alarms, notes)
            before, noted, alarmed = jobs, told.notes, told.alarms
            document = told.document()
        if as_json:
            click.echo(json.dumps(document))
            sys.stdout.flush()
        if once:
            break
    return code


def tell_given_back(jobs: Mapping[Any, str], kind: str = "") -> int:
    """Tell of jobs that are not ours any more, and those that could not be given back; the exit code.

    By job why it could not, empty where it was given back; `kind` goes before the names.
    """
    refused = {name: why for name, why in jobs.items() if why}
    for name, why in refused.items():
        click.echo(f"{kind}{name} was not given back: {why}", err=True)
    click.echo(f"given back: {len(jobs) - len(refused)}", err=True)
    return NO_SOLUTION if refused else 0


def _news(jobs: Jobs, before: Jobs, do_apply: bool) -> Jobs:
    """Return the actions to report: all that were done, but lasting or merely planned ones only once."""
    return {
        what: {
            name: how
            for name, how in some.items()
            if (do_apply and what not in _LASTING) or before.get(what, {}).get(name) != how
        }
        for what, some in jobs.items()
    }


def _together(jobs: Mapping[Any, str]) -> Iterator[tuple[str, str]]:
    """Yield jobs and their reasons; many jobs with the same reason are one entry of three names."""
    counts, told = Counter(jobs.values()), set[str]()
    for name, how in jobs.items():
        if counts[how] <= _MANY:
            yield str(name), how
        elif how not in told:
            told.add(how)
            first = [str(one) for one, why in jobs.items() if why == how][:_NAMED]
            yield f"{', '.join(first)} and {counts[how] - _NAMED:,} others", how


def _tell(report: Report, news: Jobs, alarms: list[str], notes: list[str]) -> None:
    """Print the line of a round on standard error, and below it what is new of jobs, alarms and notes."""
    from wattsched.report.terminal import console, line
    from wattsched.report.wording import gap_text

    out = console(stderr=True)
    if not out.is_terminal:
        out.width = _LOG
    plus, *minus = (len(report.jobs.get(action, ())) for action in ("start", "stop", "hold again"))
    changed = f" ~{len(report.changed):,}" if report.changed else ""
    counts = f": {report.running:,} run, {report.queued:,} wait, +{plus} -{sum(minus)}{changed}; "
    watts = f"{report.power_w / 1000:,.2f}"
    if report.planned_w is not None:
        watts += f" -> {report.planned_w / 1000:,.2f}"
    watts += " kW" if report.cap_w is None else f" of {report.cap_w / 1000:,.2f} kW"
    drawn_w = report.power_w if report.planned_w is None else report.planned_w
    over = report.cap_w is not None and drawn_w > report.cap_w
    margin = f"margin {report.margin_w / 1000:,.2f} kW" if report.margin_w else ""
    read = "" if report.measured_w is None else f"measured {report.measured_w / 1000:,.2f} kW"
    gap = "" if report.gap is None else gap_text(report.gap)
    about = [margin, read, report.reason, gap, f"{report.took_s:.2f} s"]
    left = _COLUMNS - len(f"round {report.number}{counts}{watts}")
    for i in (3, 2, 4, 1, 0):  # the gap is left out first
        if sum(len(part) + 2 for part in about if part) > left:
            about[i] = ""
    line(
        out,
        (f"round {report.number}", "bold"),
        counts,
        (watts, "bold red" if over else "bold"),
        "".join(f"{'; ' if i == 0 else ', '}{part}" for i, part in enumerate(filter(None, about))),
    )
    for what, some in news.items():
        for names, how in _together(some):
            line(out, f"{what} {names}: {how}", indent=2)
    for alarm in alarms:
        line(out, ("ALARM", "bold red"), f": {alarm}", indent=2)
    for note in notes:
        line(out, ("note", "yellow"), f": {note}", indent=2)
