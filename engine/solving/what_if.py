"""Decisions of a round after changes: `what_if`, and `sweep` over the values of one number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import require, require_known, require_range
from wattsched.instances.sizing.changes import FIELDS, changed
from wattsched.instances.sizing.decision import Assignment
from wattsched.instances.sizing.instance import Instance
from wattsched.reading.arguments import require_types
from wattsched.report.sizing import completion_times_s
from wattsched.report.wording import setting
from wattsched.results.result import Finite, Result
from wattsched.solving.engine import seconds_of, solve, sound_instance
from wattsched.topology.fields import Strict

MOST_POINTS = 200
Change = str | float
_LEAST_S = 1e-3


class JobDifference(Strict):
    """A job that does something else after the changes.

    Attributes
    ----------
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
    def later_s(self) -> float:
        """Seconds by which it is done later; infinite for one that stops, and below 0 for one that gains."""
        if self.change == "is taken out":
            return 0.0
        before, after = (math.inf if s is None else s for s in (self.done_before_s, self.done_after_s))
        return 0.0 if math.isclose(before, after) else after - before


class WhatIf(Strict):
    """Result of `what_if`; the file format ``wattsched-what-if/1``.

    Attributes
    ----------
    changes : dict of str to str
        What was changed, as it was typed.
    jobs : list of JobDifference
        Jobs that do something else, those first whose completion changes most.
    """

    format: Literal["wattsched-what-if/1"] = "wattsched-what-if/1"
    instance: str
    changes: dict[str, str]
    before: Result
    after: Result
    jobs: list[JobDifference]


class Sweep(Strict):
    """Result of `sweep`, a result for each value; the file format ``wattsched-sweep/1``."""

    format: Literal["wattsched-sweep/1"] = "wattsched-sweep/1"
    instance: str
    field: str
    values: list[Finite]
    results: list[Result]


def what_if(
    instance: Instance | str | Path,
    changes: Mapping[str, Change] | None = None,
    *,
    gpus: Mapping[str, Change] | None = None,
    remove: Sequence[str] = (),
    time_limit: float | None = None,
    **options: Any,
) -> WhatIf:
    """Decide a round as it is and after changes, and say what differs.

    Parameters
    ----------
    instance : Instance, str or Path
        A round of sizing.
    changes : mapping of str to str or float
        Changes of ``power_w``, ``energy_j``, ``carbon_g``, ``least_goodput``, ``carbon_g_per_kwh`` and
        ``price_per_kwh``: ``"+2kW"``, ``"-10%"``, ``"=5000"`` or ``"none"``; a number is the new value.
    gpus : mapping of str to str or float
        Changes of the GPUs of pools.
    remove : sequence of str
        Jobs that are taken out, and with them the sets that they are in.
    time_limit : float, optional
        Wall-clock seconds for both decisions.
    **options
        As for `wattsched.solve`.

    Raises
    ------
    ValueError, wattsched.InputError
        For changes that are none, unknown names, and a round that is none afterwards.
    """
    require_types(what_if, locals())
    timer, one = Timer(seconds_of("time_limit", time_limit)), _round(instance)
    numbers, of_pools = _texts(changes), _texts(gpus)
    other = changed(one, numbers, of_pools, remove)
    sound_instance(other)
    before = solve(one, time_limit=timer.share(0.5).limit_s, **options)
    after = _solved(other, timer, before, **options)
    told = numbers | {f"gpus.{name}": text for name, text in of_pools.items()}
    told |= {"remove": ", ".join(remove)} if remove else {}
    jobs = _differences(one, other, before, after)
    return WhatIf(instance=one.name, changes=told, before=before, after=after, jobs=jobs)


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
        A number that `what_if` changes.
    values : sequence of float
        At most 200.
    time_limit : float, optional
        Wall-clock seconds for all; those to come share what is left.
    **options
        As for `wattsched.solve`.

    Raises
    ------
    ValueError, wattsched.InputError
        For an unknown field, a value that it cannot have, and for no values or too many.
    """
    require_types(sweep, locals())
    require_known("field", field, FIELDS)
    timer, one = Timer(seconds_of("time_limit", time_limit)), _round(instance)
    require_range(0 < len(values) <= MOST_POINTS, "values", f"1 to {MOST_POINTS} of them", len(values))
    rounds = [changed(one, _texts({field: value})) for value in values]
    results = list[Result]()
    for left, each in zip(range(len(values), 0, -1), rounds, strict=True):
        sound_instance(each)
        decided = next((result for result in reversed(results) if result.solved), None)
        results.append(_solved(each, timer.share(1.0 / left), decided, conflict=0.0, **options))
    return Sweep(instance=one.name, field=field, values=[*map(float, values)], results=results)


def _round(instance: Instance | str | Path) -> Instance:
    found: Instance = sound_instance(instance)[0]
    require("instance", found, (Instance,), "a round of sizing")
    return found


def _texts(changes: Mapping[str, Change] | None) -> dict[str, str]:
    return {name: one if isinstance(one, str) else f"={one!r}" for name, one in (changes or {}).items()}


def _solved(instance: Instance, timer: Timer, earlier: Result | None, **options: Any) -> Result:
    """Return the result of a round in what is left of the time, from an earlier decision if there is one."""
    start = earlier if earlier is not None and earlier.solved else None
    limit_s = None if timer.limit_s is None else max(_LEAST_S, timer.remaining_s() or 0.0)
    return solve(instance, time_limit=limit_s, initial_solution=start, **options)


def _differences(one: Instance, other: Instance, before: Result, after: Result) -> list[JobDifference]:
    """Jobs of two decisions that do something else, those first whose completion changes most."""
    if before.decision is None or after.decision is None:
        return []
    first, second = ({job.job: job for job in result.decision.jobs} for result in (before, after))
    there = other.by_column().place
    names = [name for name in one.by_column().names if first.get(name) != second.get(name)]
    names += [name for name in one.by_column().names if name not in there and name not in first]
    done_s = [
        completion_times_s(of, [running[name] for name in names if name in running])
        for of, running in ((one, first), (other, second))
    ]
    found = [
        JobDifference(
            job=name,
            change=_change(first.get(name), second.get(name)) if name in there else "is taken out",
            before=doing(first.get(name), second.get(name)),
            after=doing(second.get(name), first.get(name)) if name in there else "",
            done_before_s=done_s[0].get(name),
            done_after_s=done_s[1].get(name),
        )
        for name in names
    ]
    return sorted(found, key=lambda job: (-abs(job.later_s), job.job))


def doing(job: Assignment | None, other: Assignment | None = None) -> str:
    """Say what a job does, of its batch size only where it is another one."""
    if job is None:
        return "waits"
    batch = job.batch_size if other is None or other.batch_size != job.batch_size else None
    parts = [f"{job.gpus} {job.pool}", setting(job.frequency_mhz, job.power_limit_w)]
    parts += [f"batch {batch}" if batch else "", f"in {job.set}" if job.set else ""]
    return ", ".join(filter(None, parts))


def _change(before: Assignment | None, after: Assignment | None) -> Any:
    if before is None or after is None:
        return "starts" if before is None else "stops"
    if before.pool == after.pool and before.gpus != after.gpus:
        return "grows" if after.gpus > before.gpus else "shrinks"
    return "moves" if before.nodes != after.nodes else "is set otherwise"
