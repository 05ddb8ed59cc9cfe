"""Replays of traces of jobs under policies and budgets: `replay_jobs`."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from numbers import Real
from pathlib import Path
from typing import Literal

from wattsched.arguments import require_types
from wattsched.executors import Executor, SerialExecutor, in_order
from wattsched.inputs import read_bytes
from wattsched.instances.errors import naming, require_range
from wattsched.instances.io import write_atomically
from wattsched.instances.traces.carbon import read_carbon, utc_time
from wattsched.instances.units import S_PER_DAY
from wattsched.job_sources import File
from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.budget import PACINGS, Budget, Pacing, Quantity, require_quantity
from wattsched.replay.jobs.checkpoint import Checkpoints, load, save
from wattsched.replay.jobs.outcome import Outcome, require_sound
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace

LEAST_ROUND_S = 1e-3

CHECKPOINTS = "checkpoints"
OPTIONS = "options.json"
SUMMARY = "summary.json"
"""Written last by the command line: where it is, all results are those of one command."""


@dataclass(frozen=True)
class ReplaySettings:
    """How traces are replayed, and under which limits.

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
        Column of the file of --carbon.
    start : str, optional
        When the first job arrives, by the clock of files over time (default: when they begin).
    budget : tuple of str and float, optional
        Of every period, idle GPUs and nodes included: energy_j (joules), carbon_g (grams) or money.
    period_s : float
        After which the budget is renewed: hour, day, week or seconds.
    pacing : {"even", "price", "none"}
        Whether a period's budget is spent in proportion to time, at a price that sizing learns (others
        spend in proportion then), or is a hard total, which policies may spend at any time.
    tariff : float, str or Path, optional
        Money per kWh, or a file of it over time (.csv).
    least_price : float
        Seconds of completion time that a joule (of a budget: a unit) is worth to sizing.
    sleep_after_s : float, optional
        Nodes without a job sleep after S seconds.
    sleep_power_w : float
        Draw of a sleeping node.
    wake_s : float
        Seconds that a node takes to wake.
    gap : float
        Gap of each round's program.

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
    sleep_after_s: float | None = None
    sleep_power_w: float = 0.0
    wake_s: float = 0.0
    gap: float = 5e-3

    def __post_init__(self) -> None:
        require_types(ReplaySettings, vars(self))
        for name, value in vars(self).items():
            if isinstance(value, Real):
                require_range(0 <= float(value) <= sys.float_info.max, name, "at least 0 and finite", value)
        require_range(self.gap < 1, "gap", "below 1", self.gap)
        require_range(self.period_s > 0, "period_s", "above 0", self.period_s)
        if 0 < self.round_s < LEAST_ROUND_S:
            raise ValueError(f"round_s: must be 0 or at least {LEAST_ROUND_S:g}, got {self.round_s:g}")
        if self.zone is not None and not isinstance(self.carbon, str | Path):
            raise ValueError("`zone` is a column of a file of intensities, but `carbon` names no file")
        if self.start is not None and not any(isinstance(f, str | Path) for f in (self.carbon, self.tariff)):
            raise ValueError("`start` is a time in a file, but neither `carbon` nor `tariff` names one")
        self._start()
        quantity, amount = self.budget or (None, 1.0)
        require_range(0 < amount < math.inf, "budget", "of an amount above 0 and finite", amount)
        if quantity is not None:
            require_quantity(quantity)
        if self.pacing not in PACINGS:
            raise ValueError(f"pacing: must be one of {', '.join(PACINGS)}, got '{self.pacing}'")
        if quantity is None and self.pacing != "even":
            raise ValueError("`pacing` needs `budget`, which it belongs to")
        if quantity == "carbon_g" and self.carbon == 0.0:
            raise ValueError("budget: carbon_g needs `carbon`, without which nothing is emitted")
        if quantity == "money" and self.tariff is None:
            raise ValueError("budget: money needs `tariff`, what a kWh costs")
        if quantity != "money" and self.tariff is not None:
            no_use = "needs `budget`, which it belongs to"
            raise ValueError(f"`tariff` {f'does not go with a budget of {quantity}' if quantity else no_use}")

    def _start(self) -> datetime | None:
        """Time of the first arrival, where it is told."""
        try:
            return None if self.start is None else utc_time(self.start)
        except ValueError as error:
            raise ValueError(f"start: {error}") from None

    def over_time(self, asked: float | File, begin_s: float, column: str | None = None) -> Carbon:
        """What a kWh emits or costs from the first arrival on, or the same all the time."""
        if not isinstance(asked, str | Path):
            return Carbon.constant(float(asked))
        with naming(asked):
            return Carbon.of(read_carbon(asked, column), begin_s, self._start())


@dataclass(frozen=True)
class Scene:
    """A trace, and all that its replays under any policy have in common.

    Attributes
    ----------
    context : PolicyContext
    carbon : Carbon
    sleep : Sleep, optional
    """

    context: PolicyContext
    carbon: Carbon
    sleep: Sleep | None

    @classmethod
    def of(cls, trace: Trace, settings: ReplaySettings) -> Scene:
        """Read what settings name for a trace."""
        begin_s, nap_s = float(trace.arrival_s[0]), settings.sleep_after_s
        carbon = settings.over_time(settings.carbon, begin_s, settings.zone)
        context = PolicyContext(
            trace,
            Restarts(settings.process_restart_s, settings.pod_restart_s),
            settings.round_s,
            settings.gap,
            _budget(settings, carbon, begin_s),
            settings.least_price,
        )
        sleep = None if nap_s is None else Sleep(nap_s, settings.sleep_power_w, settings.wake_s)
        return cls(context, carbon, sleep)

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
        )


def _budget(settings: ReplaySettings, carbon: Carbon, begin_s: float) -> Budget | None:
    if settings.budget is None:
        return None
    quantity, amount = settings.budget
    if quantity == "energy_j":
        return Budget.of_energy(amount, settings.period_s, settings.pacing)
    if settings.tariff is not None:
        carbon = settings.over_time(settings.tariff, begin_s)
    return Budget(quantity, amount, settings.period_s, carbon, settings.pacing)


@dataclass(frozen=True)
class Journal:
    """Keeps outcomes and checkpoints in a folder, so that a replay that was interrupted can go on.

    ``FOLDER/checkpoints`` holds ``POLICY-SEED.running`` and ``POLICY-SEED.done``.

    Parameters
    ----------
    folder : str or Path
        Is made. What is there of earlier replays is deleted, unless they go on.
    checkpoint_s : float
        Wall-clock seconds between checkpoints.
    resume : bool
        Go on with the replays that are not complete.
    options : mapping
        What all replays of the folder have in common besides their settings.
    """

    folder: File
    checkpoint_s: float = 30.0
    resume: bool = False
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_types(Journal, vars(self))
        require_range(self.checkpoint_s >= 0, "checkpoint_s", "at least 0", self.checkpoint_s)

    def open(self, settings: ReplaySettings) -> None:
        """Begin, or make sure that what is there is of the same options.

        Raises
        ------
        ValueError
            If there is nothing to go on with, or it is of other options.
        OSError
            When the folder cannot be written to.
        """
        common = {**self.options, **asdict(settings)}
        folder, options = self._checkpoints, {name: _value(value) for name, value in common.items()}
        if self.resume:
            _require_same(folder / OPTIONS, options)
        folder.mkdir(parents=True, exist_ok=True)
        # What a replay was writing when it was killed (`instances.io.write_atomically`).
        for pattern in (".*.tmp",) if self.resume else (".*.tmp", "*.running", "*.done"):
            for file in folder.glob(pattern):
                file.unlink(missing_ok=True)
        if not self.resume:
            (Path(self.folder) / SUMMARY).unlink(missing_ok=True)
            write_atomically(folder / OPTIONS, json.dumps(options, indent=1).encode() + b"\n")

    @property
    def _checkpoints(self) -> Path:
        return Path(self.folder) / CHECKPOINTS

    def elsewhere(self) -> Journal:
        """Journal as other processes name it: their working folder may be another one."""
        return replace(self, folder=Path(self.folder).absolute())

    def require_seen(self) -> None:
        """Refuse to begin a replay on a machine that does not share the folder.

        Raises
        ------
        ValueError
            If it is not there.
        """
        if not (self._checkpoints / OPTIONS).exists():
            told = f"'{self.folder}' is not there on {platform.node()}"
            raise ValueError(f"folder: {told}; all workers need to share it")

    def file(self, replay: Replay, seed: int, suffix: Literal["running", "done"]) -> Path:
        """Where a replay is kept."""
        return self._checkpoints / f"{replay.name}-{seed}.{suffix}"


def _value(value: object) -> str:
    """Option as text; of a file, what is in it counts."""
    if isinstance(value, str | Path) and os.path.isfile(value):
        with Path(value).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        return f"{Path(value).name} (sha256 {digest})"
    if isinstance(value, tuple):
        # A quantity and its amount.
        return "=".join(map(str, value))
    return "none" if value is None else str(value)


def _require_same(file: Path, options: Mapping[str, str]) -> None:
    try:
        there = json.loads(read_bytes(file))
    except FileNotFoundError:
        raise ValueError(f"resume: there is nothing to go on with in '{file.parent}'") from None
    except (OSError, ValueError, RecursionError):
        there = None
    if not isinstance(there, dict):
        raise ValueError(f"resume: cannot read '{file}'; leave `resume` out to begin again")
    for name in dict.fromkeys([*there, *options]):
        before, now = there.get(name), options.get(name)
        if before != now:
            raise ValueError(
                f"resume: the results in '{file.parent.parent}' are of `{name}` {before}, not {now}; "
                "choose another folder, or leave `resume` out to begin again"
            )


Progress = Callable[[Replay, int, bool], None]
"""Told of a replay, its seed, and whether it goes on from a checkpoint: at its begin and after every step."""


def replay_jobs(
    traces: Trace | Mapping[int, Trace],
    policies: Sequence[str] = ("sizing",),
    *,
    settings: ReplaySettings | None = None,
    journal: Journal | None = None,
    executor: Executor | None = None,
    progress: Progress = lambda replay, seed, resumed: None,
) -> Iterator[tuple[int, Outcome]]:
    """Replay traces under every policy, one after the other.

    Parameters
    ----------
    traces : Trace, or mapping of int to Trace
        By seed (of one trace: 0), as `JobSource.traces` gives them.
    policies : sequence of str
        Names of `replay.jobs.policies`, with ``+zeus`` or without.
    settings : ReplaySettings, optional
    journal : Journal, optional
        Where outcomes and checkpoints are kept; default: nowhere. Workers of an executor write there, too.
    executor : Executor, optional
        Does the replays (`wattsched.dask_executor`); default: this process, one after the other.
    progress : callable
        As `Progress`; not told of what an executor does.

    Returns
    -------
    iterator of (int, Outcome)
        Seed and outcome, policy by policy; each is replayed when it is asked for, by an executor all are when
        the first is.

    Raises
    ------
    ValueError
        At once, before anything is written, if a policy does not take the trace, the cluster cannot keep to
        the budget or sleep as asked, or the journal is of other options; later, if a policy breaks the rules,
        a checkpoint is damaged, or an executor cannot go on (`ClusterError`).
    """
    require_types(replay_jobs, locals())
    if not policies:
        raise ValueError("policies: name one at least")
    settings = settings or ReplaySettings()
    by_seed = {0: traces} if isinstance(traces, Trace) else traces
    require_range(bool(by_seed), "traces", "one at least", "none")
    scenes = {seed: Scene.of(trace, settings) for seed, trace in by_seed.items()}
    for policy in policies:
        next(iter(scenes.values())).replay(policy)
    for scene in scenes.values():
        scene.replay(policies[0])
    if journal is not None:
        journal.open(settings)
    if executor is None:
        executor = SerialExecutor()
    else:
        journal, progress = journal and journal.elsewhere(), _untold
    shared = {seed: executor.shared(scene) for seed, scene in scenes.items()}
    tasks = [
        (scene, policy, seed, journal, progress) for policy in policies for seed, scene in shared.items()
    ]
    return in_order(executor.completed(_outcome, tasks))


def _outcome(
    scene: Scene, policy: str, seed: int, journal: Journal | None, progress: Progress
) -> tuple[int, Outcome]:
    """Seed and outcome of a replay."""
    replay = scene.replay(policy)
    if journal is None:
        return seed, _stepped(replay, seed, progress, lambda _: None)
    journal.require_seen()
    return seed, _kept(replay, seed, journal, progress)


def _kept(replay: Replay, seed: int, journal: Journal, progress: Progress) -> Outcome:
    """Outcome of a replay, from where the journal has it."""
    running, done = journal.file(replay, seed, "running"), journal.file(replay, seed, "done")
    kept = next((file for file in (done, running) if file.exists()), None)
    if kept is not None:
        load(kept, replay)
    if kept == done:
        # Nobody is to be told of what is complete.
        progress = _untold
    if kept == running:
        progress(replay, seed, True)
    with _blaming(kept):
        outcome = _stepped(replay, seed, progress, Checkpoints(running, journal.checkpoint_s).keep)
        require_sound(outcome)
    if kept != done:
        save(done, replay)
        running.unlink(missing_ok=True)
    return outcome


@contextmanager
def _blaming(kept: Path | None) -> Iterator[None]:
    """Say of what fails that it went on from a file, in which anything may stand."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if kept is None:
            raise
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        told = f"cannot go on from it: {why}; delete it to begin that replay again"
        raise ValueError(f"{kept}: {told}") from error


def _untold(replay: Replay, seed: int, resumed: bool) -> None:
    """Tell nobody."""


def _stepped(replay: Replay, seed: int, progress: Progress, keep: Callable[[Replay], None]) -> Outcome:
    progress(replay, seed, False)
    while replay.step():
        progress(replay, seed, False)
        keep(replay)
    return replay.outcome()
