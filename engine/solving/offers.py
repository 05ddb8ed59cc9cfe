"""Offers of a site: less draw for some time, and the loss of the jobs of a shifting horizon in return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import require, require_range
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.signals import Limit, Signal
from wattsched.instances.traces.carbon import start_time
from wattsched.reading.arguments import require_types
from wattsched.results.result import Count, Finite, Result, TerminationReport
from wattsched.solving.engine import seconds_of, solve, sound_instance
from wattsched.topology.fields import LARGEST, Strict
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.checker import caps_of, draw_of

_LEAST_S, _FLOOR = 1e-3, 1e-6
"""Least time limit in seconds, and part of the draw that a cap, which is above 0, leaves at least."""
_FIRST, _HALVINGS = 3, 5
"""The plan without an event may take one part in so many of the time; the largest cut is halved so often."""


class Cut(Strict):
    """A plan that draws less in some slots, against the plan without the event.

    Attributes
    ----------
    first_slot, slots : int
        Slots of the event.
    power_w : float, optional
        Watts that are drawn less in each of them; None for a wish.
    lasts_s : list of float
        Durations that were asked for and take these slots.
    wish : Limit, optional
    not_drawn_j, loss : float, optional
        Joules less in these slots, or between a wish's begin and end, and by how much the objective is worse;
        None without a plan.
    least_loss : float
        No plan loses less, as certificates prove.
    result : Result
        The plan, or why there is none.
    """

    first_slot: Count
    slots: Count
    power_w: Finite | None = None
    lasts_s: list[Finite] = []
    wish: Limit | None = None
    not_drawn_j: Finite | None = None
    loss: Finite | None = None
    least_loss: Finite = 0.0
    result: Result


class Offer(Strict):
    """Result of `offer`: the plan without an event, and cuts by duration and watts, or by wish.

    Attributes
    ----------
    weight : float
        Sum of the jobs' weights: times it, a loss of average completion is the sum of what all jobs lose.
    """

    format: Literal["wattsched-offer/1"] = "wattsched-offer/1"
    instance: str
    objective: str
    slot_s: Finite | list[Finite]
    currency: str | None
    weight: Finite
    plan: Result
    cuts: list[Cut] = []

    @property
    def termination(self) -> TerminationReport:
        """Termination of the plan without an event."""
        return self.plan.termination


def offer(
    instance: ShiftingInstance | str | Path,
    at_s: float = 0.0,
    lasts_s: Sequence[float] = (),
    *,
    points: int = 6,
    signal: Signal | None = None,
    start: str | datetime = "",
    shortest_slot_s: float | None = None,
    time_limit: float | None = None,
    **options: Any,
) -> Offer:
    """Plan a horizon under cuts of its draw, from nothing to the most that can be kept, and under wishes.

    Cuts are below the watts of the plan without the event, slot by slot. The most that can be kept is found
    to a 32nd; larger cuts end with a proof that no plan keeps them, where there is time for one.

    Parameters
    ----------
    instance : ShiftingInstance, str or Path
    at_s : float
        Seconds from the horizon's begin to that of the event, which takes all slots that it touches.
    lasts_s : sequence of float
        Durations of the event in seconds.
    points : int
        Evenly spaced cuts of each duration up to the largest that is kept, beside those tried to find it.
    signal : Signal, optional
        Its firm limits hold throughout; each of its wishes that is lower is taken alone.
    start : str or datetime
        When the horizon begins, for a signal; with a zone.
    shortest_slot_s : float, optional
        Slots are cut where the event, or limits and wishes of a signal, begin, end or change, into none
        shorter; None leaves them.
    time_limit : float, optional
        Wall-clock seconds for all plans together.
    **options
        As for `solve`.

    Raises
    ------
    ValueError
        For an event beyond the horizon, and a signal without a wish that is lower within it.
    """
    require_types(offer, locals())
    horizon, _ = sound_instance(instance)
    require("instance", horizon, (ShiftingInstance,), "of the problem 'shifting'")
    require_range(points >= 1, "points", "at least 1", points)
    events, wishes = dict[range, list[float]](), []
    wished = [one for one in signal.limits if one.worth_per_kwh is not None] if signal else []
    begin_s = start_time(start).timestamp() if wished else 0.0
    if shortest_slot_s is not None:
        times_s = [time_s - begin_s for one in wished for time_s in (one.begin.timestamp(), one.end_s)]
        times_s += [at_s, *(at_s + lasting for lasting in lasts_s)] if lasts_s else []
        signals = [signal, *map(signal.granting, wished)] if signal else []
        horizon = horizon.split(signals, start, shortest_slot_s, times_s)
    for lasting in lasts_s:
        events.setdefault(_slots(horizon, at_s, lasting), []).append(lasting)
    if signal is not None:
        asked, horizon = horizon, horizon.under(signal, start)
        edges_s = begin_s + horizon.begin_s
        for wish in wished:
            granted = asked.under(signal.granting(wish), start)
            if _is_lower(granted, horizon):
                first_slot = int(np.searchsorted(edges_s[1:], wish.begin.timestamp(), side="right"))
                slots = range(first_slot, int(np.searchsorted(edges_s[:-1], wish.end_s)))
                wishes.append((wish, granted, slots))
        require_range(bool(wishes), "signal", "one with a wish below its firm limits in the horizon", "none")
    options.setdefault("conflict", 0.0)
    timer, calls_left = Timer(seconds_of("time_limit", time_limit)), _FIRST

    def plan(of: ShiftingInstance, earlier: Result | None = None) -> Result:
        """Solve an instance from an earlier plan, in its part of the time that is left."""
        nonlocal calls_left
        if (left_s := timer.share(1.0 / max(1, calls_left)).limit_s) is not None:
            options["time_limit"] = max(_LEAST_S, left_s)
        calls_left -= 1
        return solve(of, initial_solution=earlier, **options)

    def against_first(event: range, result: Result, bound: float, part: Any = 1.0, **about: Any) -> Cut:
        """Tell what a plan loses, with a bound on the objective of all plans; `part` of each slot counts."""
        about |= {"first_slot": event.start, "slots": len(event), "result": result}
        if result.decision is None:
            return Cut(**about)
        loss, least = (
            max(0.0, value - (first.objective or 0.0)) for value in (result.objective or 0.0, bound)
        )
        saved_j = float(((first_j - draw_of(horizon, result.decision)[1])[event] * part).sum())
        return Cut(not_drawn_j=saved_j, loss=loss, least_loss=min(loss, least), **about)

    def cuts_of(event: range, later: int) -> list[Cut]:
        """Find the most that can be kept in an event; return evenly spaced cuts up to it, and larger ones."""
        most_w = first_w[event]
        idle_w = sum(pool.gpus * pool.idle_power_w for pool in horizon.pools.values())
        all_w, kept, lost = max(0.0, float(most_w.min()) - idle_w), {0.0: first}, dict[float, Result]()

        def attempt(cut_w: float) -> None:
            """Plan under a cut, from the plan of the next larger one, which keeps it, too."""
            limit_w = np.full(horizon.slots, np.inf)
            limit_w[event] = np.maximum(most_w - cut_w, _FLOOR * most_w)
            result = plan(horizon.capped(limit_w), kept[min((w for w in kept if w > cut_w), default=0.0)])
            (lost if result.decision is None else kept)[cut_w] = result

        nonlocal calls_left
        calls_left = later + points + _HALVINGS
        if all_w > 0:
            attempt(all_w)
        for _ in range(_HALVINGS if lost else 0):
            attempt((min(lost) + max(kept)) / 2)
        calls_left = later + points - 1
        for cut_w in np.linspace(max(kept), 0.0, points + 1)[1:-1].tolist() if max(kept) > 0 else ():
            attempt(cut_w)
        bound, found = _proven(first), list[Cut]()
        for cut_w, result in sorted((kept | lost).items())[all_w > 0 :]:
            bound = max(bound, _proven(result) if cut_w in kept else bound)  # holds for larger cuts, too
            found.append(against_first(event, result, bound, power_w=cut_w, lasts_s=events[event]))
        return found

    first, cuts = plan(horizon), list[Cut]()
    if first.decision is not None:
        first_w, first_j = draw_of(horizon, first.decision)
        for done, event in enumerate(events, 1):
            cuts += cuts_of(event, (len(events) - done) * (points + _HALVINGS) + len(wishes))
        calls_left = len(wishes)
        for wish, granted, slots in wishes:
            result = plan(granted, first)
            own_s = edges_s[slots.start : slots.stop + 1]
            part = np.diff(own_s.clip(wish.begin.timestamp(), wish.end_s)) / horizon.lengths_s[slots]
            cuts.append(against_first(slots, result, max(map(_proven, (first, result))), part, wish=wish))
    about = {name: getattr(horizon, name) for name in ("objective", "slot_s", "currency")}
    weight = sum(job.weight for job in horizon.jobs)
    return Offer(instance=horizon.name, weight=weight, plan=first, cuts=cuts, **about)


def _slots(horizon: ShiftingInstance, at_s: float, lasts_s: float) -> range:
    """Slots that an event touches; a ValueError where they are not all within the horizon."""
    inside = 0 <= at_s < horizon.horizon_s
    require_range(inside, "at_s", f"in the horizon, from 0 to below {horizon.horizon_s:g} s", at_s)
    left_s = horizon.horizon_s - at_s
    within = 0 < lasts_s <= left_s * (1 + ROUNDING)
    require_range(within, "lasts_s", f"above 0 and end within the horizon, after {left_s:g} s", lasts_s)
    first = int(np.searchsorted(horizon.begin_s, at_s * (1 + ROUNDING), side="right")) - 1
    return range(first, int(np.searchsorted(horizon.begin_s, (at_s + lasts_s) * (1 - ROUNDING))))


def _is_lower(one: ShiftingInstance, other: ShiftingInstance) -> bool:
    """True if a cap of an instance is below that of another in some slot."""
    caps = caps_of(other)
    return any(
        bool(np.any(watts < (caps[name][1] if name in caps else LARGEST)))
        for name, (_, watts, _) in caps_of(one).items()
    )


def _proven(result: Result) -> float:
    return -math.inf if result.certificate is None else result.certificate.bound
