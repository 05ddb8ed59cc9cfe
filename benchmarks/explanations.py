"""Explanations of waiting jobs: seconds, how many changes are proven least, and whether the checker agrees.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.explanations --write [--jobs 6]

Rounds are generated, or made from the ITP and Philly traces, and solved to a gap of 1e-4. Of each so many
waiting jobs are drawn and explained, in 60 s at most; each explanation is checked. Seconds are those of the
processor, on which one thread is at work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import Asked, machine, run, say, table
from benchmarks.real_rounds import ROUNDS, imported
from wattsched.results.documents import verdict_on_explanation

SEED = 601
FAMILIES = ("philly-like", "uniform", "sia-like", "hetero")
SIZES = (200, 5_000)
HEADER = ("round", "wait", "explained", "s, median", "worst", "whole", "changes", "proven least", "without",
          "check, s")  # fmt: skip


def rounds(asked: Asked) -> Iterator[tuple[str, Any]]:
    """Title and instance of each round."""
    for jobs in SIZES[:1] if asked.quick else SIZES:
        for family in FAMILIES[:1] if asked.quick else FAMILIES:
            racks = {"racks": 4} if family == "hetero" else {}
            yield f"`{family}`, {jobs:,} jobs", wattsched.generate(family, jobs=jobs, seed=SEED, **racks)
    with TemporaryDirectory() as folder:
        for title in () if asked.quick else ROUNDS:
            yield title, wattsched.read_instance(imported(Path(folder), title))


def row(title: str, instance: Any, jobs: int) -> list[str]:
    """Explain some of the waiting jobs of a round."""
    result = wattsched.solve(instance, time_limit=60.0)
    document = json.loads(result.model_dump_json())
    waiting = [name for name in result.decision.waiting if name not in result.dropped]
    drawn = np.random.default_rng(SEED).permutation(waiting)[:jobs].tolist()
    seconds, checks, changes, proven, none, whole = list[float](), list[float](), 0, 0, 0, 0
    for name in drawn:
        begun_s = time.process_time()
        found = wattsched.explain(instance, result, name, time_limit=60.0)
        seconds.append(time.process_time() - begun_s)
        begun_s = time.process_time()
        assert verdict_on_explanation(instance, document, found).faults == []
        checks.append(time.process_time() - begun_s)
        changes += len(found.alternatives)
        proven += sum(one.proven for one in found.alternatives)
        none += not found.alternatives
        whole += not found.unanswered
        say(f"{title}: {found.sentence}")
    if not drawn:
        return [title, "0", *["-"] * 8]
    share = f"{proven / changes:.0%}" if changes else "-"
    times = f"{np.median(seconds):.2f}", f"{max(seconds):.2f}"
    told = [f"{len(waiting):,}", str(len(drawn)), *times, str(whole), str(changes), share, str(none)]
    return [title, *told, f"{np.mean(checks):.2f}"]


def explanations(asked: Asked) -> str:
    """One row for each round."""
    rows = [row(title, instance, 2 if asked.quick else asked.jobs) for title, instance in rounds(asked)]
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, seed {SEED}."


TABLES = {"explanations": explanations}

if __name__ == "__main__":
    run(__doc__, TABLES, jobs=6)
