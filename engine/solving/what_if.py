"""What a round would be if something of it were otherwise: `what_if`, and `sweep` over a number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError, require, require_range
from wattsched.instances.sizing.changes import FIELDS, changed
from wattsched.instances.sizing.decision import Assignment
from wattsched.instances.sizing.instance import Instance
from wattsched.report.sizing import completion_times_s
from wattsched.report.wording import setting
from wattsched.results.result import Finite, Result
from wattsched.solving.engine import seconds_of, solve, sound_instance
from wattsched.topology.fields import Strict

Change = str | float | None

MOST_POINTS = 200
_ROUNDING = 1e-9
_LEAST_S = 1e-3


class JobDifference(Strict):
    """A job that does something else after the changes.

    Attributes
    ----------
    job : str
    change : str
        Whether it starts, stops, grows or shrinks, moves to other GPUs or to another pool, is set otherwise,
        or is taken out.
    before, after : str
        What it does: ``8 A100, 1410 MHz`` or ``waits``.
    done_before_s, done_after_s : float, optional
        Seconds to its completion where it runs.
    """

    job: str
    change: Literal["starts", "stops", "grows", "shrinks", "moves", "is set otherwise", "is taken out"]
    before: str
    after: str
    done_before_s: Finite | None = None
    done_after_s: Finite | None = None

    @property
    def gains(self) -> bool | None:
        """Whether the job is better off: it starts, or is done sooner; None where it is neither."""
        if self.change in ("starts", "stops"):
            return self.change == "starts"
        if self.done_before_s is None or self.done_after_s is None:
            return None
        if math.isclose(self.done_before_s, self.done_after_s, rel_tol=_ROUNDING):
            return None
        return self.done_after_s < self.done_before_s


class WhatIf(Strict):
    """Result of `what_if`; the file format ``wattsched-what-if/1``.

    Attributes
    ----------
    changes : dict of str to str
        What was changed, as it was typed; several names are in one text.
    before, after : Result
    jobs : list of JobDifference
        Jobs that do something else, those first whose completion changes most.
    """

    format: Literal["wattsched-what-if/1"] = "wattsched-what-if/1"
    instance: str
    changes: dict[str, str]
    before: Result
    after: Result
    jobs: list[JobDifference]


class SweepPoint(Strict):
    """A value, and the round's result with it."""

    value: Finite
    result: Result


class Sweep(Strict):
    """Result of `sweep`; the file format ``wattsched-sweep/1``. The points are in the order of values."""

    format: Literal["wattsched-sweep/1"] = "wattsched-sweep/1"
    instance: str
    field: str
    points: list[SweepPoint]
    missing: int = 0


def what_if(
    instance: Instance | str | Path,
    *,
    power_w: Change = None,
    energy_j: Change = None,
    carbon_g: Change = None,
    least_goodput: Change = None,
    carbon_g_per_kwh: Change = None,
    price_per_kwh: Change = None,
    gpus: Mapping[str, Change] | None = None,
    caps: Mapping[str, Change] | None = None,
    remove: Sequence[str] = (),
    time_limit: float | None = None,
    **options: Any,
) -> WhatIf:
    """Decide a round as it is and after changes, and say what differs.

    Parameters
    ----------
    instance : Instance, str or Path
        A round of sizing.
    power_w, energy_j, carbon_g, least_goodput : str or float, optional
        Changes of budgets: ``"+2kW"``, ``"-10%"``, ``"=5000"`` or ``"none"``; a number is the new value.
    carbon_g_per_kwh, price_per_kwh : str or float, optional
        Changes of the carbon intensity and the price of energy.
    gpus : mapping of str to str or float
        Changes of the GPUs of pools.
    caps : mapping of str to str or float
        Changes of the caps of power domains.
    remove : sequence of str
        Jobs that are taken out.
    time_limit : float, optional
        Wall-clock seconds for both decisions.
    **options
        As for `wattsched.solve`.

    Raises
    ------
    wattsched.InputError
        For changes that are none, unknown names, and a round that is none afterwards.
    """
    round_, timer = _round(instance), Timer(seconds_of("time_limit", time_limit))
    given = {"power_w": power_w, "energy_j": energy_j, "carbon_g": carbon_g, "least_goodput": least_goodput}
    given |= {"carbon_g_per_kwh": carbon_g_per_kwh, "price_per_kwh": price_per_kwh}
    numbers, of_pools, of_domains = _texts(given), _texts(gpus), _texts(caps)
    other = changed(round_, numbers, of_pools, of_domains, remove)
    sound_instance(other)
    before = solve(round_, time_limit=timer.share(0.5).limit_s, **options)
    after = solve(other, time_limit=_left_s(timer, 1.0), initial_solution=_earlier(before), **options)
    told = numbers | {f"gpus.{name}": text for name, text in of_pools.items()}
    told |= {f"caps.{name}": text for name, text in of_domains.items()}
    told |= {"remove": ", ".join(remove)} if remove else {}
    found = _differences(round_, other, before, after)
    return WhatIf(instance=round_.name, changes=told, before=before, after=after, jobs=found)


def sweep(
    instance: Instance | str | Path,
    field: str,
    values: Sequence[float],
    *,
    time_limit: float | None = None,
    **options: Any,
) -> Sweep:
    """Decide a round for several values of one number, each decision from the one before.

    Parameters
    ----------
    field : str
        A number that `what_if` changes, or ``gpus.POOL`` or ``caps.DOMAIN``.
    values : sequence of float
        At most 200.
    time_limit : float, optional
        Wall-clock seconds for all; those to come share what is left.
    **options
        As for `wattsched.solve`.

    Raises
    ------
    ValueError
        For an unknown field, and for no values or too many.
    wattsched.InputError
        For a value that the field cannot have.
    """
    round_, timer = _round(instance), Timer(seconds_of("time_limit", time_limit))
    require_range(0 < len(values) <= MOST_POINTS, "values", f"1 to {MOST_POINTS} of them", len(values))
    rounds = [_at(round_, field, value) for value in values]
    for one in rounds:
        sound_instance(one)
    points, earlier = list[SweepPoint](), None
    for number, (value, one) in enumerate(zip(values, rounds, strict=True)):
        if timer.over():
            break
        limit_s = _left_s(timer, 1.0 / (len(values) - number))
        result = solve(one, time_limit=limit_s, initial_solution=earlier, conflict=0.0, **options)
        earlier = _earlier(result) or earlier
        points.append(SweepPoint(value=float(value), result=result))
    return Sweep(instance=round_.name, field=field, points=points, missing=len(values) - len(points))


def _round(instance: Instance | str | Path) -> Instance:
    found, _ = sound_instance(instance)
    require("instance", found, (Instance,), "a round of sizing")
    return found  # type: ignore[no-any-return]


def _at(instance: Instance, field: str, value: float) -> Instance:
    """Return the round with a value of a field."""
    kind, _, name = field.partition(".")
    text = f"={value!r}"
    if field in FIELDS:
        return changed(instance, {field: text})
    if kind == "gpus" and name:
        return changed(instance, {}, gpus={name: text})
    if kind == "caps" and name:
        return changed(instance, {}, caps={name: text})
    known = f"{', '.join(FIELDS)}, gpus.POOL or caps.DOMAIN"
    raise InputError([f"sweep: {field!r:.80} is no number of a round; give {known}"])


def _texts(changes: Mapping[str, Change] | None) -> dict[str, str]:
    given = ((name, one) for name, one in (changes or {}).items() if one is not None)
    return {name: one if isinstance(one, str) else f"={one!r}" for name, one in given}


def _left_s(timer: Timer, share: float) -> float | None:
    left_s = timer.share(share).limit_s
    return None if left_s is None else max(_LEAST_S, left_s)


def _earlier(result: Result) -> Result | None:
    return result if result.decision is not None else None


def _differences(one: Instance, other: Instance, before: Result, after: Result) -> list[JobDifference]:
    """Jobs of two decisions that do something else, those first whose completion changes most."""
    if before.decision is None or after.decision is None:
        return []
    runs = [{job.job: job for job in result.decision.jobs} for result in (before, after)]
    pairs = [(name, runs[0].get(name), runs[1].get(name)) for name in one.by_column().names]
    there = other.by_column().place
    differ = [(name, a, b) for name, a, b in pairs if name not in there or _doing(a) != _doing(b)]
    done_s = [
        completion_times_s(of, [job for job in running if job is not None])
        for of, running in ((one, [a for _, a, _ in differ]), (other, [b for _, _, b in differ]))
    ]
    found = [
        JobDifference(
            job=name,
            change="is taken out" if name not in there else _change(a, b),
            before=_words(a, b),
            after="" if name not in there else _words(b, a),
            done_before_s=done_s[0].get(name),
            done_after_s=done_s[1].get(name),
        )
        for name, a, b in differ
    ]
    return sorted(found, key=lambda job: (-_by_s(job), job.job))


def _by_s(job: JobDifference) -> float:
    """Seconds by which a job is done sooner or later; infinite where it starts or stops."""
    if job.done_before_s is None or job.done_after_s is None:
        return math.inf
    return abs(job.done_after_s - job.done_before_s)


def _doing(job: Assignment | None) -> Any:
    return None if job is None else job.model_dump(exclude={"job"})


def _words(job: Assignment | None, other: Assignment | None) -> str:
    """Say what a job does, of its batch size only where it is another one."""
    if job is None:
        return "waits"
    details = [f"{job.gpus} {job.pool}", setting(job.frequency_mhz, job.power_limit_w)]
    if job.batch_size is not None and (other is None or other.batch_size != job.batch_size):
        details.append(f"batch {job.batch_size}")
    return ", ".join([*filter(None, details), *([f"in {job.set}"] if job.set else [])])


def _change(before: Assignment | None, after: Assignment | None) -> Any:
    if before is None or after is None:
        return "starts" if before is None else "stops"
    if before.pool != after.pool:
        return "moves"
    if before.gpus != after.gpus:
        return "grows" if after.gpus > before.gpus else "shrinks"
    return "moves" if before.nodes != after.nodes else "is set otherwise"


def values_between(first: float, last: float, step: float) -> Iterator[float]:
    """Yield the values of a sweep, the last one included where a step ends there."""
    count = math.floor((last - first) / step + _ROUNDING)
    yield from (first + i * step for i in range(count + 1))
