"""State that a policy sees at a moment of a replay, decision that it returns, and context it is made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT, Configurations
from wattsched.replay.jobs.accounts import require_finite
from wattsched.replay.jobs.budget import Allowance, Budget
from wattsched.replay.jobs.caps import Caps
from wattsched.replay.jobs.pools import PoolState
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

REVIEWS = 288
"""Decisions per period of a budget at least, every five minutes of a day."""


@dataclass(frozen=True)
class Restarts:
    """Seconds that a running job loses when it gets other GPUs.

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
        require_finite("restarts", vars(self))


@dataclass(frozen=True)
class State:
    """The jobs in the system at a moment, in the order of their arrival.

    Attributes
    ----------
    jobs : int array, shape (n,)
        Numbers of the jobs in the trace.
    remaining : float array, shape (n,)
        Work left, above 0, as far as policies know it (`replay.jobs.knowledge`).
    row : int array, shape (n,)
        Configuration that each runs in, -1 for those that wait.
    ran : bool array, shape (n,)
        Which have run before; to start again costs them a restart.
    restarting_s : float array, shape (n,)
        Seconds until a running job that restarts works again.
    served_gpu_s : float array, shape (n,)
        GPU seconds that each has held.
    restart_s : float
        What a restart costs.
    pools : sequence of PoolState
        GPUs of each pool as they are now; not to be changed.
    allowance : Allowance, optional
        What the budget leaves now, where there is one.
    shared : int array, shape (n,), optional
        As `Decision.host`; None where no job shares GPUs.
    caps : Caps
        Power caps of the cluster.
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
    pools: Sequence[PoolState]
    allowance: Allowance | None = None
    shared: IntArray | None = None
    caps: Caps = field(default_factory=Caps)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def configurations(self) -> Configurations:
        """Configurations of all jobs of the trace."""
        return self.trace.configurations

    @cached_property
    def kind(self) -> IntArray:
        """Kind of each job."""
        return self.configurations.of_job[self.jobs]

    @cached_property
    def request(self) -> IntArray:
        """Rows that the users asked for, shape (n, n_pools)."""
        return self.trace.request[self.jobs]

    @cached_property
    def room_w(self) -> FloatArray:
        """Watts beyond the idle draw that all jobs together may draw now, under each cap."""
        return self.caps.room_w(self.time_s)

    def drawn_w(self, row: IntArray) -> FloatArray:
        """Watts under each cap that jobs in these rows, each alone on its GPUs, draw beyond idle."""
        runs = row[row != WAIT]
        return np.asarray(
            self.caps.use_w(self.configurations.pool[runs], self.trace.extra_w[runs]).sum(axis=0)
        )

    @property
    def hosts(self) -> IntArray:
        """Index of each job's host, as `shared`; -1 for all jobs where that is None."""
        return np.full(len(self), -1) if self.shared is None else self.shared

    @property
    def waits(self) -> BoolArray:
        """Mask of the jobs that wait."""
        return np.asarray(self.row == WAIT)

    def delay_s(self, owner: IntArray, rows: IntArray) -> FloatArray:
        """Seconds before jobs, by their index in `jobs`, work in rows of theirs."""
        again = np.where(self.ran[owner], self.restart_s, 0.0)
        same = self.trace.same_gpus(self.row[owner], rows)
        return np.where(same, self.restarting_s[owner], again)


@dataclass(frozen=True)
class Decision:
    """Configurations for all jobs of a state.

    Attributes
    ----------
    row : int array, shape (n,)
        Configuration of each job, -1 for a job that is to wait.
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

    def sets(self, state: State) -> IntArray:
        """Number of the set of jobs that each runs with, -1 where it waits; shape (n,)."""
        host = np.full(len(state), -1) if self.host is None else self.host
        return np.where(self.row == WAIT, -1, state.jobs[np.where(host < 0, np.arange(len(state)), host)])


class Policy(Protocol):
    """A scheduling policy; `restart_s` is the time that a job loses by a restart under its mechanism."""

    restart_s: float

    def decide(self, state: State) -> Decision:
        """Choose a row for every job; together they must fit into the pools' blocks."""
        ...


@dataclass(frozen=True)
class PolicyContext:
    """Setting that policies are made for.

    Attributes
    ----------
    round_s : float
        Seconds between the moments at which decisions are possible; 0: at any moment.
    gap : float
        Relative gap that a round's program is solved to.
    budget : Budget, optional
        Amounts that the cluster may spend in every period.
    least_price : float
        Seconds of completion time, summed over jobs, that a joule is worth at least (with a budget: a unit of
        its quantity).
    caps : Caps
        Power caps of the cluster.
    """

    trace: Trace
    restarts: Restarts = Restarts()
    round_s: float = 0.0
    gap: float = 5e-3
    budget: Budget | None = None
    least_price: float = 0.0
    caps: Caps = field(default_factory=Caps)

    def next_review_s(self, time_s: float) -> float:
        """Return the time at which a policy that keeps to the budget looks at it again."""
        assert self.budget is not None
        return time_s + max(self.round_s, self.budget.period_s / REVIEWS)


def require_valid(state: State, decision: Decision, policy: str) -> None:
    """Refuse a decision that is none for this state.

    Raises
    ------
    ValueError
        When it is not made of arrays and numbers as `Decision` says, there is not one row of its kind for
        every job, jobs run that no budget is left for, or share GPUs that are not the same for both.
    """
    _require_types(decision, policy)
    row, start = decision.row, state.configurations.start
    if row.shape != state.jobs.shape:
        raise ValueError(f"policy '{policy}' gives {row.shape} rows for {len(state)} jobs")
    wrong = (row != WAIT) & ((row < start[state.kind]) | (row >= start[state.kind + 1]))
    if wrong.any():
        job = state.trace.names[state.jobs[wrong][0]]
        raise ValueError(f"policy '{policy}' gives job '{job}' a row of another kind")
    if state.allowance is not None and state.allowance.exhausted and np.any(row != WAIT):
        raise ValueError(f"policy '{policy}' runs jobs at {state.time_s:g} s, when the budget is spent")
    if decision.host is not None:
        _require_hosts(state, row, decision.host, policy)


def _require_types(decision: Decision, policy: str) -> None:
    if not isinstance(decision, Decision):
        raise ValueError(f"policy '{policy}' decides {type(decision).__name__}, not a Decision")
    arrays = {"row": decision.row, "host": decision.row if decision.host is None else decision.host}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "i":
            raise ValueError(f"policy '{policy}': {name} must be an array of whole numbers")
    if not isinstance(decision.gap, float | int | np.number):
        raise ValueError(f"policy '{policy}': gap must be a number, nan where there is none")
    if not isinstance(decision.again_s, float | int | np.number) or np.isnan(decision.again_s):
        raise ValueError(f"policy '{policy}': again_s must be a time, inf where there is none")


def _require_hosts(state: State, row: IntArray, host: IntArray, policy: str) -> None:
    n = len(state)
    if host.shape != row.shape:
        raise ValueError(f"policy '{policy}' gives {host.shape} hosts for {n} jobs")
    if np.any(host >= n):
        raise ValueError(f"policy '{policy}' gives host {host.max()}, there are {n} jobs")
    guests = np.flatnonzero(host >= 0)
    of = host[guests]
    names, rows = state.trace.names, state.configurations
    wrong = guests[(host[of] >= 0) | (of == guests)]
    if len(wrong):
        job, other = (names[state.jobs[i]] for i in (wrong[0], host[wrong[0]]))
        raise ValueError(f"policy '{policy}' lets job '{job}' share with '{other}', which is no host")
    # All guests of a host are held against the first of them that runs, the host itself before all.
    runs = np.flatnonzero(row != WAIT)
    leader = np.where(host < 0, np.arange(n), host)[runs]
    order = np.lexsort((runs != leader, leader))
    runs, leader = runs[order], leader[order]
    base = runs[np.searchsorted(leader, leader)]
    unlike = (rows.pool[row[runs]] != rows.pool[row[base]]) | (rows.gpus[row[runs]] != rows.gpus[row[base]])
    if unlike.any():
        job, other = (names[state.jobs[i[unlike][0]]] for i in (runs, base))
        raise ValueError(f"policy '{policy}' lets job '{job}' share GPUs with '{other}', which has others")
