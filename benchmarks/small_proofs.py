"""Prove small instances by their certificates alone: the share of optimal answers with a full proof.

    OMP_NUM_THREADS=1 python -m benchmarks.small_proofs --write [--seeds 250]

Every family has one instance per seed, with 2 to 12 jobs and a random objective. Half of the instances are
as the family makes them; the others have random options, and some of these budgets that are too small or jobs
that cannot wait. Each is solved by default settings in one process, and `check` proves the answer without the
solver.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import wattsched
from benchmarks.harness import Asked, machine, run, say, table
from wattsched.formulations.sizing.sleeping import ENERGY
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance, JobSet
from wattsched.results.problems import problem

FIRST = 5_000
JOBS = (2, 12)
GAP = 1e-4
NODE_GPUS = 8
PLAIN = 0.5
TIGHT = 0.3
"""Number of the instances with random options that have smaller budgets, too."""
HEADER = (
    "family",
    "instances",
    "optimal",
    "proven",
    "%",
    "infeasible",
    "proven",
    "other",
    "refused",
    "CPU s",
)

Draw = random.Random
OPTIONS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "uniform": lambda draw: {
        "budget": draw.choice(["power", "energy", "both"]),
        "power_fraction": draw.uniform(0.3, 0.9),
        "energy_fraction": draw.uniform(0.02, 0.6),
        "round_s": draw.choice([60.0, 600.0, 3600.0]),
    },
    "hetero": lambda draw: {
        "racks": draw.randint(1, 3),
        "power_fraction": draw.uniform(0.4, 0.9),
        "rack_power_fraction": draw.uniform(0.4, 0.9),
        "energy_fraction": draw.choice([None, draw.uniform(0.05, 0.6)]),
    },
    "philly-like": lambda draw: {"power_fraction": draw.uniform(0.4, 0.9)},
    "sia-like": lambda draw: {"power_fraction": draw.choice([None, draw.uniform(0.4, 0.9)])},
    "sets": lambda draw: {"power_fraction": draw.uniform(0.3, 0.9)},
    "shifting": lambda draw: {
        "slots": draw.choice([12, 24, 36, 48]),
        "carbon_fraction": draw.choice([None, draw.uniform(0.2, 0.9)]),
    },
    "sharing": lambda draw: {
        "units": draw.choice(["nodes", "gpus"]),
        "power_fraction": draw.choice([None, draw.uniform(0.4, 1.0)]),
        "deadlines": draw.random(),
        "exclusive": draw.uniform(0.0, 0.3),
    },
    "placement": lambda draw: {"load": draw.uniform(0.0, 0.9), "constrained": draw.random()},
}
"""Random options of each family; `sets` are rounds of `uniform` in which pairs may share GPUs."""


@dataclass(frozen=True)
class Outcome:
    """Answer to one instance, and the verdict of `check` on it."""

    family: str
    seed: int
    objective: str
    reason: str
    gap: float | None
    proven: bool
    faults: list[str]
    cpu_s: float


def instance_of(family: str, seed: int) -> Any:
    """The family's instance of a seed."""
    draw = random.Random(f"{family}{seed}")
    jobs = draw.randint(*JOBS)
    plain = draw.random() < PLAIN
    options = {} if plain else OPTIONS[family](draw)
    made = generate("uniform" if family == "sets" else family, jobs=jobs, seed=seed, **options)
    if family == "sets":
        made = with_sets(made, draw)
    if not plain and draw.random() < TIGHT:
        made = tightened(made, draw)
    objectives = list(problem(made.problem).objectives)
    if made.problem == "sizing":
        # Under no least goodput every job that may waits.
        objectives = [name for name in objectives if name not in ENERGY]
    elif getattr(made, "price_per_kwh", 1.0) is None:
        objectives.remove("money")
    return made.model_copy(update={"objective": draw.choice(objectives)})


def with_sets(instance: Instance, draw: Draw) -> Instance:
    """Pairs of jobs that may share GPUs, each at 50 to 90 % of its rate there, for a tenth more power."""
    sets, jobs = [], instance.jobs
    for number in range(draw.randint(1, len(jobs))):
        first, second = draw.sample(jobs, 2)
        tables = [instance.tables[str(job.options)] for job in (first, second)]
        row = draw.choice([row for row, gpus in enumerate(tables[0].gpus) if gpus <= NODE_GPUS])
        gpus, power_w = tables[0].gpus[row], tables[0].power_w[row]
        rates = {
            job.name: draw.uniform(0.5, 0.9) * made.rate[made.gpus.index(gpus)]
            for job, made in zip((first, second), tables, strict=True)
        }
        sets.append(JobSet(name=f"s{number}", pool="A100", gpus=gpus, power_w=1.1 * power_w, rates=rates))
    return instance.model_copy(update={"sets": sets})


def tightened(instance: Any, draw: Draw) -> Any:
    """Smaller budgets, and in `sizing` jobs that cannot wait."""
    changes: dict[str, Any] = {}
    if hasattr(instance, "budgets"):
        limits = {
            name: draw.uniform(0.4, 1.0) * limit if isinstance(limit, float) else limit
            for name, limit in instance.budgets
        }
        changes["budgets"] = instance.budgets.model_copy(update=limits)
    if instance.problem == "sizing" and not instance.sets:
        changes["jobs"] = [
            job.model_copy(update={"can_wait": job.can_wait and draw.random() < 0.5}) for job in instance.jobs
        ]
    return instance.model_copy(update=changes)


def ask(family: str, seed: int) -> Outcome:
    """Solve an instance, and check the answer."""
    instance, begin_s = instance_of(family, seed), time.process_time()
    result = wattsched.solve(instance, gap=GAP)
    cpu_s = time.process_time() - begin_s
    verdict = wattsched.check(instance, result)
    full = not verdict.requiring(GAP * (1 + 1e-9)).faults
    reason = result.termination.reason
    found = Outcome(family, seed, instance.objective, reason, verdict.proven_gap, full, verdict.faults, cpu_s)
    if found.faults or not full:
        say(found)
    return found


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Rows by family, and of all."""
    for family in [*OPTIONS, "all"]:
        some = [one for one in outcomes if family in (one.family, "all")]
        by_reason = {
            reason: [one.proven for one in some if one.reason == reason]
            for reason in ("optimal", "infeasible")
        }
        optimal, infeasible = by_reason.values()
        share = f"{100 * sum(optimal) / max(1, len(optimal)):.1f}"
        other, refused = len(some) - len(optimal) - len(infeasible), sum(bool(one.faults) for one in some)
        counts = (
            len(some),
            len(optimal),
            sum(optimal),
            share,
            len(infeasible),
            sum(infeasible),
            other,
            refused,
        )
        yield [family, *map(str, counts), f"{sum(one.cpu_s for one in some):.0f}"]


def small_proofs(asked: Asked) -> str:
    """One row for each family."""
    last = FIRST + asked.seeds
    outcomes = [ask(family, seed) for seed in range(FIRST, last) for family in OPTIONS]
    text = f"{table(HEADER, rows_of(outcomes))}\n\nSeeds {FIRST}:{last}, measured on {machine()}."
    if any(one.faults for one in outcomes):
        raise SystemExit(f"{text}\n\nSome answers were refused.")
    return text


TABLES = {"small-proofs": small_proofs}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=250)
