"""What certificates of small instances prove by themselves: the share of optimal answers with a full proof.

    python benchmarks/small_proofs.py --seeds 5000:5250 --write

Every family has one instance per seed, with 2 to 12 jobs and a random objective. Half of the instances are
as the family makes them; the others have random options, and some of these budgets that are too small or jobs
that cannot wait. Each is solved by default settings in one process, and `check` proves the answer without the
solver. ``--quick`` is one seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tables import machine, table, write

import wattsched
from wattsched.formulations.sizing.sleeping import ENERGY
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance, JobSet
from wattsched.problems import problem

JOBS = (2, 12)
GAP = 1e-4
NODE_GPUS = 8
PLAIN = 0.5
TIGHT = 0.3
"""Of the instances with random options so many have smaller budgets, too."""
OF_OPTIMAL, OF_INFEASIBLE = ("optimal", "proven", "%"), ("infeasible", "proven")
HEADER = ("family", "instances", *OF_OPTIMAL, *OF_INFEASIBLE, "other", "refused", "CPU s")

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
    """What became of one instance, and what `check` says of the answer."""

    family: str
    jobs: int
    seed: int
    objective: str
    reason: str
    gap: float | None
    proven: bool
    faults: list[str]
    cpu_s: float

    def __str__(self) -> str:
        told = f"{self.family}, {self.jobs} jobs, seed {self.seed}, {self.objective}: {self.reason}"
        return f"{told}, proven gap {self.gap}, {self.cpu_s:.1f} s{''.join(f'; {f}' for f in self.faults)}"


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
    reason, jobs = result.termination.reason, len(getattr(instance, "jobs", getattr(instance, "tasks", ())))
    full = not verdict.requiring(GAP * (1 + 1e-9)).faults
    seen = (verdict.proven_gap, full, verdict.faults, cpu_s)
    return Outcome(family, jobs, seed, instance.objective, reason, *seen)


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    """Rows by family, and of all."""
    for family in [*OPTIONS, "all"]:
        some = [one for one in outcomes if family in (one.family, "all")]
        optimal, infeasible = (
            [o for o in some if o.reason == reason] for reason in ("optimal", "infeasible")
        )
        if not some:
            continue
        proven = sum(one.proven for one in optimal)
        counts = (len(some), len(optimal), proven, f"{100 * proven / max(1, len(optimal)):.1f}")
        of_others = (len(infeasible), sum(one.proven for one in infeasible))
        other, refused = len(some) - len(optimal) - len(infeasible), sum(bool(one.faults) for one in some)
        cpu_s = f"{sum(one.cpu_s for one in some):.0f}"
        yield [family, *map(str, (*counts, *of_others, other, refused)), cpu_s]


def main() -> int:
    """Ask, and print what is not proven."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="5000:5250", metavar="FROM:TO", help="of all families")
    parser.add_argument("--families", default=",".join(OPTIONS), metavar="A,B")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--write", action="store_true", help="write the table in docs/tables")
    asked = parser.parse_args()
    first, end = (0, 1) if asked.quick else map(int, asked.seeds.split(":"))
    outcomes = []
    for seed in range(first, end):
        for family in asked.families.split(","):
            outcomes.append(ask(family, seed))
            if outcomes[-1].faults or not outcomes[-1].proven:
                print(outcomes[-1], flush=True)
    shown = table(HEADER, rows_of(outcomes))
    print(shown)
    if asked.write:
        write("small-proofs", f"{shown}\n\nSeeds {asked.seeds}, measured on {machine()}.")
    return 1 if any(one.faults for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
