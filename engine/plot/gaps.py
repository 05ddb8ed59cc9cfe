"""Gaps and times of solvers: over time, and over many instances."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wattsched.comparisons.compare import Comparison
from wattsched.comparisons.run import Run
from wattsched.comparisons.statistics import LEAST_GAP, MOST_GAP, gaps, times
from wattsched.comparisons.statistics import performance_profile as profile_of
from wattsched.comparisons.trajectories import gap_bands
from wattsched.instances.errors import require_range
from wattsched.plot.style import Axes, Look, axes_for, finished, logarithmic, unit_of_time
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.outcome import Outcome
from wattsched.report.wording import count
from wattsched.topology.arrays import FloatArray

Measures = Mapping[str, Mapping[str, float]]
LOGGED = re.compile(r"\s*([\d.]+) s  .*, gap ([\d.e+-]+)$")
"""A line that tells of a better decision: seconds and gap."""
SHARE = "instances, %"
MOST_BANDS = 6
"""Solvers up to which bands are drawn; of more, which cover each other, only the medians are."""


def gap_over_time(
    found: Comparison | Mapping[str, Sequence[str] | Sequence[Sequence[float]]] | Sequence[Outcome],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw how good decisions were known to be, over time.

    Parameters
    ----------
    found : Comparison, mapping of str to lines or (seconds, gaps), or sequence of Outcome
        What `wattsched.compare` gives: of each formulation and solver the median gap between its own decision
        and bound over all instances and seeds, and a band in which 80 % of the runs are. Or of each solver
        the lines that ``wattsched.solve(..., log=lines.append)`` told, of which those count that begin with
        seconds and end with a gap; or the seconds at which it knew a better decision or bound, ascending,
        and the gap from then on, nan or infinity before there is one. Or replays, whose
        rounds have a certified gap each: one dot for a round.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Time in seconds, minutes, hours or days, of a comparison logarithmic; relative gap, logarithmic down
        to the smallest, and then 0, which stands for less than 1e-9, too.

    Raises
    ------
    ValueError, TypeError
        For nothing to draw, times and gaps that are not one for each, negative gaps, and arguments of
        another type.
    """
    require_types(gap_over_time, locals())
    if isinstance(found, Comparison):
        return _draw_bands(found, axes_for(ax))
    courses = _courses(found)
    axes = axes_for(ax)
    known = [times_s[np.isfinite(of)] for times_s, of in courses.values()]
    last_s = max(float(times_s.max()) for times_s, _ in courses.values())
    unit, unit_s = unit_of_time(last_s)
    for number, (name, (times_s, of)) in enumerate(courses.items()):
        look, of = Look.of(number), np.where(np.isfinite(of), np.where(of > LEAST_GAP, of, 0.0), np.nan)
        if isinstance(found, Mapping):
            when, shown = np.append(times_s, 1.03 * last_s) / unit_s, np.append(of, of[-1])
            axes.step(when, shown, where="post", label=name, **look._asdict())
        else:
            axes.plot(times_s / unit_s, of, ".", color=look.color, markersize=3, label=name)
    require_range(any(map(len, known)), "found", "with a gap at least", "none")
    _gap_axis(axes, "y", [gap for _, of in courses.values() for gap in of[np.isfinite(of)].tolist()])
    begin = "the beginning" if isinstance(found, Mapping) else "the first arrival"
    return finished(axes, f"time from {begin}, {unit}", "gap", x=0.01)


def _draw_bands(comparison: Comparison, axes: Axes) -> Axes:
    """Draw the median and the spread of the runs' gaps over time, by formulation and solver."""
    bands = gap_bands(comparison.runs)
    require_range(bool(bands), "found", "with a run at least that was not skipped", "none")
    begin_s = min(band.time_s[np.isfinite(band.low)].min(initial=np.inf) for band in bands.values())
    last_s = max(band.time_s[-1] for band in bands.values())
    # Whole powers of ten, so that these are what the axis names.
    first_s = 10.0 ** math.floor(math.log10(min(begin_s, last_s)))
    last_s = 10.0 ** math.ceil(math.log10(1.01 * last_s))
    known = [
        gaps[np.isfinite(gaps)] for band in bands.values() for gaps in (band.low, band.median, band.high)
    ]
    most = _gap_axis(axes, "y", [_shown(gap) for gap in np.concatenate(known).tolist()])
    for number, (pair, band) in enumerate(bands.items()):
        look, there = Look.of(number), np.isfinite(band.median)
        low, median, high = (
            np.array([_shown(gap) for gap in gaps]) for gaps in (band.low, band.median, band.high)
        )
        axes.step(band.time_s, np.where(there, median, np.nan), where="post", label=pair, **look._asdict())
        if len(bands) <= MOST_BANDS:
            within: dict[str, Any] = {"step": "post", "color": look.color, "alpha": 0.15, "linewidth": 0}
            axes.fill_between(band.time_s, low, np.minimum(high, most), where=there, **within)
    logarithmic(axes)
    axes.set_xlim(first_s, last_s)
    runs = count(max(band.runs for band in bands.values()), "run")
    drawn = "median and 10 to 90 %" if len(bands) <= MOST_BANDS else "median"
    return finished(axes, "time to build and solve, seconds", "gap", f"{drawn} of {runs}")


def performance_profile(
    found: Comparison | Sequence[Run] | Mapping[str, Mapping[str, float]],
    *,
    what: str = "solve time",
    time_limit_s: float | None = None,
    gap: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a performance profile (Dolan and Moré 2002): share of the instances within a factor of the best.

    Parameters
    ----------
    found : Comparison, sequence of Run, or mapping of str to mapping of str to float
        What `wattsched.compare` gives, of which solve times are drawn; or a measure above 0, of which less
        is better, by solver, then instance, infinite where it failed.
    what : str
        What a mapping measures, for the label.
    time_limit_s, gap : float, optional
        Limit in seconds, and gap that counts as solved, of a mapping; runs know theirs. Both stand below.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Multiple of the best, logarithmic; share of the instances in percent.

    Raises
    ------
    ValueError, TypeError
        For no runs, measures that are not above 0, and arguments of another type.
    """
    require_types(performance_profile, locals())
    axes, (measures, note) = axes_for(ax), _measured(found, times, time_limit_s, gap)
    instances = _instances(measures, lambda value: value > 0, "above 0")
    what = what if isinstance(found, Mapping) else "time to build and solve"
    profile = profile_of(measures)
    finite = [ratios[np.isfinite(ratios)] for ratios in profile.values()]
    most = 1.5 * max((float(ratios.max(initial=1.0)) for ratios in finite), default=1.0) + 1.0
    for i, (name, within) in enumerate(zip(profile, finite, strict=True)):
        _draw_shares(axes, name, i, within, instances, 1.0, most)
    logarithmic(axes)
    axes.set(xlim=(1.0, most), ylim=(0, 103))
    return finished(axes, f"{what}, as a multiple of the best", SHARE, note)


def gap_profile(
    found: Comparison | Sequence[Run] | Mapping[str, Mapping[str, float]],
    *,
    time_limit_s: float | None = None,
    gap: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of the instances that end with a gap of at most so much.

    Parameters
    ----------
    found : Comparison, sequence of Run, or mapping of str to mapping of str to float
        What `wattsched.compare` gives; or gaps by solver, then instance, infinite where there is none. Gaps
        above 10 count as 10, and the axis says so.
    time_limit_s, gap : float, optional
        Limit in seconds, and gap asked for, of a mapping; runs know theirs. Both stand below.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Relative gap, logarithmic down to the smallest, and then 0, which stands for less than 1e-9, too;
        share of the instances in percent.

    Raises
    ------
    ValueError, TypeError
        For no runs, negative gaps, and arguments of another type.
    """
    require_types(gap_profile, locals())
    axes, (measures, note) = axes_for(ax), _measured(found, gaps, time_limit_s, gap)
    instances = _instances(measures, lambda value: value >= 0, "at least 0")
    known = {
        name: np.sort([_shown(value) for value in of.values() if math.isfinite(value)])
        for name, of in measures.items()
    }
    together = [float(value) for of in known.values() for value in of]
    most = _gap_axis(axes, "x", together)
    for i, (name, within) in enumerate(known.items()):
        _draw_shares(axes, name, i, within, instances, 0.0, most)
    axes.set(xlim=(0.0, most), ylim=(0, 103))
    more = f" ({MOST_GAP:g} stands for more)" if MOST_GAP in together else ""
    return finished(axes, f"gap{more}", SHARE, note)


def _courses(found: Any) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Seconds and gaps by name, of what `gap_over_time` takes."""
    require_range(len(found) > 0, "found", "of one solver or replay at least", "none")
    if not isinstance(found, Mapping):
        rounds = {outcome.policy: (outcome.rounds, outcome.begin_s) for outcome in found}
        return {
            name: (np.array(of.time_s) - begin_s, np.array(of.gap)) for name, (of, begin_s) in rounds.items()
        }
    courses = {}
    for name, course in found.items():
        if len(course) and all(isinstance(line, str) for line in course):
            seen = [(float(one[1]), float(one[2])) for line in course if (one := LOGGED.match(line))]
            wanted = "of a decision with a gap at least"
            require_range(bool(seen), f"found: lines of '{name}'", wanted, "none")
            course = [*zip(*seen, strict=True)]
        require_range(
            len(course) == 2, f"found: '{name}'", "lines, or seconds and gaps", f"{len(course)} parts"
        )
        times_s, of = (np.array(values, dtype=float) for values in course)
        several = f"{len(times_s)} and {len(of)}"
        require_range(0 < len(times_s) == len(of), f"found: '{name}'", "as many seconds as gaps", several)
        ascends = bool(np.isfinite(times_s).all() and np.all(np.diff(times_s) >= 0) and times_s[0] >= 0)
        require_range(ascends, f"found: seconds of '{name}'", "at least 0 and ascending", times_s.tolist())
        require_range(not np.any(of < 0), f"found: gaps of '{name}'", "at least 0", of.min())
        courses[name] = times_s, of
    return courses


def _shown(gap: float) -> float:
    """Gap as it is drawn: none where it is rounding, and not beyond what makes sense."""
    return min(gap, MOST_GAP) if gap > LEAST_GAP else 0.0


def _measured(
    found: Any, measure: Callable[[list[Run]], Measures], time_limit_s: float | None, gap: float | None
) -> tuple[Measures, str]:
    """Measures that are given, or by `measure` those of runs that were not skipped; of what, in words."""
    for name, value in (("time_limit_s", time_limit_s), ("gap", gap)):
        require_range(value is None or value >= 0, name, "at least 0", value)
    if isinstance(found, Mapping):
        instances = len({name for by_instance in found.values() for name in by_instance})
        return found, _note(count(instances, "instance"), time_limit_s, gap)
    runs = found.runs if isinstance(found, Comparison) else found
    tried = [run for run in runs if run.status != "skipped"]
    require_range(bool(tried), "found", "with a run at least that was not skipped", "none")
    limits = {run.time_limit_s for run in tried if run.time_limit_s is not None}
    of, seeds = count(len({run.instance for run in tried}), "instance"), len({run.seed for run in tried})
    of += f", {seeds} seeds" if seeds > 1 else ""
    return measure(tried), _note(of, max(limits, default=None), max(run.gap_asked for run in tried))


def _instances(measures: Measures, holds: Callable[[float], bool], expected: str) -> int:
    """Number of instances; refuses a measure that does not hold, which means it is not as `expected`."""
    instances = {name for by_instance in measures.values() for name in by_instance}
    require_range(bool(instances), "found", "of one instance at least", "none")
    for solver, by_instance in measures.items():
        for instance, value in by_instance.items():
            require_range(holds(value), f"found: '{solver}' on '{instance}'", expected, value)
    return len(instances)


def _note(of: str, time_limit_s: float | None, gap: float | None) -> str:
    limit = "" if time_limit_s is None else f"limit {time_limit_s:g} s"
    return ", ".join(part for part in (of, limit, "" if gap is None else f"gap {gap:g}") if part)


def _gap_axis(axes: Axes, which: str, values: Sequence[float]) -> float:
    """Make the axis "x" or "y" one of gaps: logarithmic as far as there are any, then 0; return its end."""
    from matplotlib.ticker import NullLocator

    known = [value for value in values if math.isfinite(value) and value > LEAST_GAP]
    least, most = min(known, default=1e-4), max(known, default=1e-3)
    first, last = math.floor(math.log10(least) - 1e-9), math.ceil(math.log10(most) + 1e-9)
    end = max(2.0 * most, 10.0 ** (first + 1))
    scale = axes.set_xscale if which == "x" else axes.set_yscale
    axis = axes.xaxis if which == "x" else axes.yaxis
    # Powers of ten from one tick to the next, so that they do not touch each other.
    every = math.ceil((last - first + 1) / 5)
    scale("symlog", linthresh=10.0**first, linscale=0.6 * every)
    axis.set_ticks([0.0, *(10.0**k for k in range(last, first - 1, -every) if 10.0**k <= end)])
    axis.set_minor_locator(NullLocator())
    if which == "y":
        axes.set_ylim(0.0 if len(known) < len(values) else 10.0**first, end)
    return end


def _draw_shares(
    axes: Axes, name: str, number: int, within: FloatArray, instances: int, begin: float, end: float
) -> None:
    """Draw what share of the instances have at most each value of `within`, ascending, from begin to end."""
    share = 100 * np.arange(len(within) + 1) / instances
    look = Look.of(number)._asdict()
    axes.step([begin, *within, end], [*share, share[-1]], where="post", label=name, **look)
