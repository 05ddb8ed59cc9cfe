"""What options to share GPUs are worth in `sizing`: Gavel's jobs and measured pairs on capped V100.

    WATTSCHED_DATA=... python benchmarks/sizing_sets.py [--write]

``--write`` puts the table into docs/tables.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from tables import machine, table, write

import wattsched
from wattsched.instances.io import read_json
from wattsched.instances.sharing.instance import Job
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.traces.gavel import (
    GPU_POWER_W,
    PairTable,
    gpu_power_w,
    read_jobs,
    read_pairs,
    sets_of_pairs,
)
from wattsched.result import Result

GPU = "v100"
JOBS = 60
GAP = 5e-3
ROUNDS = (
    ("goodput", 8, 4.0),
    ("goodput", 8, 6.0),
    ("goodput", 8, 8.0),
    ("goodput", 8, 12.0),
    ("goodput", 4, 9.6),
    ("progress", 8, 6.0),
    ("total-completion", 8, 6.0),
)
"""Objective, nodes with eight GPUs, and the cap in kW."""


def tables_alone(pairs: PairTable, scaling: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """Options alone by class: one GPU as in the table of pairs, and more as in the measured scaling.

    The two were measured apart; speeds more than in proportion to the GPUs are not believed.
    """
    tables = {}
    for job_class in pairs.classes:
        alone = job_class.alone[GPU]
        speed = {n: scaling.get(f"('{job_class.name}', {n})", {}).get("null", 0.0) for n in (1, 2, 4, 8)}
        counts = [1, *(n for n in (2, 4, 8) if speed[1] and speed[n])]
        tables[job_class.name] = {
            "gpus": counts,
            "pool": [GPU] * len(counts),
            "rate": [(min(speed[n] / speed[1], n) if n > 1 else 1.0) / alone.epoch_s for n in counts],
            "power_w": [n * gpu_power_w(GPU, alone.utilisation_pct) for n in counts],
        }
    return tables


def instance_of(
    tables: dict[str, Any], pairs: PairTable, jobs: list[Job], objective: str, nodes: int, cap_kw: float
) -> Instance:
    """Round of an hour."""
    idle_w, full_w = GPU_POWER_W[GPU]
    return Instance.model_validate(
        {
            "objective": objective,
            "round_s": 3600.0,
            "cluster": {
                "gpu_types": {GPU: {"idle_power_w": idle_w, "max_power_w": full_w}},
                "nodes": [{"name": f"n{n}", "gpu_type": GPU, "gpus": 8} for n in range(nodes)],
            },
            "budgets": {"power_w": 1000 * cap_kw},
            "tables": tables,
            "jobs": [
                {"name": job.name, "options": job.job_class, "remaining_work": job.remaining_epochs}
                for job in jobs
            ],
            "sets": sets_of_pairs(pairs, jobs, GPU),
        }
    )


def rounds(data: Path) -> str:
    """Every round with and without the option to share."""
    folder = data / "gavel-2020"
    pairs = read_pairs(folder / "oracle_pair_throughputs.json")
    jobs = read_jobs(folder / "traces" / "msr_seed0_jobs.csv", JOBS)
    tables = tables_alone(pairs, read_json(folder / "simulation_throughputs.json")[GPU])
    rows = []
    for objective, nodes, cap_kw in ROUNDS:
        instance = instance_of(tables, pairs, jobs, objective, nodes, cap_kw)
        apart = wattsched.solve(instance.model_copy(update={"sets": []}), gap=GAP)
        shared = wattsched.solve(instance, gap=GAP)
        rows.append([f"`{objective}`", 8 * nodes, f"{cap_kw:g} kW", *_compared(apart, shared)])
    header = ["objective", "GPUs", "cap", "value without sets", "with sets", "change %", "gap %", "seconds",
              "jobs that run without sets", "with sets", "in sets"]  # fmt: skip
    return table(header, rows)


def _compared(apart: Result, shared: Result) -> list[str]:
    assert apart.objective is not None
    assert shared.objective is not None
    assert apart.decision is not None
    assert shared.decision is not None
    return [
        f"{apart.objective:,.2f}",
        f"{shared.objective:,.2f}",
        f"{100 * (shared.objective / apart.objective - 1):+.1f}",
        f"{100 * (shared.gap or 0.0):.3f}",
        f"{shared.time_s['total']:.1f}",
        str(len(apart.decision.jobs)),
        str(len(shared.decision.jobs)),
        str(sum(assignment.set is not None for assignment in shared.decision.jobs)),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    content = f"{rounds(Path(os.environ['WATTSCHED_DATA']))}\n\nOn {machine()}, one thread."
    print(f"\n{content}\n", flush=True)
    if arguments.write:
        write("sizing-sets", content)


if __name__ == "__main__":
    main()
