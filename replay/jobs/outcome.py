"""What a replay leaves behind: a record of every job, of every round, and of the watts in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from wattsched.replay.jobs.accounts import Meter
from wattsched.replay.jobs.budget import Budget, Periods
from wattsched.replay.jobs.fragmentation import Fragmentation
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray, IntArray

V = TypeVar("V", int, float)


@dataclass
class JobRecords:
    """One entry per job of the trace.

    Attributes
    ----------
    first_start_s, end_s : float arrays
        Seconds on the trace's clock; inf where a job has not come so far.
    held_s : float array
        Seconds that the job held GPUs, restarts included.
    gpu_s, energy_j, carbon_g, done : float arrays
        GPU seconds, joules and grams of its GPUs, and work done.
    restarts, migrations, preemptions : int arrays
        Restarts with other GPUs or after a pause, moves to equal GPUs to make room, and times that it was
        stopped to wait.
    """

    first_start_s: FloatArray
    end_s: FloatArray
    held_s: FloatArray
    gpu_s: FloatArray
    energy_j: FloatArray
    carbon_g: FloatArray
    done: FloatArray
    restarts: IntArray
    migrations: IntArray
    preemptions: IntArray

    @classmethod
    def empty(cls, n: int) -> JobRecords:
        """Records of jobs that have not arrived."""
        return cls(
            first_start_s=np.full(n, np.inf),
            end_s=np.full(n, np.inf),
            held_s=np.zeros(n),
            gpu_s=np.zeros(n),
            energy_j=np.zeros(n),
            carbon_g=np.zeros(n),
            done=np.zeros(n),
            restarts=np.zeros(n, dtype=np.int64),
            migrations=np.zeros(n, dtype=np.int64),
            preemptions=np.zeros(n, dtype=np.int64),
        )


@dataclass
class Rounds:
    """One entry per decision.

    Attributes
    ----------
    time_s, decision_s, gap : list of float
        When, wall-clock seconds it took, certified relative gap (nan: none).
    running, waiting, busy_gpus : list of int
        After the decision.
    fragmentation : list of float
        Share of the free GPUs that are fragments (`Fragmentation`), after the decision.
    """

    time_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    busy_gpus: list[int] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)


@dataclass
class PowerLog:
    """Watts of the cluster from each time to the next.

    Attributes
    ----------
    time_s, power_w : list of float
    """

    time_s: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)

    def add(self, time_s: float, power_w: float) -> None:
        """Append, leaving out what does not change or last."""
        _add(self.time_s, self.power_w, time_s, power_w)


@dataclass
class BusyLog:
    """GPUs that jobs hold from each time to the next, also between rounds.

    Attributes
    ----------
    time_s : list of float
    gpus : list of int
    """

    time_s: list[float] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)

    def add(self, time_s: float, gpus: int) -> None:
        """Append, leaving out what does not change or last."""
        _add(self.time_s, self.gpus, time_s, gpus)


def _add(times: list[float], values: list[V], time_s: float, value: V) -> None:
    if times and times[-1] == time_s:
        times.pop()
        values.pop()
    if not values or values[-1] != value:
        times.append(time_s)
        values.append(value)


@dataclass(frozen=True)
class Outcome:
    """A replay that has come to its end.

    Attributes
    ----------
    trace : Trace
    policy : str
    begin_s, end_s : float
        First arrival and last completion.
    budget : Budget, optional
    periods : Periods, optional
        What was spent of it.
    """

    trace: Trace
    policy: str
    jobs: JobRecords
    rounds: Rounds
    meter: Meter
    power: PowerLog
    busy: BusyLog
    fragmentation: Fragmentation
    begin_s: float
    end_s: float
    budget: Budget | None = None
    periods: Periods | None = None
