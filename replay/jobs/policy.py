"""What a policy sees at a moment of a replay, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from wattsched.replay.jobs.budget import Allowance, Budget
from wattsched.replay.jobs.ground import Ground
from wattsched.replay.jobs.menus import WAITS, Menus
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Restarts:
    """What it costs to give a running job other GPUs.

    Attributes
    ----------
    process_s : float
        The training process stops and starts again inside its pod (SideCar).
    pod_s : float
        The pod is terminated, scheduled and created again.

    Raises
    ------
    ValueError
        For negative seconds.
    """

    process_s: float = 10.0
    pod_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("process_s", "pod_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"restarts: {name} must be at least 0, got {getattr(self, name):g}")


@dataclass(frozen=True)
class View:
    """The jobs in the system at a moment, in the order of their arrival.

    Attributes
    ----------
    time_s : float
    trace : Trace
    jobs : int array, shape (n,)
        Numbers of the jobs in the trace.
    remaining : float array, shape (n,)
        Work left, above 0.
    row : int array, shape (n,)
        Row that each runs in, -1 for those that wait.
    ran : bool array, shape (n,)
        Which have run before; to start again costs them a restart.
    restarting_s : float array, shape (n,)
        Seconds until a running job that restarts works again.
    served_gpu_s : float array, shape (n,)
        GPU seconds that each has held.
    restart_s : float
        What a restart costs.
    grounds : sequence of Ground
        GPUs of each pool as they are now; not to be changed.
    allowance : Allowance, optional
        What the budget leaves now, where there is one.
    shared : int array, shape (n,), optional
        As `Decision.host`; None where no job shares GPUs.
    """

    time_s: float
    trace: Trace
    jobs: IntArray
    remaining: FloatArray
    row: IntArray
    ran: BoolArray
    restarting_s: FloatArray
    served_gpu_s: FloatArray
    restart_s: float
    grounds: Sequence[Ground]
    allowance: Allowance | None = None
    shared: IntArray | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def menus(self) -> Menus:
        """Configurations of all jobs of the trace."""
        return self.trace.menus

    @cached_property
    def kind(self) -> IntArray:
        """Kind of each job."""
        return self.menus.of_job[self.jobs]

    @cached_property
    def request(self) -> IntArray:
        """Rows that the users asked for, shape (n, n_pools)."""
        return self.trace.request[self.jobs]

    @property
    def hosts(self) -> IntArray:
        """As `shared`, of no job where that is None."""
        return np.full(len(self), -1) if self.shared is None else self.shared

    @property
    def waits(self) -> BoolArray:
        """Which jobs wait."""
        return np.asarray(self.row == WAITS)

    def completion_s(self, owner: IntArray, rows: IntArray) -> FloatArray:
        """Seconds until jobs are complete in rows of theirs, restarts included.

        Parameters
        ----------
        owner : int array
            Index into `jobs`.
        rows : int array
        """
        return self.remaining[owner] / self.menus.rate[rows] + self.delay_s(owner, rows)

    def delay_s(self, owner: IntArray, rows: IntArray) -> FloatArray:
        """Seconds before jobs work in rows of theirs."""
        menus, now = self.menus, self.row[owner]
        same = (menus.gpus[now] == menus.gpus[rows]) & (menus.pool[now] == menus.pool[rows])
        batch = menus.batch_size
        same &= (batch[now] == batch[rows]) | (np.isnan(batch[now]) & np.isnan(batch[rows]))
        same &= now != WAITS
        again = np.where(self.ran[owner], self.restart_s, 0.0)
        return np.where(same, self.restarting_s[owner], again)


@dataclass(frozen=True)
class Decision:
    """Rows for all jobs of a view.

    Attributes
    ----------
    row : int array, shape (n,)
        -1 for a job that is to wait.
    gap : float
        Certified relative gap of the round's program; nan for a rule without a bound.
    again_s : float
        Time at which the policy wants to decide again even if nothing changed.
    host : int array, shape (n,), optional
        Index of the job whose GPUs a job shares, -1 for none. The two need the same pool and GPU count.
        Guests of a host that waits share with one another.
    short : bool
        Whether the budget keeps jobs from drawing more.
    """

    row: IntArray
    gap: float = np.nan
    again_s: float = np.inf
    host: IntArray | None = None
    short: bool = False

    def sets(self, view: View) -> IntArray:
        """Number of the set of jobs that each runs with, -1 where it waits; shape (n,)."""
        host = np.full(len(view), -1) if self.host is None else self.host
        return np.where(self.row == WAITS, -1, view.jobs[np.where(host < 0, np.arange(len(view)), host)])


class Policy(Protocol):
    """A scheduling policy.

    Attributes
    ----------
    restart_s : float
        What a restart costs under its mechanism.
    """

    restart_s: float

    def decide(self, view: View) -> Decision:
        """Choose a row for every job; together they must fit into the pools' blocks."""
        ...


@dataclass(frozen=True)
class Setting:
    """What policies are made for.

    Attributes
    ----------
    trace : Trace
    restarts : Restarts
    round_s : float
        Seconds between the moments at which decisions are possible; 0: at any moment.
    gap : float
        Relative gap that a round's program is solved to.
    budget : Budget, optional
        What the cluster may spend in every period.
    least_price : float
        Seconds of completion time, summed over jobs, that a joule is worth at least (with a budget: a unit of
        its quantity).
    """

    trace: Trace
    restarts: Restarts = Restarts()
    round_s: float = 0.0
    gap: float = 5e-3
    budget: Budget | None = None
    least_price: float = 0.0
