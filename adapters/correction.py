r"""Measured watts correct the model job by job, and tell how much less than a cap may be planned.

A job whose model says :math:`w_j` watts draws :math:`w_j e^{L_j + \varepsilon}`: a factor that is its own,
and a swing from moment to moment. Before any reading :math:`L_j \sim N(\mu, v_0)`, where the site states the
standard deviation :math:`\sigma` of the whole error, :math:`\sigma^2 = v_0 + s_0`. A reading of :math:`y`
watts is :math:`\log(y / w_j) = L_j + \varepsilon`, and Kalman's filter in one dimension has mean and variance
of :math:`L_j` given all readings [1]_. Between readings the variance widens again to that before any,
:math:`v_0 - (v_0 - v) e^{-t/T}`, and the mean stays; the swing's variance :math:`s_j` follows the squares of
the innovations [2]_. The errors of jobs are taken to be independent, so that of :math:`n` jobs

.. math:: P\Bigl(\sum_j w_j e^{L_j + \varepsilon_j} > \sum_j \hat w_j + z \sqrt{\textstyle\sum_j \hat w_j^2
          (e^{v_j + s_j} - 1)}\Bigr) \approx 1 - \Phi(z), \quad \hat w_j = w_j e^{m_j + (v_j + s_j) / 2}

and with :math:`z = 3.72` it is 1 in 10,000. The root is the margin. Of jobs that were never read :math:`\mu`
is moved by the mean of those that were, as ten jobs without a deviation would hold it.

.. [1] R. E. Kalman, A New Approach to Linear Filtering and Prediction Problems, J. Basic Eng. 82, 1960.
.. [2] R. K. Mehra, On the Identification of Variances and Adaptive Kalman Filtering, IEEE TAC 15, 1970.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from wattsched.adapters.options import first_of
from wattsched.adapters.readings import Found, Reading
from wattsched.instances.gpu_parts import host_of

Z = 3.72
"""One-sided standard deviations of 1 in 10,000."""
ERROR = 0.1
"""Relative standard deviation of a job's watts by the model, where the site states none."""
FORGET_S, ALIKE_S, MEMORY = 1800.0, 30.0, 30.0
"""Seconds in which variances widen, and in which readings tell the same swing; readings that count for it."""
SETTLE_S, FRESH_S, SILENT_S = 5.0, 60.0, 120.0
"""Seconds after a change that do not count, in which a reading is of now, and without any until an alarm."""
MOST_RATIO = 5.0
"""Readings that are so many times the model are not believed."""
_SWING, _LEAST_SWING, _DOUBT, _HOLD, _PERIODS = 0.5, 0.2, 3.0, 10.0, 8
"""Part of the error that is swing before any reading, and at least; readings and jobs that hold what was
assumed before any; and periods kept of a job."""


class Draw(NamedTuple):
    """Watts of a job of ours on each node, and of each of its pods, since when, and in which run."""

    node_w: Mapping[str, float]
    pods: Mapping[str, float] = {}
    begun_s: float = 0.0
    run: int | None = None


@dataclass
class _Period:
    """Time in which something was seen to be the same."""

    what: Any
    first_s: float
    last_s: float


@dataclass
class _Factor:
    """Mean and variance of the logarithm of a job's factor, variance of its swing, and when that was known.

    `latest` has the time and the ratio to the model of the last reading of each node or pod.
    """

    mean: float
    variance: float
    swing: float
    time_s: float
    count: float = 0.0
    direct_s: float = -math.inf
    latest: dict[str, tuple[float, float]] = field(default_factory=dict)


class Correction:
    """Factors of jobs, and their variances, by what was measured of them.

    Parameters
    ----------
    error : float
        Relative standard deviation of a job's watts by the model.
    source : callable, optional
        Returns new readings and faults. Without it the margin is that of the model alone.
    """

    def __init__(self, error: float = ERROR, source: Callable[[], Found] | None = None) -> None:
        self.source, self.faults, self._silent = source, list[str](), True
        self._square, self._mean, self._least = error**2, -(error**2) / 2, math.exp(-Z * error)
        self._assume(0.0, (_SWING * error) ** 2)
        self._now_s = self._asked_s = self._read_s = -math.inf
        self._held = dict[tuple[str, str], deque[_Period]]()
        self._job_of = dict[str, str]()
        self._factors = dict[str, _Factor]()

    def update(self, load: Any) -> None:
        """Note what everything draws by the model now, and learn from what was measured meanwhile."""
        now_s = load.site.time_s
        if now_s < self._now_s - SETTLE_S:  # the clock was set back: times say nothing any more
            self._held, self._factors = {}, {}
            self._asked_s = self._read_s = -math.inf
        self._now_s = now_s
        jobs_on, rest_w = defaultdict[str, dict[str, float]](dict), defaultdict[str, float](float)
        for node, watts in load.node_w.items():
            rest_w[host_of(node)] += watts
        for name, draw in load.draws.items():
            if draw.begun_s <= now_s:
                self._note(("job", name), draw, draw.begun_s)
                self._job_of |= dict.fromkeys(draw.pods, name)
                for node, watts in draw.node_w.items():
                    rest_w[host_of(node)] -= watts
                    jobs_on[host_of(node)][name] = watts
        foreign = {host_of(node) for node, watts in load.foreign_node_w.items() if watts > 0}
        for node in jobs_on.keys() - foreign:  # what others draw is not known
            self._note(("node", node), (jobs_on[node], round(rest_w[node], 3)), now_s)
        if not jobs_on or math.isinf(self._read_s):
            self._read_s = now_s  # nobody is silent before there is something to say
        if self.source is not None and now_s >= self._asked_s + SETTLE_S:
            self._asked_s = now_s
            found, faults = self.source()
            self.faults = list(faults)
            lost = Counter(self._learn(reading) for reading in sorted(found, key=lambda one: one.time_s))
            del lost[""]
            told = ", ".join(f"{count:,} {why}" for why, count in lost.items())
            notes = [f"{lost.total():,} of {len(found):,} do not count: {told}"] if lost else []
            self._silent = self._silent and not found and not faults
            self.faults = first_of([*notes, *self.faults, *["none has come yet"] * self._silent])
            self._forget()

    @property
    def silent_s(self) -> float:
        """Seconds since the last reading that counted; 0 without a source."""
        return 0.0 if self.source is None else self._now_s - self._read_s

    def factor(self, job: str) -> float:
        """Return how many times the watts of the model a job is expected to draw."""
        known = self._widened(job)
        return math.exp(known.mean + (known.variance + known.swing) / 2)

    def variance(self, job: str) -> float:
        """Return the variance of what a job draws, relative to what it is expected to."""
        known = self._widened(job)
        return math.expm1(known.variance + known.swing)

    def measured(self, job: str) -> float | None:
        """Return how many times the watts of the model a job was measured to draw just now, if it was."""
        if job not in self._factors or ("job", job) not in self._held:
            return None
        since_s = max(self._held["job", job][-1].first_s, self._now_s - FRESH_S)
        ratios = [ratio for time_s, ratio in self._factors[job].latest.values() if time_s > since_s]
        return sum(ratios) / len(ratios) if ratios else None

    def _widened(self, job: str, time_s: float | None = None) -> _Factor:
        """Return what is known of a job at a time, by default now."""
        time_s = self._now_s if time_s is None else time_s
        if (known := self._factors.get(job)) is None:
            return _Factor(self._mean + self._shift, self._prior, self._swing, time_s)
        kept = math.exp(-max(0.0, time_s - known.time_s) / FORGET_S)
        variance = self._prior - (self._prior - known.variance) * kept
        swing = self._swing - (self._swing - known.swing) * kept
        return replace(known, variance=variance, swing=swing, time_s=max(time_s, known.time_s))

    def _note(self, key: tuple[str, str], what: Any, since_s: float) -> None:
        """Note that something is so now, and since a time where it was never seen before."""
        periods = self._held.setdefault(key, deque(maxlen=_PERIODS))
        if periods and periods[-1].what == what:
            periods[-1].last_s = self._now_s
        else:
            periods.append(_Period(what, self._now_s if periods else since_s, self._now_s))

    def _at(self, key: tuple[str, str], reading: Reading) -> Any:
        """Return what held at the time of a reading, and for some seconds before it; else None."""
        for period in self._held.get(key, ()):
            after_s = SETTLE_S if period.last_s == self._now_s else 0.0
            begin_s = period.first_s + SETTLE_S + reading.over_s
            if begin_s <= reading.time_s <= period.last_s + after_s:
                return period.what
        return None

    def _learn(self, reading: Reading) -> str:
        """Learn from a reading of a job, or of a node of whose jobs none is read; return why not, or ''."""
        name = self._job_of.get(reading.job, reading.job) or reading.node
        key = ("job" if reading.job else "node", name)
        if (ahead_s := reading.time_s - self._now_s) > SETTLE_S:
            what = f"a reading of '{reading.job or reading.node}'"
            self.faults.append(f"{what} is {ahead_s:,.0f} s in the future")
        elif key not in self._held:
            return "of jobs that do not run" if reading.job else "of nodes without our jobs, or with others'"
        elif (found := self._at(key, reading)) is None:
            return f"from before their {key[0]} was seen unchanged for {SETTLE_S:.0f} s"
        elif reading.job:
            draw: Draw = found
            if reading.run not in (None, draw.run):
                return "of another run of their job"
            watts_of = {**{host_of(node): watts for node, watts in draw.node_w.items()}, **draw.pods}
            part = reading.job if reading.job in draw.pods else reading.node
            total_w = sum(draw.node_w.values())
            if not (watts := watts_of.get(part, 0.0) if part else total_w) > 0:
                return "of nodes without their job"
            self._observe(name, part, reading.time_s, reading.power_w / watts, watts / total_w)
        else:
            watts_of, rest_w = found
            known = [self._factors[name] for name in watts_of if name in self._factors]
            if any(one.direct_s > reading.time_s - FRESH_S for one in known):
                return ""
            total_w = sum(watts_of.values())
            for name, watts in watts_of.items():
                # Of several jobs a node tells the mean alone.
                unclear, ratio = self._prior * (1 - watts / total_w), (reading.power_w - rest_w) / total_w
                self._observe(name, reading.node, reading.time_s, ratio, 1.0, unclear)
        return ""

    def _observe(
        self, job: str, part: str, time_s: float, ratio: float, share: float, unclear: float | None = None
    ) -> None:
        """Take a ratio to the model, measured of a share of a job, into its factor.

        `unclear` is the variance that a ratio of the node adds; None for one of the job itself.
        """
        if ratio > MOST_RATIO:
            self.faults.append(f"a reading of '{job}' is {ratio:,.1f} times the model, and not believed")
            return
        known = self._widened(job, time_s)
        before_s, _ = known.latest.get(part, (time_s - ALIKE_S, 0.0))
        if time_s <= before_s:
            return
        known.latest = known.latest | {part: (time_s, ratio)}
        known.direct_s = known.direct_s if unclear is not None else time_s
        if ratio > self._least:
            # Below that it pauses, and nothing is learnt: it will draw more again.
            weight, off = share * min(1.0, (time_s - before_s) / ALIKE_S), math.log(ratio) - known.mean
            if off**2 > Z**2 * (known.variance + known.swing + (unclear or 0.0)):
                known.variance = self._prior  # it draws something else from now on
            gain = known.variance / (known.variance + (known.swing + (unclear or 0.0)) / weight)
            # The less of a deviation is the job's own, the more of it tells of the swing.
            surprise = (1 - gain) * (off**2 - known.variance - known.swing - (unclear or 0.0))
            known.count = min(known.count + weight, MEMORY)
            swing = known.swing + weight / (known.count + _DOUBT) * surprise
            known.swing = min(max(swing, _LEAST_SWING**2 * self._square), self._square)
            known.mean, known.variance = known.mean + gain * off, known.variance * (1 - gain)
        self._factors[job] = known
        self._read_s = max(self._read_s, time_s)

    def _forget(self) -> None:
        """Forget jobs that were not seen for long, and move the mean of those that were never read."""
        old_s = self._now_s - FORGET_S
        self._held = {key: of for key, of in self._held.items() if of[-1].last_s > old_s}
        self._factors = {job: of for job, of in self._factors.items() if ("job", job) in self._held}
        self._job_of = {pod: job for pod, job in self._job_of.items() if ("job", job) in self._held}
        known = [(1 - one.variance / self._square, one) for one in self._factors.values()]
        hold = sum(part for part, _ in known) + _HOLD
        swing = sum(part * one.swing for part, one in known) + _HOLD * _SWING**2 * self._square
        self._assume(sum(part * (one.mean - self._mean) for part, one in known) / hold, swing / hold)

    def _assume(self, shift: float, swing: float) -> None:
        """Assume a shift of the mean, and a swing, of jobs that were never read; both sum to the error."""
        self._shift, self._swing = shift, swing
        self._prior = max(self._square - swing, _LEAST_SWING**2 * self._square)
