"""Families of programs for `seeds`: each is a function of a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

import wattsched
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem
from wattsched.topology.arrays import FloatArray


@dataclass(frozen=True)
class Case:
    """A family, and how to make its program of a seed."""

    name: str
    program: Callable[[int], Program]


def generated(family: str, jobs: int, formulation: str = "mckp", **options: Any) -> Callable[[int], Program]:
    """Programs of the families that `wattsched generate` knows."""
    return lambda seed: program_of(wattsched.generate(family, jobs=jobs, seed=seed, **options), formulation)


def program_of(instance: Any, formulation: str) -> Program:
    """Program of an instance of any problem."""
    solved = problem(instance.problem)
    model = solved.formulation(formulation)(solved.expand(instance), instance.objective, Timer())
    return model.program


def correlated(jobs: int, rows: int, largest: int = 1_000, constant: int = 100) -> Callable[[int], Program]:
    """Strongly correlated knapsacks: a job is worth its mean use of the rows, and a constant.

    Uses are whole numbers, room is half of what all jobs use (Martello and Toth 1990, section 2.10).
    """

    def program(seed: int) -> Program:
        use = np.random.default_rng(seed).integers(1, largest + 1, (rows, jobs)).astype(float)
        builder = ProgramBuilder()
        cost = _wait_or_run(-(use.mean(axis=0) + constant))
        columns = builder.columns(Block("job", 2 * jobs), cost=cost)
        for row in range(rows):
            builder.row(f"room{row}", columns, _wait_or_run(use[row]), upper=float(use[row].sum() // 2))
        return builder.program(np.arange(0, 2 * jobs + 1, 2))

    return program


def _wait_or_run(values: FloatArray) -> FloatArray:
    return np.stack([np.zeros_like(values), values], axis=1).ravel()


GPU_COUNTS = (1, 2, 4, 8)
IDLE_W, FULL_W = 30.0, 300.0


def pairs(jobs: int, nodes: int = 5, power_fraction: float = 0.5) -> Callable[[int], Program]:
    """Rounds of `sizing` in which any two jobs may share a GPU: 7,140 sets of 120 jobs.

    Two jobs on a GPU are slower by what their loads together exceed it, and a little more.
    """

    def program(seed: int) -> Program:
        rng = np.random.default_rng(seed)
        rate, load = rng.lognormal(0.0, 0.5, jobs), rng.uniform(0.2, 0.9, jobs)
        scaling, work = rng.uniform(0.7, 1.0, jobs), rng.lognormal(8.0, 1.0, jobs)
        tables = {
            f"job{j}": {
                "gpus": list(GPU_COUNTS),
                "pool": ["v100"] * len(GPU_COUNTS),
                "rate": [rate[j] * g ** scaling[j] for g in GPU_COUNTS],
                "power_w": [g * _watts(load[j]) for g in GPU_COUNTS],
            }
            for j in range(jobs)
        }
        sets = []
        for one, other in combinations(range(jobs), 2):
            together = load[one] + load[other]
            slowdown = max(1.0, together) * rng.uniform(1.0, 1.15)
            rates = {f"job{j}": rate[j] / slowdown for j in (one, other)}
            shared = {"pool": "v100", "gpus": 1, "power_w": _watts(together), "rates": rates}
            sets.append({"name": f"set{one}-{other}", **shared})
        document = {
            "objective": "goodput",
            "round_s": 3600.0,
            "cluster": {
                "gpu_types": {"v100": {"idle_power_w": IDLE_W, "max_power_w": FULL_W}},
                "nodes": [{"name": f"n{n}", "gpu_type": "v100", "gpus": 8} for n in range(nodes)],
            },
            "budgets": {"power_w": 8 * nodes * _watts(power_fraction)},
            "tables": tables,
            "jobs": [
                {"name": n, "options": n, "remaining_work": w} for n, w in zip(tables, work, strict=True)
            ],
            "sets": sets,
        }
        return program_of(Instance.model_validate(document), "mckp")

    return program


def _watts(load: float) -> float:
    return float(IDLE_W + (FULL_W - IDLE_W) * min(1.0, load))


CAPS = {"racks": 32, "power_fraction": 0.4, "rack_power_fraction": 0.4}
CASES = (
    Case("uniform, 1,000 jobs", generated("uniform", 1_000)),
    Case("philly-like, 300 jobs", generated("philly-like", 300)),
    Case("sia-like, 500 jobs", generated("sia-like", 500)),
    Case("hetero, 200 jobs, 32 racks, caps at .4", generated("hetero", 200, **CAPS)),
    Case("correlated, 1,500 jobs, 1 row", correlated(1_500, rows=1)),
    Case("correlated, 1,500 jobs, 2 rows", correlated(1_500, rows=2)),
    Case("7,140 pairs of 120 jobs", pairs(120)),
    Case("uniform, 40 jobs, `assignment`", generated("uniform", 40, "assignment")),
    Case("sia-like, 40 jobs, `assignment`", generated("sia-like", 40, "assignment")),
    Case("placement, 12 tasks, `assignment`", generated("placement", 12, "assignment")),
)
QUICK = (
    Case("uniform, 30 jobs", generated("uniform", 30)),
    Case("correlated, 600 jobs", correlated(600, rows=1, constant=10)),
    Case("uniform, 6 jobs, `assignment`", generated("uniform", 6, "assignment")),
)
