"""What trials of `wattsched` on real clusters share: a changing cap, our process, and a page of figures."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tables import machine, table, write

IDLE_W, MOST_W, BASE_W = 50.0, 400.0, 200.0


@dataclass
class Scheduler:
    """Our process, which schedules a cluster under a cap; its files are in a folder.

    Attributes
    ----------
    caps : list of pairs
        Times from which caps are in force, and watts.
    unannounced : list of float
        Times of cuts that came without notice.
    """

    folder: Path
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

    def start(self, *command: str, files: Mapping[str, str], env: Mapping[str, str] | None = None) -> None:
        """Start ``wattsched COMMAND --apply`` with options that name files of the folder."""
        named = [word for option, file in files.items() for word in (option, str(self.folder / file))]
        words = [sys.executable, "-m", "wattsched", *command, "--apply", *named, "--json"]
        with (
            (self.folder / "scheduler.out").open("ab") as out,
            (self.folder / "rounds.jsonl").open("ab") as rounds,
        ):
            self._process = subprocess.Popen(words, env=env, stdout=rounds, stderr=out, cwd=self.folder)

    def end(self, how: int) -> int:
        """End it by a signal; its exit code."""
        assert self._process is not None
        self._process.send_signal(how)
        return self._process.wait(timeout=60)

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it where it still runs, because the trial was ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def rounds(self) -> list[dict[str, Any]]:
        """What it told of its rounds."""
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


def page(found: Mapping[str, Mapping[str, Any]], rows: Mapping[str, str], harmless: Collection[str]) -> str:
    """The table of the figures of each trial, and of several the worst, which is the most.

    Parameters
    ----------
    found : mapping
        Heading of a column to its figures.
    harmless : collection of str
        Figures of which more is no worse.
    """

    def shown(figure: Any) -> str:
        return f"{figure:.3f}" if isinstance(figure, float) else str(figure)

    several = len(found) > 1
    told = []
    for key, words in rows.items():
        figures = [one[key] for one in found.values()]
        worst = ["" if key in harmless else shown(max(figures))] if several else []
        told.append((words, *map(shown, figures), *worst))
    return f"On {machine()}.\n\n{table(['what', *found, *(['worst'] if several else [])], told)}"


def run_and_write(
    name: str,
    described: str | None,
    sizes: Mapping[str, int],
    why_not: Callable[[], str],
    run: Callable[..., dict[str, Any]],
    rows: Mapping[str, str],
    harmless: Collection[str],
    variants: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Run a trial from the command line: ``--nodes``, another size, ``--seed`` and how many from there.

    Parameters
    ----------
    variants : mapping, optional
        Heading to arguments of `run`: every seed is run with each.
    """
    parser = argparse.ArgumentParser(
        description=described, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for size, usual in {**sizes, "seed": 1, "seeds": 1}.items():
        parser.add_argument(f"--{size}", type=int, default=usual)
    parser.add_argument("--keep", help="folder to keep everything in")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if why := why_not():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as made:
        folder = Path(asked.keep or made).resolve()
        os.makedirs(folder, exist_ok=True)
        found = dict[str, dict[str, Any]]()
        for heading, arguments in (variants or {"": {}}).items():
            for seed in range(asked.seed, asked.seed + asked.seeds):
                column = f"{heading} seed {seed}".strip()
                (own := folder / column.replace(" ", "-")).mkdir()
                found[column] = run(own, *(getattr(asked, size) for size in sizes), seed, **arguments)
                print(page({column: found[column]}, rows, harmless), flush=True)
    text = page(found, rows, harmless)
    print(text)
    if asked.write:
        write(name, text)
