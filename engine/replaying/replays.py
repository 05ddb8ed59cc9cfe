"""Replays of traces of jobs under policies and budgets: `replay_jobs`."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from wattsched.instances.errors import require_range
from wattsched.instances.io import write_atomically
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import read_bytes
from wattsched.replay.jobs.checkpoint import load, save
from wattsched.replay.jobs.outcome import Outcome, require_sound
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.job_sources import File
from wattsched.replaying.replay_settings import ReplaySettings, Scene
from wattsched.running.executors import Executor, SerialExecutor, in_order

CHECKPOINTS = "checkpoints"
OPTIONS = "options.json"
SUMMARY = "summary.json"
"""Written last by the command line: where it is, all results are those of one command."""


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
        common = {**self.options, **vars(settings)}
        folder, options = self._checkpoints, {name: _value(value) for name, value in common.items()}
        if self.resume:
            _require_same(folder / OPTIONS, options)
        folder.mkdir(parents=True, exist_ok=True)
        # What a replay was writing when it was killed (`instances.io.write_atomically`).
        for pattern in (".*.tmp",) if self.resume else (".*.tmp", "*.running", "*.done"):
            for file in folder.glob(pattern):
                file.unlink(missing_ok=True)
        if not self.resume:
            for older in Path(self.folder).glob(f"*/**/{CHECKPOINTS}/{OPTIONS}"):
                older.unlink(missing_ok=True)
            (Path(self.folder) / SUMMARY).unlink(missing_ok=True)
            write_atomically(folder / OPTIONS, json.dumps(options, indent=1).encode() + b"\n")

    def within(self, folder: str) -> Journal:
        """Journal of a folder below, which goes on where there is one."""
        below = replace(self, folder=Path(self.folder) / folder)
        begun = any(Path(below.folder).glob(f"**/{CHECKPOINTS}/{OPTIONS}"))
        return replace(below, resume=self.resume and begun)

    @property
    def _checkpoints(self) -> Path:
        return Path(self.folder) / CHECKPOINTS

    def require_seen(self) -> None:
        """Refuse, by a ValueError, to begin a replay on a machine that does not share the folder."""
        if not (self._checkpoints / OPTIONS).exists():
            message = f"'{self.folder}' is not there on {platform.node()}"
            raise ValueError(f"folder: {message}; all workers need to share it")

    def file(self, replay: Replay, seed: int, suffix: Literal["running", "done"]) -> Path:
        """Return the path of the file in which a replay is kept."""
        return self._checkpoints / f"{replay.name}-{seed}.{suffix}"


def _value(value: object) -> str:
    """Option as text; of a file, what is in it counts."""
    if isinstance(value, str | Path) and os.path.isfile(value):
        with Path(value).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        return f"{Path(str(value)).name} (sha256 {digest})"
    if isinstance(value, tuple):
        # A quantity and its amount.
        return "=".join(map(str, value))
    return "(not given)" if value is None else str(value)


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
    else:  # of other processes, whose working folder may be another one
        progress = _untold
        journal = journal and replace(journal, folder=Path(journal.folder).absolute())
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
        for _ in _steps(replay, seed, progress):
            pass
        return seed, replay.outcome()
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
    due_s = time.monotonic() + journal.checkpoint_s
    with _blaming(kept):
        for _ in _steps(replay, seed, progress):
            if time.monotonic() >= due_s:
                save(running, replay)
                due_s = time.monotonic() + journal.checkpoint_s
        outcome = replay.outcome()
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
        message = f"cannot go on from it: {why}; delete it to begin that replay again"
        raise ValueError(f"{kept}: {message}") from error


def _untold(replay: Replay, seed: int, resumed: bool) -> None:
    """Tell nobody."""


def _steps(replay: Replay, seed: int, progress: Progress) -> Iterator[None]:
    """Take all steps of a replay, one after the other."""
    progress(replay, seed, False)
    while replay.step():
        progress(replay, seed, False)
        yield
