"""Replays of jobs in words: tables for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from wattsched.report.terminal import Told
from wattsched.report.wording import count, duration, energy, money, number, percent, quantity

Summaries = Mapping[str, Sequence[Any]]
"""Summaries of replays, seed by seed, by policy."""


EXACT = "+exact"
"""Behind the name of a policy that knows how long jobs take, whatever others know."""

DURATIONS = {
    "exact": "durations known exactly",
    "limit": "durations by time limits",
    "history": "durations learned from earlier runs",
    "nothing": "durations unknown",
}
"""Descriptions of what policies know."""


def about(trace: Any, found: Summaries, round_s: float) -> str:
    """Describe what was replayed: jobs, GPUs, rounds, what policies know, and seeds."""
    gpus = sum(int(pool.available.sum()) for pool in trace.pools)
    seeds = len(next(iter(found.values())))
    rounds = f"rounds of {duration(round_s)}" if round_s else "decisions at every event"
    means = f"means over {count(seeds, 'seed')}" if seeds > 1 else "one seed"
    known = {runs[0].knows_durations for name, runs in found.items() if EXACT not in name}
    jobs = f"{count(len(trace), 'job')} on {count(gpus, 'GPU')}"
    told = [words for knows, words in DURATIONS.items() if knows in known]
    return f"{', '.join([jobs, rounds, *told])}; {means}"


def tables_of(found: Summaries) -> list[Told]:
    """Tables of completion times, of the cluster and of the decisions; of a budget where there is one."""
    tables = []
    for (title, note), columns in TABLES.items():
        field = {"Budget": "budget_used_max", "Cap": "cap_used_max"}.get(title, "policy")
        if all(getattr(run, field) is None for runs in found.values() for run in runs):
            continue
        rows = [[policy, *(tell(runs) for tell in columns.values())] for policy, runs in found.items()]
        tables.append((title, note, ["policy", *(f">{column}" for column in columns)], rows))
    return tables


SHARES = "(its jobs share GPUs)"
ROUNDED = 8
"""Digits of the part by which a policy is above a bound; bounds are rounded to the safe side."""


def bound_tables(found: Summaries, bounds: Sequence[Any], sharing: Callable[[str], bool]) -> list[Told]:
    """Policies beside what no schedule is below: mean completions, and energies where they are bounded.

    Parameters
    ----------
    found : mapping of str to sequence of Summary
        By policy, seed by seed.
    bounds : sequence of ClairvoyantBound
        Of the seeds.
    sharing : callable
        Of which policies it says nothing, because their jobs share GPUs.
    """

    def cells(
        reached: list[float], least: list[float], words: Callable[[float], str], known: bool
    ) -> list[str]:
        if not known:
            return [words(float(np.mean(reached))), SHARES, ""]
        above = ""
        if min(least) > 0.0:
            over = float(np.exp(np.mean(np.log(np.divide(reached, least))))) - 1.0
            above = percent(round(over, ROUNDED) + 0.0)
        return [words(float(np.mean(reached))), words(float(np.mean(least))), above]

    columns = [">no schedule below", ">above it"]
    means: list[list[str]] = []
    energies: list[list[str]] = []
    for policy, runs in found.items():
        known, means_s = not sharing(policy), [run.jct_mean_s for run in runs]
        least_s = [bound.mean_completion_s for bound in bounds]
        means.append([policy, *cells(means_s, least_s, duration, known)])
        least_j = [bound.energy_j(mean_s) for bound, mean_s in zip(bounds, means_s, strict=True)]
        energies.append([policy, *cells([run.energy_j for run in runs], least_j, energy, known)])
    future = "schedules know all jobs to come, and preempt and resize them at no cost"
    tables: list[Told] = [("Against every schedule", future, ["policy", ">mean completion", *columns], means)]
    if any(len(bound.proofs) > 1 for bound in bounds):
        note = "of the whole cluster, with the policy's mean completion or less"
        tables.append(("Energy against every schedule", note, ["policy", ">energy", *columns], energies))
    return tables


def _of(field: str, words: Callable[[float], str], over: Callable[[list[float]], Any] = np.mean) -> Cell:
    """Build a cell that tells the mean of a field over the runs that have it; empty where none has."""

    def cell(runs: Sequence[Any]) -> str:
        values = [value for run in runs if (value := getattr(run, field)) is not None]
        return words(float(over(values))) if values else ""

    return cell


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


Cell = Callable[[Sequence[Any]], str]
TABLES: dict[tuple[str, str], dict[str, Cell]] = {
    ("Completion", "from arrival to completion; rho above 1: later than a fair share"): {
        "mean": _of("jct_mean_s", duration),
        "median": _of("jct_median_s", duration),
        "p95": _of("jct_p95_s", duration),
        "p99": _of("jct_p99_s", duration),
        "queueing": _of("queueing_mean_s", duration),
        "makespan": _of("makespan_s", duration),
        "rho": _of("rho_mean", lambda rho: number(rho, 3)),
        "rho > 1": _of("unfair_fraction", percent),
        "knows durations": lambda runs: runs[0].knows_durations,
    },
    (
        "Cluster",
        "everything that it draws, idle GPUs and nodes included; ±: by the error of the models' watts",
    ): {
        "energy": _of("energy_j", energy),
        "±": _of("energy_error", percent),
        "CO2": _of("carbon_g", lambda grams: f"{number(grams / 1000)} kg" if grams else ""),
        "cost": lambda runs: _of("money", lambda amount: money(amount, runs[0].currency))(runs),
        "peak": _of("peak_w", partial(quantity, unit="W"), max),
        "GPUs in use": _of("gpu_utilisation", percent),
        "GPU hours": _of("gpu_h", number),
        "fragmented": _of("fragmentation", percent),
    },
    ("Cap", "what was drawn of it at most, and how long more than it allows"): {
        "most drawn": _of("cap_used_max", percent, max),
        "time above": _of("above_cap_s", duration, max),
    },
    ("Budget", "part of it that was used in a period"): {
        "most used": _of("budget_used_max", percent, max),
        "least used, if short all the time": _of("budget_used_min", percent, min),
    },
    ("Decisions", "what they ask of jobs, wall-clock time, and certified gap"): {
        "rounds": _of("rounds", number),
        "restarts": _of("restarts", number),
        "preemptions": _of("preemptions", number),
        "migrations": _of("migrations", number),
        "median": _of("decision_median_s", _milliseconds),
        "p99": _of("decision_p99_s", _milliseconds),
        "mean gap": _of("gap_mean", "{:.1e}".format),
        "largest gap": _of("gap_max", "{:.1e}".format),
    },
}
"""Title and note of a table, and its columns."""

GIVES_WAY = (
    "p99",
    "migrations",
    "median",
    "preemptions",
    "queueing",
    "rho > 1",
    "mean gap",
    "fragmented",
    "±",
    "GPU hours",
    "GPUs in use",
)
"""Columns that are left out one after the other where the terminal is too narrow; --json has them all."""
