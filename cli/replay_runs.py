"""Replays one after the other: a policy on a trace, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattsched.cli.failures import BadInput, refusing

if TYPE_CHECKING:
    from wattsched.cli.replay_journal import Journal
    from wattsched.replay.jobs.accounts import Carbon, Sleep
    from wattsched.replay.jobs.budget import Budget
    from wattsched.replay.jobs.outcome import Outcome
    from wattsched.replay.jobs.policy import Policy, PolicyContext, Restarts
    from wattsched.replay.jobs.simulation import Replay
    from wattsched.replay.jobs.trace import Trace

Progress = Callable[[float, int], None]


@dataclass(frozen=True)
class Run:
    """A seed's trace, and how it is replayed under any policy."""

    seed: int
    trace: Trace
    carbon: Carbon
    restarts: Restarts
    round_s: float
    gap: float
    sleep: Sleep | None
    budget: Budget | None = None
    least_price: float = 0.0

    @property
    def context(self) -> PolicyContext:
        """What policies are made for."""
        from wattsched.replay.jobs.policy import PolicyContext

        return PolicyContext(self.trace, self.restarts, self.round_s, self.gap, self.budget, self.least_price)

    def policy(self, name: str) -> Policy:
        """Make a policy for the trace; refuse one that does not take the cluster."""
        from wattsched.replay.jobs.policies import policy_of

        with refusing():
            return policy_of(name, self.context)

    def replay(self, name: str) -> Replay:
        """Make the replay under a policy; refuse a budget or a sleep that does not suit the cluster."""
        from wattsched.replay.jobs.simulation import Replay

        policy = self.policy(name)
        with refusing(options={"sleep": "--sleep-power"}):
            return Replay(
                self.trace,
                policy,
                name=name,
                round_s=self.round_s,
                carbon=self.carbon,
                sleep=self.sleep,
                budget=self.budget,
            )

    def under(self, name: str, journal: Journal | None) -> Outcome:
        """Replay the trace under a policy, from where the journal has it."""
        replay = self.replay(name)
        if journal is None:
            return self._stepped(replay, lambda _: None)
        if (known := journal.complete(replay, self.seed)) is not None:
            return known
        replay = journal.begun(replay, self.seed)
        outcome = self._stepped(replay, journal.checkpoints(replay, self.seed).keep)
        journal.record(replay, self.seed, outcome)
        return outcome

    def _stepped(self, replay: Replay, keep: Callable[[Replay], None]) -> Outcome:
        with _bar(f"{replay.name}, seed {self.seed}", len(self.trace)) as progress:
            try:
                while replay.step():
                    progress(replay.time_s, replay.complete)
                    keep(replay)
            except ValueError as error:
                raise BadInput(str(error)) from None
        return replay.outcome()


@contextmanager
def _bar(what: str, jobs: int) -> Iterator[Progress]:
    """Progress bar over complete jobs on standard error, on a terminal only."""
    from wattsched.report.terminal import counted_progress

    with counted_progress() as bar:
        if bar is None:
            yield lambda time_s, complete: None
            return
        task = bar.add_task(what, total=jobs)
        yield lambda time_s, complete: bar.update(task, completed=complete)
