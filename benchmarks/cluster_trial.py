"""Shared parts of trials on real clusters: a changing cap, the process of wattsched, a table of figures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Asked, machine, say, table

IDLE_W, MOST_W, BASE_W = 50.0, 400.0, 200.0
SHARE_W = 250.0
"""Watts that a GPU may draw beyond idle under the first cap, on average."""

Events = list[tuple[float, Callable[[], Any]]]
"""Events, each with the share of the jobs that has to end before it."""
OF_ROUNDS = {
    "rounds": "rounds",
    "decision, ms": "decision, median ms",
    "round, s": "whole round with the cluster's commands, median s",
    "longest round, s": "longest round, s",
    "minutes": "minutes in all",
    "exit code": "exit code after SIGTERM",
}


@dataclass
class Scheduler:
    """Our process, which schedules a cluster under a cap; its files are in a folder.

    Attributes
    ----------
    command : tuple of str
        Words after ``wattsched``, and options that name files of the folder.
    caps : list of pairs
        Times from which caps are in force, and watts.
    unannounced : list of float
        Times of cuts that came without notice.
    """

    folder: Path
    command: tuple[str, ...]
    files: Mapping[str, str]
    env: Mapping[str, str] | None = None
    caps: list[tuple[float, float]] = field(default_factory=list)
    unannounced: list[float] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    def set_cap(self, power_w: float, notice_s: float = 0.0) -> None:
        """Set the cap, or announce it."""
        at_s = time.time() + notice_s
        document: dict[str, Any] = {"power_w": power_w}
        if notice_s:
            at = datetime.fromtimestamp(at_s, UTC).isoformat()
            document = {"power_w": self.caps[-1][1], "changes": [{"at": at, "power_w": power_w}]}
        elif self.caps:
            self.unannounced.append(at_s)
        (self.folder / "cap.new").write_text(json.dumps(document))
        (self.folder / "cap.new").rename(self.folder / "cap.json")
        self.caps.append((at_s, power_w))

    def cap_w(self, time_s: float) -> float:
        """The cap in force."""
        return [watts for since_s, watts in self.caps if since_s <= time_s][-1]

    def start(self) -> None:
        """Start it."""
        named = [word for option, file in self.files.items() for word in (option, str(self.folder / file))]
        words = [sys.executable, "-m", "wattsched", *self.command, "--apply", *named, "--json"]
        with (
            (self.folder / "scheduler.out").open("ab") as out,
            (self.folder / "rounds.jsonl").open("ab") as rounds,
        ):
            self._process = subprocess.Popen(words, env=self.env, stdout=rounds, stderr=out, cwd=self.folder)

    def end(self, how: int) -> int:
        """End it by a signal; its exit code."""
        assert self._process is not None
        self._process.send_signal(how)
        return self._process.wait(timeout=60)

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.end(signal.SIGKILL)
        self.start()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it; kill it in the end where it still runs, because the trial was ended."""
        self.start()
        try:
            yield
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def rounds(self) -> list[dict[str, Any]]:
        """Read the rounds that it reported."""
        found = list[dict[str, Any]]()
        for line in (self.folder / "rounds.jsonl").read_text().splitlines():
            try:
                document = json.loads(line)
            except ValueError:  # it was killed while it wrote
                continue
            found += [document] if "error" not in document else []
        return found

    def of_rounds(self) -> dict[str, Any]:
        """Figures of the rounds."""
        rounds = self.rounds()
        return {
            "rounds": len(rounds),
            "decision, ms": float(np.median([1000 * one["decided_s"] for one in rounds])),
            "round, s": float(np.median([one["took_s"] for one in rounds])),
            "longest round, s": max(one["took_s"] for one in rounds),
        }


def follow(ended: Callable[[], float], events: Events, limit_s: float, every_s: float) -> float:
    """Look on until all jobs have ended; events come when a share of them has. How long it took.

    Parameters
    ----------
    ended : callable
        Looks at the cluster, and gives the share of the jobs that have ended.
    """
    begun, left = time.monotonic(), list(events)
    while (share := ended()) < 1 and time.monotonic() - begun < limit_s:
        if left and share >= left[0][0]:
            left.pop(0)[1]()
        time.sleep(every_s)
    return time.monotonic() - begun


def trials(
    asked: Asked,
    run: Callable[..., dict[str, Any]],
    rows: Mapping[str, str],
    harmless: Collection[str],
    variants: Mapping[str, Mapping[str, Any]],
) -> str:
    """The table of the figures of each trial, and of several the worst, which is the most.

    Parameters
    ----------
    run : callable
        Runs a trial in a folder, of a seed; gives its figures.
    harmless : collection of str
        Figures of which more is no worse.
    variants : mapping
        Heading to arguments of `run`: every seed is run with each.
    """
    found = dict[str, dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        for heading, arguments in variants.items():
            for seed in range(1, asked.seeds + 1):
                column = f"{heading} seed {seed}".strip()
                # Slurm takes no commas in paths.
                (own := Path(folder) / column.replace(",", "").replace(" ", "-")).mkdir()
                found[column] = run(own, seed=seed, **arguments)
                say(f"{column}: {found[column]}")

    def shown(figure: Any) -> str:
        return f"{figure:.3f}" if isinstance(figure, float) else str(figure)

    lines = []
    for key, words in rows.items():
        figures = [one[key] for one in found.values()]
        lines.append((words, *map(shown, figures), "" if key in harmless else shown(max(figures))))
    return f"On {machine()}.\n\n{table(['what', *found, 'worst'], lines)}"
