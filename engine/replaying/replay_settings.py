"""Settings of replays, and what all replays of one trace have in common."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from numbers import Real
from pathlib import Path
from typing import Literal

import numpy as np

from wattsched.instances.errors import naming, require_known, require_range
from wattsched.instances.signals import Signal, read_signal
from wattsched.instances.traces.carbon import CarbonTrace, read_carbon, shown, start_time, utc_time
from wattsched.instances.units import S_PER_DAY
from wattsched.reading.arguments import require_types
from wattsched.reading.clocks import LOCAL, moment_s
from wattsched.reading.inputs import echo, notice
from wattsched.replay.jobs.accounts import Carbon, PerKwh, Sleep, Steps
from wattsched.replay.jobs.budget import PACINGS, Budget, Pacing, Quantity, require_quantity
from wattsched.replay.jobs.caps import Caps, limited
from wattsched.replay.jobs.knowledge import KNOWLEDGE, Knows, known_of, known_under
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.job_sources import File
from wattsched.topology.arrays import FloatArray

LEAST_ROUND_S, RAMP_STEP_S = 1e-3, 60.0
"""Least seconds of a round, and of the steps of a limit that falls or rises."""


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of replays of traces, limits included.

    Parameters
    ----------
    round_s : float
        Seconds from one possible decision to the next; 0: any moment.
    process_restart_s : float
        Seconds to restart a process on other GPUs.
    pod_restart_s : float
        Seconds to terminate a pod and create another.
    carbon : float, str or Path
        Grams of CO2 per kWh, or a file of them over time (.csv).
    zone : str, optional
        Column of the files of --carbon and of prices; of one that has a single column, this.
    start : str, optional
        When the first job arrives, by the clock of files over time (default: its date, or when they begin).
    budget : tuple of str and float, optional
        Of every period, idle GPUs and nodes included: energy_j (joules), carbon_g (grams) or money.
    period_s : float
        After which the budget is renewed: hour, day, week or seconds.
    pacing : {"even", "price", "plan", "none"}
        Whether a period's budget is spent in proportion to time, at a price that sizing learns or by a plan
        of its for the jobs to come (others spend in proportion then), or is a hard total, which policies may
        spend at any time.
    tariff : float, str or Path, optional
        Money per kWh, perhaps below 0, or a file of it over time (.csv): what the energy costs is told.
    least_price : float
        Seconds of completion time that a joule (of a budget: a unit) is worth to sizing.
    gpu_limit_w : float, optional
        Power limit of every GPU: jobs run in no setting in which their GPUs draw more on average, unless it
        is their lowest.
    power_w : float, optional
        Most that the whole cluster may draw at any moment, beside the caps of its power domains.
    signal : str or Path, optional
        File of limits over time (.json, .csv); they hold beside the caps.
    wishes : bool
        Keep also the limits of the signal that are wishes.
    sleep_after_s : float, optional
        Nodes without a job sleep after S seconds.
    sleep_power_w : float
        Draw of a sleeping node.
    wake_s : float
        Seconds that a node takes to wake.
    gap : float
        Gap of each round's program.
    knows : {"exact", "limit", "history", "nothing"}, optional
        What policies know of how long jobs take: all, time limits, what ran before, or nothing (default:
        history if 20 jobs came before those replayed, else limit if they have limits, else exact).

    Raises
    ------
    ValueError
        For values out of range, and a budget without what it is counted by; see `JobSource`.
    """

    round_s: float = 60.0
    process_restart_s: float = 10.0
    pod_restart_s: float = 60.0
    carbon: float | File = 0.0
    zone: str | None = None
    start: str | None = None
    budget: tuple[Quantity, float] | None = None
    period_s: float = S_PER_DAY
    pacing: Pacing = "even"
    tariff: float | File | None = None
    least_price: float = 0.0
    gpu_limit_w: float | None = None
    power_w: float | None = None
    signal: File | None = None
    wishes: bool = False
    sleep_after_s: float | None = None
    sleep_power_w: float = 0.0
    wake_s: float = 0.0
    gap: float = 5e-3
    knows: Knows | None = None

    def __post_init__(self) -> None:
        require_types(ReplaySettings, vars(self))
        for name, value in vars(self).items():
            if isinstance(value, Real) and name != "tariff":
                require_range(0 <= float(value) <= sys.float_info.max, name, "at least 0 and finite", value)
        price = self.tariff if isinstance(self.tariff, Real) else 0.0
        require_range(math.isfinite(price), "tariff", "finite", price)
        require_range(self.gap < 1, "gap", "below 1", self.gap)
        require_range(self.period_s > 0, "period_s", "above 0", self.period_s)
        if 0 < self.round_s < LEAST_ROUND_S:
            raise ValueError(f"round_s: must be 0 or at least {LEAST_ROUND_S:g}, got {self.round_s:g}")
        if self.zone is not None and not self._files:
            raise ValueError("`zone` is a column of a file, but neither `carbon` nor `tariff` names one")
        if self.wishes and self.signal is None:
            raise ValueError("`wishes` needs `signal`, which they are of")
        if self.start is not None and not self._files and self.signal is None:
            raise ValueError(
                "`start` is a time in a file, but none of `carbon`, `tariff`, `signal` names one"
            )
        if self.start is not None:
            with naming("start"):
                utc_time(self.start)
        quantity, amount = self.budget or (None, 1.0)
        require_range(0 < amount < math.inf, "budget", "of an amount above 0 and finite", amount)
        if quantity is not None:
            require_quantity(quantity)
        require_known("pacing", self.pacing, PACINGS)
        require_known("knows", self.knows or "exact", KNOWLEDGE)
        if quantity is None and self.pacing != "even":
            raise ValueError("`pacing` needs `budget`, which it belongs to")
        if quantity == "carbon_g" and self.carbon == 0.0:
            raise ValueError("budget: carbon_g needs `carbon` above 0, without which nothing is emitted")
        if quantity == "money" and self.tariff is None:
            raise ValueError("budget: money needs `tariff`, what a kWh costs")

    def _start(self, trace: CarbonTrace, first: datetime | None) -> datetime | None:
        """Time of the first arrival in a file: `start`, or its own date if the file has that."""
        start = self.start
        if first is not None:
            own, counts = first.replace(tzinfo=UTC), trace.begin if start is None else utc_time(start)
            if start is None and trace.begin_s[0] <= own.timestamp() < trace.begin_s[-1] + trace.step_s[-1]:
                start = first.isoformat()
            # A date without a zone may be up to 14 hours from UTC.
            elif abs(counts - own) > timedelta(hours=0 if first.tzinfo or start is None else 14):
                told = f"arrives at {shown(own.timestamp())}, counted as {shown(counts.timestamp())}"
                notice(f"{trace.source}: assumed: the first job {told}")
        elif start is None:
            told = f"the first job arrives when the file begins, at {shown(trace.begin_s[0])} UTC"
            told += "" if trace.zoned else ", as its times have no zone"
            notice(f"{trace.source}: assumed: {told}")
        return None if start is None else trace.moment(start)

    def over_time(
        self, quantity: Literal["carbon", "money"], begin_s: float, first: datetime | None = None
    ) -> PerKwh | None:
        """Return what a kWh emits or costs from the first arrival on, where that is told."""
        given, kind = (self.carbon, Carbon) if quantity == "carbon" else (self.tariff, PerKwh)
        if not isinstance(given, str | Path):
            return None if given is None else kind.constant(float(given))
        with naming(given):
            both = all(isinstance(one, str | Path) for one in (self.carbon, self.tariff))
            trace = read_carbon(given, self.zone, quantity, may_lack=both)
            return kind.of(trace, begin_s, self._start(trace, first))

    @property
    def _files(self) -> bool:
        """True if carbon intensities or prices are of a file, which `start` is a time in."""
        return any(isinstance(per_kwh, str | Path) for per_kwh in (self.carbon, self.tariff))

    @property
    def without_signal(self) -> dict[str, ReplaySettings]:
        """The same settings without the signal, and without its wishes if other limits are left."""
        if self.signal is None:
            return {}
        free = replace(self, signal=None, wishes=False, start=self.start if self._files else None)
        signal, firm = read_signal(self.signal), {"no-wishes": replace(self, wishes=False)}
        mixed = signal.power_w is not None or len({one.worth_per_kwh is None for one in signal.limits}) > 1
        return {"no-signal": free} | (firm if self.wishes and mixed else {})

    def limits(self, begin_s: float, first: datetime | None) -> dict[str | None, Steps]:
        """Return the limits of the signal by power domain, by a trace's clock; of the site by None."""
        if self.signal is None:
            return {}
        signal, shift_s = self._dated(self.signal, begin_s, first)
        if self.wishes:
            signal = signal.granting()
        signal.require_limits(str(self.signal), begin_s - shift_s, hint=" (--wishes keeps them)")
        found = dict[str | None, Steps]()
        for domain in signal.domains:
            since_s, watts = signal.limit(domain).steps(RAMP_STEP_S)
            # Dates are no finer than a millionth, differences of their seconds since 1970 are not exact.
            time_s = np.round(since_s + shift_s, 6)
            first_step = max(0, int(np.searchsorted(time_s, begin_s, side="right")) - 1)
            time_s[first_step] = min(0.0, begin_s)
            found[domain] = Steps(time_s[first_step:], watts[first_step:])
        return found

    def events(self, trace: Trace) -> FloatArray:
        """Return begin, end and best worth of a kWh of the times in which limits hold, shape (n, 3).

        They are by the trace's clock, and do not overlap. A signal of no such limit is one event.
        """
        assert self.signal is not None
        signal, shift_s = self._dated(self.signal, *first_arrival(trace))
        rows = [
            (one.begin.timestamp() + shift_s, one.end_s + shift_s, one.worth_per_kwh or 0.0)
            for one in signal.limits
            if self.wishes or one.worth_per_kwh is None
        ]
        rows = rows or [(-np.inf, np.inf, 0.0)]
        edges_s = np.unique([row[:2] for row in rows])
        best = np.full(len(edges_s) - 1, -1.0)
        for *span_s, worth in sorted(rows, key=lambda row: row[2]):
            best[slice(*np.searchsorted(edges_s, span_s))] = worth
        return np.column_stack([edges_s[:-1], edges_s[1:], best])[best >= 0]

    def _dated(self, file: File, begin_s: float, first: datetime | None) -> tuple[Signal, float]:
        """Signal of a file, and the seconds from its clock to a trace's."""
        with naming(file):
            first = first if self.start is None else start_time(self.start, str(file))
            if first is None:
                raise ValueError("its times are dates, and the jobs have none: `start` says when they begin")
            if first.tzinfo is None:
                notice(f"{file}: assumed: the dates of the jobs, which have no zone, are UTC")
            return read_signal(file), begin_s - first.replace(tzinfo=first.tzinfo or UTC).timestamp()


def first_arrival(trace: Trace) -> tuple[float, datetime | None]:
    """Return when the first job arrives by a trace's clock, and its date where it has one."""
    begin_s = float(trace.arrival_s[0])
    return begin_s, None if trace.clock is None else trace.clock + timedelta(seconds=begin_s)


@dataclass(frozen=True)
class Scene:
    """A trace, and all that its replays under any policy have in common."""

    context: PolicyContext
    carbon: Carbon
    tariff: PerKwh | None
    sleep: Sleep | None
    knows: Knows = "exact"

    @classmethod
    def of(cls, trace: Trace, settings: ReplaySettings) -> Scene:
        """Read what settings name for a trace."""
        trace = trace if settings.gpu_limit_w is None else limited(trace, settings.gpu_limit_w)
        (begin_s, first), nap_s = first_arrival(trace), settings.sleep_after_s
        days = timedelta(seconds=float(trace.arrival_s[-1]) - begin_s)
        nights = first and not first.tzinfo and (first + days).date() > first.date()
        if nights and settings.start and moment_s(settings.start)[1] != LOCAL:
            told = f"the jobs' dates have no zone: all are as far from UTC as {echo(settings.start)} says"
            notice(f"assumed: {told}")
        carbon, tariff = (settings.over_time(what, begin_s, first) for what in ("carbon", "money"))
        assert isinstance(carbon, Carbon)
        of_files = [one for one in (carbon, tariff) if one is not None and one.source]
        if len({one.clock_s for one in of_files}) > 1:
            told = "`carbon` and `tariff` begin at different times"
            raise ValueError(f"{told}: `start` says when the first job arrives")
        context = PolicyContext(
            trace,
            Restarts(settings.process_restart_s, settings.pod_restart_s),
            settings.round_s,
            settings.gap,
            _budget(settings, carbon, tariff),
            settings.least_price,
            Caps.of(trace, settings.power_w, settings.limits(begin_s, first)),
        )
        sleep = None if nap_s is None else Sleep(nap_s, settings.sleep_power_w, settings.wake_s)
        return cls(context, carbon, tariff, sleep, settings.knows or known_of(trace))

    def replay(self, name: str) -> Replay:
        """Begin a replay under a policy."""
        context, policy = self.context, policy_of(name, self.context)
        return Replay(
            context.trace,
            policy,
            name=name,
            round_s=context.round_s,
            carbon=self.carbon,
            sleep=self.sleep,
            budget=context.budget,
            tariff=self.tariff,
            caps=context.caps,
            knows=known_under(name, self.knows),
        )


def _budget(settings: ReplaySettings, carbon: Carbon, tariff: PerKwh | None) -> Budget | None:
    if settings.budget is None:
        return None
    quantity, amount = settings.budget
    if quantity == "energy_j":
        return Budget.of_energy(amount, settings.period_s, settings.pacing)
    per_kwh = tariff if quantity == "money" and tariff is not None else carbon
    return Budget(quantity, amount, settings.period_s, per_kwh, settings.pacing)
