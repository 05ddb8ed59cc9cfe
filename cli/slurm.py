"""``wattsched slurm``: decide what a Slurm cluster runs, round after round, and do it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattsched.cli.clusters import SECONDS, SHARED, ClusterRounds
from wattsched.cli.outputs import Command, Output
from wattsched.cli.parameters import Number, filling, refuse_given

if TYPE_CHECKING:
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.options import Stated
    from wattsched.adapters.slurm.loop import Policy, Rounds
    from wattsched.serve.journal import Journal


@dataclass(frozen=True)
class SlurmRounds(ClusterRounds):
    """Options of ``wattsched slurm``, and what it does in its own way.

    Parameters
    ----------
    apply : bool
        Release, pin and requeue jobs.
    give_back : bool
        Leave our jobs to Slurm: release what waits, and end.
    change_cost : float
        Price of a running job that stops, moves or changes, in the unit of the objective.
    snapshot : str, optional
        Decide of a saved snapshot, without Slurm.
    record : str, optional
        Save what Slurm says (.json).
    explain : float
        Seconds of a round to look for when jobs start, and a smaller size with which they would now.
    start_within : float
        Seconds after which a released job that has not started is held again.
    recount : float, optional
        Have Slurm count its GPUs anew (scontrol reconfigure) where it has counted some as used for S seconds
        that no job has. It reads slurm.conf again, too.
    accounts, qos, partitions : tuple of str
        Its jobs are ours.
    settings : str, optional
        Files with clocks and limits for the prolog, and for agents on the nodes; they report there.
    """

    explain: float = 2.0
    start_within: float = 60.0
    recount: float | None = None
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    settings: str | None = None

    def require_sense(self) -> None:
        """Refuse options that do not go together."""
        super().require_sense()
        if not self.changes:
            refuse_given(("recount",), "needs --apply: in shadow mode Slurm is asked for nothing")
        if self.snapshot is not None:
            refuse_given(
                ("settings",), "is not read: a snapshot has the agents' reports with which --record saved it"
            )

    def policy(self) -> Policy:
        """Return the policy by which rounds are decided and done."""
        from wattsched.adapters.options import stated_in
        from wattsched.adapters.slurm.loop import Policy
        from wattsched.adapters.slurm.options import Ours, SiteOptions

        return Policy(
            ours=Ours(self.accounts, self.qos, self.partitions),
            options=stated_in(self.options, SiteOptions),
            explain_s=self.explain,
            start_s=self.start_within,
            recount_s=self.recount,
            **self.policy_fields,
        )

    def stated_names(self, rounds: Rounds) -> list[Stated]:
        """Return the names that are stated of the cluster, and those that it has."""
        from wattsched.adapters.slurm.options import stated_names
        from wattsched.adapters.slurm.snapshot import accounting

        known = accounting() if self.snapshot is None else None
        return stated_names(rounds.seen(), rounds.policy.options, rounds.policy.ours, known)

    def rounds(self, policy: Policy, budget: Budget, journal: Journal, stack: ExitStack) -> Rounds:
        """Return the rounds on the cluster; the stack holds the lease."""
        from wattsched.adapters.slurm import snapshot
        from wattsched.adapters.slurm.actions import Actions
        from wattsched.adapters.slurm.lease import Lease, identity_of
        from wattsched.adapters.slurm.loop import Rounds
        from wattsched.serve.permissions import published_folder

        settings = None if self.settings is None else Path(self.settings)
        if settings is not None and self.changes:
            published_folder(settings)
        actions = partial(Actions, settings=settings)
        if self.changes and self.journal is not None:
            lease = stack.enter_context(Lease(identity_of(self.journal), self.tell))
            actions = partial(actions, require=lease.require)
        look = self.looking(snapshot, partial(snapshot.take, settings=settings))
        return Rounds(policy, budget, journal, look, actions)


def _ours(name: str) -> dict[str, object]:
    return {"name": name, "metavar": "NAME", "multiple": True}


@click.command("slurm", cls=Command)
@filling(
    "rounds",
    SlurmRounds,
    **SHARED,
    explain={"type": Number(0, most=3_600), "metavar": "S"},
    start_within=SECONDS,
    recount=SECONDS,
    accounts=_ours("--account"),
    qos=_ours("--qos"),
    partitions=_ours("--partition"),
    settings={"type": Output(), "metavar": "DIR"},
)
def command(rounds: SlurmRounds) -> int:
    """Decide what a Slurm cluster runs, round after round.

    Ours are jobs that were submitted held with a comment such as '{"wattsched": {}}', or are of one of the
    accounts, QOS or partitions. All others are left alone and count as load.
    """
    return rounds.run()
