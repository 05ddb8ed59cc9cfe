"""Rounds on a real cluster: the options that their commands share, and the course that they take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import click

from wattsched.cli.completion import named
from wattsched.cli.failures import NO_SOLUTION, BadInput
from wattsched.cli.following import follow, measured, stopping, tell_given_back
from wattsched.cli.outputs import Output
from wattsched.cli.parameters import JOURNAL_QUOTA, FileName, Number, option_name
from wattsched.inputs import printable

if TYPE_CHECKING:
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.loop import RoundLoop
    from wattsched.adapters.options import Stated
    from wattsched.serve.journal import Journal

SECONDS = {"type": Number(above=0, most=86_400), "metavar": "S"}
FILE = {"type": FileName(), "metavar": "FILE"}

SHARED: dict[str, dict[str, Any]] = {
    "power_w": {"type": Number(above=0), "metavar": "W"},
    "budget": FILE,
    "options": FILE,
    **named("objective"),
    "every": SECONDS,
    "deadline": SECONDS,
    "change_cost": {"type": Number(0), "metavar": "C"},
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
    objective : str
        What is optimised.
    every : float
        Seconds from round to round.
    deadline : float
        Seconds for a decision.
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
    objective: str = "work-value"
    every: float = 30.0
    deadline: float = 5.0
    change_cost: float = 0.0
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
    def decided(self) -> dict[str, Any]:
        """Fields that the policies of all schedulers have in common."""
        return {
            "objective": self.objective,
            "every_s": self.every,
            "deadline_s": self.deadline,
            "change_cost": self.change_cost,
            "apply": self.changes,
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
        from wattsched.adapters.options import require_names
        from wattsched.serve.journal import Journal

        policy = self.policy()
        ahead_s = self.every + self.deadline + 30.0
        budget = self.made_budget(ahead_s=ahead_s, fail_safe_w=policy.options.fail_safe_w)
        if self.snapshot is None:
            budget.cap()  # a file that cannot be read is refused before anything is done
        folder = stack.enter_context(TemporaryDirectory(prefix="wattsched-"))
        path = Path(folder) / "journal" if self.journal is None else Path(self.journal)
        journal = stack.enter_context(Journal(path, quota_mb=self.journal_quota))
        stop = Event()
        stack.enter_context(stopping(stop, journal))
        rounds = self.rounds(policy, budget, journal, stack)
        rounds.stop = stop
        if self.snapshot is not None:
            budget.stand_at(rounds.seen().time_s)
        if self.changes or self.single:
            require_names(self.stated_names(rounds), self.tell, apply=self.apply)
        if self.give_back:
            return tell_given_back(rounds.give_back(), rounds.job)
        note = stack.enter_context(measured(self.metrics, journal))
        return follow(rounds, once=self.single, as_json=self.as_json, do_apply=self.apply, note=note)

    def looking(self, files: Any, take: Callable[..., Any]) -> Callable[..., Any]:
        """Take snapshots, or load the one that was saved, and save them where that was asked for."""

        def look(*arguments: Any) -> Any:
            found = take(*arguments) if self.snapshot is None else files.load(self.snapshot)
            if self.record is not None:
                files.save(self.record, found)
            return found

        return look

    def tell(self, text: str) -> None:
        """Tell an operator."""
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
        """Return the cap, read from where the options say it is."""
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
