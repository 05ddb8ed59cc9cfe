"""Results in a folder that are complete or under way, to go on with: ``wattsched replay -o DIR --resume``."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import BadInput, reason, refusing
from wattsched.cli.replay_options import shown

if TYPE_CHECKING:
    from wattsched.replay.jobs.checkpoint import Checkpoints
    from wattsched.replay.jobs.outcome import Outcome
    from wattsched.replay.jobs.simulation import Replay

FOLDER = "checkpoints"
OPTIONS = "options.json"
SUMMARY = "summary.json"
"""Written last: where it is, all results are those of one command."""
ELSEWHERE = frozenset(("policies", "seeds", "as_json", "output", "plot", "resume", "checkpoint_s", "parquet"))
"""Options that do not change what a policy does with a seed."""


class Journal:
    """Checkpoints of a folder of results: ``POLICY-SEED.running`` and ``POLICY-SEED.done``.

    Parameters
    ----------
    folder : str
        The folder of results; it is made.
    options : mapping
        What all replays have in common, by parameter.
    every_s : float
        Wall-clock seconds between checkpoints.
    resume : bool
        Go on with what is there; else it is deleted.
    """

    def __init__(self, folder: str, options: Mapping[str, str], every_s: float, *, resume: bool) -> None:
        self._folder = Path(folder) / FOLDER
        self._every_s = every_s
        if resume:
            _require_same(self._folder / OPTIONS, options)
            _remove_temporary(self._folder)
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _remove_temporary(self._folder)
            for file in (*self._folder.glob("*.running"), *self._folder.glob("*.done")):
                file.unlink()
            (Path(folder) / SUMMARY).unlink(missing_ok=True)
            _write(self._folder / OPTIONS, options)
        except OSError as error:
            raise BadInput(f"cannot write to '{self._folder}': {reason(error)}") from None

    def complete(self, replay: Replay, seed: int) -> Outcome | None:
        """Outcome of a replay that came to its end before."""
        from wattsched.replay.jobs.checkpoint import load
        from wattsched.replay.jobs.outcome import Outcome

        file = self._file(replay, seed, "done")
        if not file.exists():
            return None
        with refusing(str(file)):
            return load(file, Outcome, replay)

    def begun(self, replay: Replay, seed: int) -> Replay:
        """Replay as far as it came before."""
        from wattsched.replay.jobs.checkpoint import load
        from wattsched.replay.jobs.simulation import Replay

        file = self._file(replay, seed, "running")
        if not file.exists():
            return replay
        with refusing(str(file)):
            found = load(file, Replay, replay)
        jobs = f"{found.complete:,} of {len(found.trace):,} jobs complete"
        click.echo(f"{found.name}, seed {seed}: going on with {jobs}", err=True)
        return found

    def checkpoints(self, replay: Replay, seed: int) -> Checkpoints:
        """Checkpoints of a replay under way."""
        from wattsched.replay.jobs.checkpoint import Checkpoints

        return Checkpoints(self._file(replay, seed, "running"), self._every_s)

    def record(self, replay: Replay, seed: int, outcome: Outcome) -> None:
        """Keep an outcome in place of the checkpoint."""
        from wattsched.replay.jobs.checkpoint import save

        file = self._file(replay, seed, "done")
        try:
            save(file, outcome, replay)
            file.with_suffix(".running").unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write '{file}': {reason(error)}") from None

    def _file(self, replay: Replay, seed: int, suffix: str) -> Path:
        return self._folder / f"{replay.name}-{seed}.{suffix}"


def options_of(parameters: Mapping[str, object]) -> dict[str, str]:
    """Options that decide what happens in a replay; of files, what is in them counts."""
    return {name: _value(value) for name, value in parameters.items() if name not in ELSEWHERE}


def _value(value: object) -> str:
    if isinstance(value, str) and os.path.isfile(value):
        with refusing(value):
            return f"{Path(value).name} (sha256 {hashlib.sha256(Path(value).read_bytes()).hexdigest()[:16]})"
    if isinstance(value, tuple):
        # A quantity and its amount.
        return "=".join(map(str, value))
    return "none" if value is None else str(value)


def _require_same(file: Path, options: Mapping[str, str]) -> None:
    try:
        there = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"--resume: there is nothing to go on with in '{file.parent}'") from None
    except (OSError, ValueError, RecursionError):
        there = None
    if not isinstance(there, dict):
        raise BadInput(f"--resume: cannot read '{file}'; leave --resume out to begin again")
    for name in dict.fromkeys([*there, *options]):
        before, now = there.get(name), options.get(name)
        if before != now:
            raise BadInput(
                f"--resume: the results in '{file.parent.parent}' are of {shown(name)} {before}, not {now}; "
                "choose another folder, or leave --resume out to begin again"
            )


def _remove_temporary(folder: Path) -> None:
    """Remove what a replay was writing when it was killed (`instances.files.write_atomically`)."""
    for file in folder.glob(".*.tmp"):
        file.unlink(missing_ok=True)


def _write(file: Path, options: Mapping[str, str]) -> None:
    from wattsched.instances.io import write_atomically

    write_atomically(file, json.dumps(options, indent=1).encode() + b"\n")
