"""Bounds on what any policy could reach on a trace: `replay_bound`, `read_replay_bound`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from wattsched.instances.clairvoyant import FORMAT, ClairvoyantBound
from wattsched.instances.errors import InputError, require_range, shown, validated
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.bound.clairvoyant import Parts, bound_of, parts_of
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.replay_settings import ReplaySettings, Scene
from wattsched.results.documents import read_document
from wattsched.verification.clairvoyant import proven_again

SAME = 1e-9
"""So close, relative to their size, two numbers of a trace are the same: processors differ in last digits."""


def replay_bound(
    trace: Trace,
    *,
    settings: ReplaySettings | None = None,
    completion_s: Sequence[float] = (),
    time_limit: float | None = None,
    progress: Callable[[float, int], None] = lambda mean_s, slots: None,
) -> ClairvoyantBound:
    """Bound the mean completion time of every schedule of a trace, and its energy at given ones.

    The schedules may preempt, move and resize jobs at any time and at no cost, and know all jobs to come. No
    two jobs share GPUs, and each runs in configurations whose rates count the same progress.

    Parameters
    ----------
    trace : Trace
    settings : ReplaySettings, optional
        Of the replays that are held against it; budget, carbon and sleep count.
    completion_s : sequence of float
        Mean completion times, of policies say, at which the energy of the cluster is bounded, too.
    time_limit : float, optional
        Seconds after which it ends with the bound that it has, which is true whenever it ends.
    progress : callable
        Told of the bound on the mean completion time, in seconds, and of the number of slots.

    Raises
    ------
    ValueError
        For a trace without jobs, values out of range, and jobs that draw less than idle GPUs where energy
        counts.
    """
    require_types(replay_bound, locals())
    require_range(len(trace) > 0, "trace", "of one job at least", "none")
    for mean_s in completion_s:
        require_range(0 < mean_s < math.inf, "completion_s", "above 0 and finite", mean_s)
    require_range(time_limit is None or time_limit > 0, "time_limit", "above 0", time_limit)
    until = math.inf if time_limit is None else time.monotonic() + time_limit
    return bound_of(
        _parts(trace, settings, energy=len(completion_s) > 0),
        completion_s,
        until=until,
        progress=lambda total_s, slots: progress(total_s / len(trace), slots),
    )


def is_replay_bound(document: Any) -> bool:
    """True if a parsed document is a bound on the schedules of a trace, of this format or another."""
    family = FORMAT.partition("/")[0]
    return isinstance(document, dict) and str(document.get("format")).partition("/")[0] == family


def replay_bound_of(document: Any, source: str = "") -> ClairvoyantBound:
    """Validate a parsed document as a bound of a trace's schedules; an `InputError` has its faults."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = shown(document.get("format")) if isinstance(document, dict) else "none"
        raise InputError([f"format: expected '{FORMAT}', found {found}"], source)
    return validated(ClairvoyantBound, document, source)


def read_replay_bound(
    path: str | Path, trace: Trace | None = None, settings: ReplaySettings | None = None
) -> ClairvoyantBound:
    """Read a bound on the schedules of a trace, and prove it again from its prices.

    What it gives has no claim above what the prices prove here, of the trace where there is one.

    Parameters
    ----------
    path : path
    trace : Trace, optional
        Whose schedules it must be about: same jobs, configurations, GPUs and idle draw.
    settings : ReplaySettings, optional
        Of replays of that trace; budget, carbon and sleep must be those of the bound.

    Raises
    ------
    TypeError
        For what is no path, trace or settings.
    ValueError
        For settings without a trace, and a trace that has no such bound.
    InputError
        With one line per fault, per claim that the prices do not prove, or per part that is of another trace.
    """
    require_types(read_replay_bound, locals())
    require_range(trace is not None or settings is None, "settings", "given with a trace", "alone")
    bound, unlike = replay_bound_of(read_document(path), str(path)), list[str]()
    if trace is not None:
        own = _parts(trace, settings, energy=len(bound.proofs) > 1)
        unlike += chain.from_iterable(_unlike(getattr(bound, name), part, name) for name, part in own.items())
        if not unlike:  # Of numbers that differ in last digits those of the trace count.
            bound = bound.model_copy(update=dict(own))
    bound, faults = proven_again(bound)
    if faults or unlike:
        raise InputError([*faults, *unlike], str(path))
    return bound


def require_boundable(trace: Trace, settings: ReplaySettings | None = None, *, energy: bool = False) -> None:
    """Refuse a trace that `replay_bound` has no bound for, with its errors, before anything is computed."""
    _parts(trace, settings, energy=energy)


def _parts(trace: Trace, settings: ReplaySettings | None, *, energy: bool) -> Parts:
    scene = Scene.of(trace, settings or ReplaySettings())
    return parts_of(trace, scene.context.budget, scene.sleep, energy=energy)


def _unlike(stated: Any, own: Any, place: str) -> Iterator[str]:
    """Yield the places at which a part of a bound differs from that of a trace."""
    if isinstance(stated, BaseModel) and isinstance(own, BaseModel):
        stated, own = dict(stated), dict(own)
    if isinstance(stated, dict) and isinstance(own, dict):
        for name in sorted({*stated, *own}):
            yield from _unlike(stated.get(name), own.get(name), f"{place}.{name}")
    elif isinstance(stated, list) and isinstance(own, list):
        if len(stated) != len(own):
            yield _differ(place, f"{len(stated):,}", f"{len(own):,}")
            return
        for number, pair in enumerate(zip(stated, own, strict=True)):
            yield from _unlike(*pair, f"{place}[{number}]")
    elif isinstance(stated, float) and isinstance(own, float):
        if not math.isclose(stated, own, rel_tol=SAME):
            yield _differ(place, f"{stated:.9g}", f"{own:.9g}")
    elif stated != own:
        kinds = [
            "one" if isinstance(part, BaseModel) else "none" if part is None else shown(part)
            for part in (stated, own)
        ]
        yield _differ(place, *kinds)


def _differ(place: str, stated: str, own: str) -> str:
    return f"{place}: {stated} in the file, {own} in this replay"
