"""Choose the jobs that stop where more is drawn than a cap, and state the caps for a decision.

Watts stand by the name of the cap that they are under: that of a power domain, and '' for the site's. `cap_w`
has the caps that change over time, as `budget.Cap` states them; those of domains in the site's file count,
too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan, sqrt
from typing import Any

from wattsched.adapters.correction import Correction, Z
from wattsched.adapters.options import Row

_ROOM = 1.1
"""Margins that a start leaves, of those for which jobs stop."""
_SLACK_W, _ROUNDING_W = 1e-6, 1e-3
"""Watts by which a cap is not taken to be broken, and by which sums of the engine may differ from ours."""


@dataclass(frozen=True)
class Stoppable:
    """A job that may be stopped.

    Attributes
    ----------
    freed_w : mapping of str to float
        Watts that this frees under each cap.
    gpus : int
    ran_s : float
        Since it began.
    """

    name: Any
    freed_w: Mapping[str, float]
    gpus: int
    ran_s: float

    def lost(self, record: Mapping[str, Any]) -> float:
        """Weighted GPU seconds lost, by the last decision's `record`; infinite where nobody may stop it."""
        if not record.get("preemptible", True):
            return inf
        return float(record.get("weight", 1.0) * self.gpus * record.get("restart_s", self.ran_s))


@dataclass(frozen=True)
class Adjustable:
    """A running job whose settings may be lowered.

    Attributes
    ----------
    weight : float
        Of its progress: weighted GPUs.
    part : mapping of str to float
        Part of its watts that is drawn under each cap.
    rows : sequence of Row
        Settings that it can have.
    now : Row
        Those that it has now.
    """

    name: Any
    weight: float
    part: Mapping[str, float]
    rows: Sequence[Row]
    now: Row

    def steps(self) -> Iterator[tuple[float, Row]]:
        """Yield ever lower settings by the progress lost per watt from one to the next, cheapest first."""
        best, last = max(row.rate for row in self.rows), self.now
        while lower := [row for row in self.rows if row.power_w < last.power_w - _SLACK_W]:
            priced = [((last.rate - row.rate) / (last.power_w - row.power_w), row) for row in lower]
            price, last = min(priced, key=lambda one: (one[0], one[1].power_w))
            yield self.weight / best * price, last


class Drawing:
    """Watts under each cap, as the loads of all schedulers add them up.

    Attributes
    ----------
    under : mapping of str to collection of str
        Nodes that draw through each power domain.
    node_w : mapping of str to float
        What each node draws.
    foreign_node_w : mapping of str to float
        What GPUs of jobs that are not ours draw beyond idling, by node.
    draws : mapping of str to Draw
        Of our jobs, by name.
    correction : Correction, optional
        By which their watts are corrected.
    """

    options: Any
    under: Any
    node_w: Any
    foreign_node_w: Any
    draws: Any
    correction: Correction | None

    def waits_w(self, caps: Mapping[str, float]) -> dict[str, float]:
        """Return the watts under each cap that paused jobs of ours wait for."""
        return dict.fromkeys(caps, 0.0)

    @property
    def power_w(self) -> float:
        """Return the watts that everything draws."""
        return float(sum(self.node_w.values()))

    @property
    def drawn_w(self) -> dict[str, float]:
        """Return the watts drawn under each cap."""
        found = self.by_cap(self.node_w)
        return found | {one.name: found[one.name] + one.reserved_w for one in self.options.power_domains}

    @property
    def foreign_w(self) -> dict[str, float]:
        """Return what GPUs of jobs that are not ours draw beyond idling, under each cap."""
        return self.by_cap(self.foreign_node_w)

    @property
    def measured_w(self) -> dict[str, float]:
        """Return the watts under each cap, those of jobs that were read just now as measured."""
        more_w = defaultdict[str, float](float)
        for name, draw in self.draws.items():
            if self.correction and (ratio := self.correction.measured(name)) is not None:
                for node, watts in draw.node_w.items():
                    more_w[node] += watts * (ratio / self.correction.factor(name) - 1)
        drawn_w = self.drawn_w
        return {name: drawn_w[name] + watts for name, watts in self.by_cap(more_w).items()}

    def factor(self, job: object) -> float | None:
        """Return how many times the watts of its model a job is expected to draw; None where nobody says."""
        return None if self.correction is None else self.correction.factor(str(job))

    def margin_w(self) -> dict[str, float]:
        """Watts under each cap that our jobs may draw beyond what is expected."""
        variance = dict.fromkeys(["", *self.under], 0.0)
        if self.correction is None:
            return variance
        caps = defaultdict[str, list[str]](lambda: [""])
        for domain, nodes in self.under.items():
            for node in nodes:
                caps[node].append(domain)
        for name, draw in self.draws.items():
            watts = defaultdict[str, float](float)
            for node, each_w in draw.node_w.items():
                for cap in caps[node]:
                    watts[cap] += each_w
            relative = self.correction.variance(name)
            for cap, total_w in watts.items():
                variance[cap] += relative * total_w**2
        return {cap: Z * sqrt(square) for cap, square in variance.items()}

    def by_cap(self, node_w: Mapping[str, float]) -> dict[str, float]:
        """Watts of nodes, added up under each cap."""
        found = {"": sum(node_w.values())}
        for domain, nodes in self.under.items():
            found[domain] = sum(node_w.get(node, 0.0) for node in nodes)
        return found


def caps_w(load: Any, cap_w: Mapping[str, float]) -> dict[str, float]:
    """Watts of all caps by name; the least of `cap_w` and of the site's file counts."""
    standing_w = {domain.name: domain.power_cap_w for domain in load.options.power_domains}
    return {name: min(watts, cap_w.get(name, inf)) for name, watts in {"": inf, **standing_w}.items()}


def kept_w(
    load: Any, cap_w: Mapping[str, float], margin_w: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The caps less the margin for the errors of the model: that of what is drawn now, or `margin_w`."""
    margins = load.margin_w() if margin_w is None else margin_w
    return {name: cap - margins[name] for name, cap in caps_w(load, cap_w).items()}


def over_w(drawn_w: Mapping[str, float], caps: Mapping[str, float]) -> dict[str, float]:
    """Watts above each cap that is broken."""
    return {name: drawn_w[name] - cap for name, cap in caps.items() if drawn_w[name] > cap + _SLACK_W}


def limits_w(load: Any, cap_w: Mapping[str, float]) -> dict[str, float]:
    """Watts above which jobs of ours stop: the caps, and more where they do not stop for others' jobs."""
    foreign_w, rule = load.foreign_w, load.options.foreign
    # What others' jobs draw above what is set aside for them.
    beyond_w = 0.0 if rule.stop_ours else max(0.0, foreign_w[""] - rule.power_w)
    return {name: cap + min(beyond_w, foreign_w[name]) for name, cap in kept_w(load, cap_w).items()}


def left_w(load: Any, cap_w: Mapping[str, float]) -> dict[str, float]:
    """The caps less margins, and the watts that others' jobs and paused ones may still draw.

    Margins are larger than those for which jobs stop: estimates move.
    """
    aside_w = max(0.0, load.options.foreign.power_w - load.foreign_w[""])
    kept = kept_w(load, cap_w, {name: _ROOM * watts for name, watts in load.margin_w().items()})
    waits_w = load.waits_w(kept)
    return {name: cap - waits_w[name] - (0.0 if name else aside_w) for name, cap in kept.items()}


def decision_w(load: Any, least: Any, cap_w: Mapping[str, float], then: Any = None) -> dict[str, float]:
    """The caps in watts, by name, that a decision is told: what may not be stopped is always within them.

    Where the load that no decision can avoid, `least`, draws more than a cap, the cap is what it draws:
    nothing starts there, what may be stopped is, and the rest of the site is decided as ever. Margins are
    those of a load `then`, if there is one.
    """
    caps, staying_w = left_w(then or load, cap_w), least.drawn_w
    stated = {name: max(cap, staying_w[name] + _ROUNDING_W) for name, cap in caps.items()}
    paused = any(load.waits_w(kept_w(load, cap_w)).values())
    if paused or not load.options.foreign.stop_ours or load.correction is not None:
        # What runs now may go on up to these limits.
        now_w, limits = load.after(()).drawn_w, limits_w(load, cap_w)
        going_w = {name: min(now_w[name] + _ROUNDING_W, limits[name]) for name in stated}
        stated = {name: max(cap, going_w[name]) for name, cap in stated.items()}
    return stated


def too_much(drawn_w: Mapping[str, float], added_w: Mapping[str, float], caps: Mapping[str, float]) -> str:
    """Return why a start is too much, with which `drawn_w` is drawn under each cap; '' where it is not.

    Where it adds no watts (`added_w`) under a cap it is never too much.
    """
    broken = [name for name in over_w(drawn_w, caps) if added_w[name] > 0]
    if not broken:
        return ""
    return "would draw more than the cap" + (f" of '{broken[0]}'" if broken[0] else "")


def starts_too_much(before: Any, after: Any, cap_w: Mapping[str, float]) -> str:
    """Return why starts are too much, by the loads `before` and `after` them; '' where they are not."""
    drawn_w, before_w = after.drawn_w, before.drawn_w
    added_w = {name: watts - before_w[name] for name, watts in drawn_w.items()}
    return too_much(drawn_w, added_w, left_w(after, cap_w))


def settings_to_fit(over: Mapping[str, float], jobs: Iterable[Adjustable]) -> list[tuple[Adjustable, Row]]:
    """Jobs to lower to be within the caps, as far as that suffices, and the settings of each.

    The least progress per watt goes first; `over` has the watts above each cap.
    """
    left, chosen = dict(over), dict[Any, tuple[Adjustable, Row]]()
    steps = [(price, place, job, row) for job in jobs for place, (price, row) in enumerate(job.steps())]
    for _, _, job, row in sorted(steps, key=lambda step: step[:2]):
        if any(watts > _SLACK_W and job.part[cap] > 0 for cap, watts in left.items()):
            _, before = chosen.get(job.name, (job, job.now))
            saved_w = before.power_w - row.power_w
            left = {cap: watts - saved_w * job.part[cap] for cap, watts in left.items()}
            chosen[job.name] = job, row
    return [*chosen.values()]


def stops_to_fit(
    over: Mapping[str, float],
    jobs: Iterable[Stoppable],
    records: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[Any, str]:
    """Jobs to stop to be within the caps, each with why: those that lose the least per watt go first.

    Parameters
    ----------
    over : mapping of str to float
        Watts above each cap.
    jobs : iterable of Stoppable
    records : mapping, optional
        What a decision was told of jobs last, by name.
    """
    left, waiting = dict(over), list(jobs)
    stopped, known = list[Stoppable](), records or {}

    def price(job: Stoppable) -> float:
        """Compute the weighted GPU seconds lost per watt that helps; nan where none does."""
        watts = sum(min(over_w, max(0.0, job.freed_w[cap])) for cap, over_w in left.items() if over_w > 0)
        return job.lost(known.get(str(job.name), {})) / watts if watts > _SLACK_W else nan

    while any(watts > _SLACK_W for watts in left.values()):
        prices = {place: price(job) for place, job in enumerate(waiting)}
        useful = [place for place in prices if not isnan(prices[place])]
        if not useful:
            break
        job = waiting.pop(min(useful, key=prices.__getitem__))
        stopped.append(job)
        left = {cap: watts - job.freed_w[cap] for cap, watts in left.items()}
    # The last ones may make some of the first needless.
    for job in [*stopped]:
        without = {cap: watts + job.freed_w[cap] for cap, watts in left.items()}
        if all(watts <= _SLACK_W for watts in without.values()):
            left = without
            stopped.remove(job)
    # Why each stops is said of those that are left.
    left, stops = dict(over), dict[Any, str]()
    for job in stopped:
        above_w, cap = max((watts, cap) for cap, watts in left.items())
        stops[job.name] = f"{above_w:,.0f} W too many are drawn" + (f" behind '{cap}'" if cap else "")
        left = {cap: watts - job.freed_w[cap] for cap, watts in left.items()}
    return stops
