"""Value of options to share GPUs in `sizing`: Gavel's jobs and measured pairs on capped V100.

python -m benchmarks.sizing_sets --write
"""

from __future__ import annotations

from typing import Any

import wattsched
from benchmarks.harness import Asked, data, machine, run, table
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

GPU, JOBS, GAP = "v100", 60, 5e-3
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
HEADER = ("objective", "GPUs", "cap", "value without sets", "with sets", "change %", "gap %", "seconds",
          "jobs that run without sets", "with sets", "in sets")  # fmt: skip


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


def document(tables: dict[str, Any], pairs: PairTable, jobs: list[Job]) -> dict[str, Any]:
    """Round of an hour, without objective, nodes and cap."""
    rows = [{"name": j.name, "options": j.job_class, "remaining_work": j.remaining_epochs} for j in jobs]
    return {"round_s": 3600.0, "tables": tables, "jobs": rows, "sets": sets_of_pairs(pairs, jobs, GPU)}


def sizing_sets(asked: Asked) -> str:
    """Every round with and without the option to share."""
    folder, n = data("gavel-2020"), 8 if asked.quick else JOBS
    pairs = read_pairs(folder / "oracle_pair_throughputs.json")
    jobs = read_jobs(folder / "traces" / "msr_seed0_jobs.csv", n)
    scaling = read_json(folder / "simulation_throughputs.json")[GPU]
    common, (idle_w, full_w), rows = document(tables_alone(pairs, scaling), pairs, jobs), GPU_POWER_W[GPU], []
    for objective, nodes, cap_kw in ROUNDS[:1] if asked.quick else ROUNDS:
        cluster = {
            "gpu_types": {GPU: {"idle_power_w": idle_w, "max_power_w": full_w}},
            "nodes": [{"name": f"n{n}", "gpu_type": GPU, "gpus": 8} for n in range(nodes)],
        }
        budgets = {"power_w": 1000 * cap_kw}
        fields = {"objective": objective, "cluster": cluster, "budgets": budgets}
        instance = Instance.model_validate({**common, **fields})
        apart = wattsched.solve(instance.model_copy(update={"sets": []}), gap=GAP)
        shared = wattsched.solve(instance, gap=GAP)
        assert apart.objective is not None
        assert shared.objective is not None
        assert apart.decision is not None
        assert shared.decision is not None
        rows.append(
            [
                f"`{objective}`",
                8 * nodes,
                f"{cap_kw:g} kW",
                f"{apart.objective:,.2f}",
                f"{shared.objective:,.2f}",
                f"{100 * (shared.objective / apart.objective - 1):+.1f}",
                f"{100 * (shared.gap or 0.0):.3f}",
                f"{shared.time_s['total']:.1f}",
                len(apart.decision.jobs),
                len(shared.decision.jobs),
                sum(assignment.set is not None for assignment in shared.decision.jobs),
            ]
        )
    return f"{table(HEADER, rows)}\n\nOn {machine()}, one thread."


TABLES = {"sizing-sets": sizing_sets}

if __name__ == "__main__":
    run(__doc__, TABLES)
