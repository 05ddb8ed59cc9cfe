"""Bounds on every schedule of what ``wattsched replay`` replays: proven, and what they say of policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattsched.cli.failures import notice, refusing
from wattsched.cli.files import counting
from wattsched.replay.jobs.policies import shares
from wattsched.replay_settings import ReplaySettings
from wattsched.report.wording import duration

if TYPE_CHECKING:
    from wattsched.instances.clairvoyant import ClairvoyantBound
    from wattsched.replay.jobs.outcome import Summary
    from wattsched.replay.jobs.trace import Trace


def bounds_of(
    traces: Mapping[int, Trace],
    found: Mapping[str, Sequence[Summary]],
    settings: ReplaySettings,
    limit_s: float | None,
    *,
    energy: bool,
    source: str,
) -> dict[int, ClairvoyantBound]:
    """Bounds on every schedule of each seed, and with `energy` on that at the mean of each policy.

    Parameters
    ----------
    source : str
        Of which file the traces are.
    """
    from wattsched.replay_bounds import replay_bound

    bounds = {}
    with counting() as show, refusing():
        for number, (seed, trace) in enumerate(traces.items()):
            means_s = [runs[number].jct_mean_s for name, runs in found.items() if not shares(name)]

            def told(mean_s: float, slots: int, seed: int = seed, done: int = number) -> None:
                show(f"bound, seed {seed}: {duration(mean_s)} in {slots:,} slots", done, len(traces))

            completion_s = means_s if energy else []
            given: dict[str, Any] = {"completion_s": completion_s, "time_limit": limit_s, "progress": told}
            proven = replay_bound(trace, settings=settings, **given)
            bounds[seed] = proven.model_copy(update={"source": f"{source}, seed {seed}"})
            if completion_s and len(bounds[seed].proofs) == 1:
                notice(f"seed {seed}: --bound-limit left no time for bounds on energy")
    return bounds


def bounds_from(
    folder: Path, traces: Mapping[int, Trace], settings: ReplaySettings
) -> dict[int, ClairvoyantBound]:
    """Bounds of each seed that an earlier replay left in a folder; they are proven again.

    Raises
    ------
    BadInput
        Where one is missing, claims more than it proves, or is of other schedules.
    """
    from wattsched.replay_bounds import read_replay_bound

    bounds = {}
    with counting() as show, refusing():
        for number, (seed, trace) in enumerate(traces.items()):
            show(f"proving the bound of seed {seed}", number, len(traces))
            bounds[seed] = read_replay_bound(folder / name_of(seed), trace, settings)
    return bounds


def name_of(seed: int) -> str:
    """File of the bound of a seed."""
    return f"bound-{seed}.json"


def stated(
    bound: ClairvoyantBound, found: Mapping[str, Sequence[Summary]], number: int
) -> dict[str, float | dict[str, float]]:
    """Return the bounds on mean completion time and energy for the runs of a seed."""
    own = {name: runs[number].jct_mean_s for name, runs in found.items() if not shares(name)}
    energy = {name: bound.energy_j(mean_s) for name, mean_s in own.items()} if len(bound.proofs) > 1 else {}
    return {"mean_completion_s": bound.mean_completion_s, "energy_j": energy}
