"""Explanations of waiting jobs: seconds, how many changes are proven least, and whether the checker agrees.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.explanations --write [--seeds 20] [--jobs 1]

Rounds are generated, or made from the ITP and Philly traces, each seed another cluster or moment, and
solved to a gap of 1e-4. Of each so many waiting jobs are drawn and explained within the default limit; each
explanation is checked. Seconds are those of the processor, on which one thread is at work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import Asked, data, machine, run, say, table
from benchmarks.real_rounds import NODES, ROUNDS
from wattsched.results.documents import verdict_on_explanation

FIRST_SEED = 701
FAMILIES = ("philly-like", "uniform", "hetero")
SIZES = {200: 1, 5_000: 5}
"""Jobs of a generated round to the seeds for which there is one."""
CLUSTERS = (1, 2, 3, 4, 5, 6, 8, 9, 10)
DAYS = np.arange(20, 100, 5)
HEADER = ("kind of round", "rounds", "explained", "s, median", "p99", "worst", "whole", "changes",
          "proven least", "without", "check, s")  # fmt: skip


def generated(family: str, jobs: int, seed: int) -> Any:
    """Generate a round."""
    racks = {"racks": 4} if family == "hetero" else {}
    return wattsched.generate(family, jobs=jobs, seed=FIRST_SEED + seed, **racks)


def imported(*words: str) -> Any:
    """Import a round as the command line does."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "round.json"
        command = [sys.executable, "-m", "wattsched", "import", *words, "-o", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return wattsched.read_instance(file)


def of_itp(title: str, seed: int) -> Any:
    """Import the busiest hour of one of nine ITP clusters, with other models of jobs for each nine seeds."""
    trace = data(f"itp-elasticflow-2021/raw/cluster{CLUSTERS[seed % len(CLUSTERS)]:02}.csv")
    options = [str(data(word)) if word == NODES else word for word in ROUNDS[title]]
    return imported("itp", str(trace), *options, "--seed", str(seed // len(CLUSTERS)))


def of_philly(seed: int) -> Any:
    """Import a moment of Philly, on 512 GPUs."""
    at = str(86_400 * int(DAYS[seed % len(DAYS)]) + 3_600 * (seed // len(DAYS)))
    trace = str(data("philly-2017/philly_jobs.csv.gz"))
    return imported("philly", trace, *ROUNDS["ITP jobs on 512 A100"], "--at", at)


def kinds(asked: Asked) -> dict[str, tuple[int, Callable[[int], Any]]]:
    """Title of each kind of round to how many there are, and what makes one of a seed."""
    found = dict[str, tuple[int, Callable[[int], Any]]]()
    for jobs, every in dict(list(SIZES.items())[: 1 if asked.quick else None]).items():
        for family in FAMILIES[:1] if asked.quick else FAMILIES:
            rounds = -(-asked.seeds // every)
            found[f"`{family}`, {jobs:,} jobs"] = rounds, partial(generated, family, jobs)
    if not asked.quick:
        found |= {title: (asked.seeds, partial(of_itp, title)) for title in ROUNDS}
        found["Philly jobs on 512 A100"] = asked.seeds, of_philly
    return found


def row(title: str, rounds: int, made: Callable[[int], Any], jobs: int) -> list[str]:
    """Explain some of the waiting jobs of the rounds of a kind."""
    seconds, checks, explanations = list[float](), list[float](), list[Any]()
    for seed in range(rounds):
        instance = made(seed)
        result = wattsched.solve(instance, time_limit=60.0)
        document = json.loads(result.model_dump_json())
        waiting = [name for name in result.decision.waiting if name not in result.dropped]
        for name in np.random.default_rng(seed).permutation(waiting)[:jobs].tolist():
            begun_s = time.process_time()
            found = wattsched.explain(instance, result, name)
            explained_s = time.process_time()
            faults = verdict_on_explanation(instance, document, found).faults
            assert faults == [], f"{title}, seed {seed}, {name}: {faults}"
            checks.append(time.process_time() - explained_s)
            seconds.append(explained_s - begun_s)
            explanations.append(found)
            say(f"{title}, {seconds[-1]:.2f} s: {found.sentence}")
    changes = [one for found in explanations for one in found.alternatives]
    share = f"{sum(one.proven for one in changes) / len(changes):.0%}" if changes else "-"
    times = (f"{np.percentile(seconds, share):.2f}" if seconds else "-" for share in (50, 99, 100))
    whole, none = (
        sum(not getattr(one, name) for one in explanations) for name in ("unanswered", "alternatives")
    )
    told = [*times, str(whole), str(len(changes)), share, str(none)]
    return [title, str(rounds), str(len(seconds)), *told, f"{np.mean(checks):.2f}" if checks else "-"]


def explanations(asked: Asked) -> str:
    """One row for each kind of round."""
    rows = [row(title, *kind, 2 if asked.quick else asked.jobs) for title, kind in kinds(asked).items()]
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, seeds from {FIRST_SEED}."


TABLES = {"explanations": explanations}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20, jobs=1)
