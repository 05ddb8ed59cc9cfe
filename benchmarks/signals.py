"""Plans under a signal at full size: how long a proven plan takes, what the cut costs, and HiGHS beside it.

    python -m benchmarks.signals --write

For a quarter of the horizon the GPUs may draw half of what they could beyond idle.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Asked, machine, run, say, table, timed
from wattsched import solve
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.instance import ShiftingInstance

SIZES = ((500, 48, 20), (5000, 48, 3))
"""Jobs, slots and number of seeds."""
FIRST = 21
"""First seed: the solver was tuned on the ones before."""
GAP, INSIDE, FROM, TO = 0.01, 0.5, 0.125, 0.375


def cut(instance: ShiftingInstance) -> ShiftingInstance:
    """The instance with a cap that cuts the draw for a quarter of its horizon."""
    idle_w = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values())
    most_w = dict.fromkeys(instance.pools, 0.0)
    for options in instance.tables.values():
        for pool, gpus, power_w in zip(options.pool, options.gpus, options.power_w, strict=True):
            most_w[pool] = max(most_w[pool], power_w / gpus - instance.pools[pool].idle_power_w)
    beyond_w = sum(pool.gpus * most_w[name] for name, pool in instance.pools.items())
    share = np.ones(instance.slots)
    share[int(FROM * instance.slots) : int(TO * instance.slots)] = INSIDE
    return instance.model_copy(update={"power_w": (idle_w + share * beyond_w).tolist()})


def beside(jobs: int, slots: int, seed: int, limit_s: float) -> str:
    """Gap of HiGHS' own decision by the time-indexed program of a seed, in words."""
    capped = cut(shifting_horizon(jobs=jobs, slots=slots, seed=seed, carbon_fraction=None))
    found = solve(capped, formulation="time-indexed", solver="highs", gap=GAP, time_limit=limit_s)
    say(f"{jobs} x {slots}, seed {seed}, HiGHS: {found.termination}")
    if found.decided_by or found.objective is None:
        return "no decision"
    return "no bound" if found.gap is None else f"{100 * found.gap:.1f} %"


def sizes(asked: Asked) -> str:
    """Seconds and gaps of plans, and the completion time that the cut costs, over seeds."""
    rows = []
    for jobs, slots, seeds in ((4, 12, 1),) if asked.quick else SIZES:
        took_s, gaps, losses, failed = [], [], [], 0
        for seed in range(FIRST, FIRST + seeds):
            free = shifting_horizon(jobs=jobs, slots=slots, seed=seed, carbon_fraction=None)
            limit_s = 2.0 if asked.quick else asked.limit
            least = solve(free, gap=GAP, time_limit=limit_s)
            capped = cut(free)
            found, seconds = timed(lambda of=capped, most_s=limit_s: solve(of, gap=GAP, time_limit=most_s))
            say(f"{jobs} x {slots}, seed {seed}: {found.termination.reason} in {seconds:.1f} s")
            if found.objective is None or found.gap is None or least.objective is None:
                failed += 1
                continue
            took_s.append(seconds)
            gaps.append(found.gap)
            losses.append(found.objective / least.objective - 1)
        # The time-indexed program of more jobs does not fit into the memory of a small machine.
        few = asked.peers if jobs <= SIZES[0][0] else 0
        peers = [beside(jobs, slots, seed, limit_s) for seed in range(FIRST, FIRST + few)]
        mean_s = float(np.exp(np.mean(np.log(took_s))))
        figures = [
            f"{mean_s:.1f}",
            f"{max(took_s):.1f}",
            f"{100 * np.mean(gaps):.2f} %",
            f"{100 * max(gaps):.2f} %",
        ]
        rows.append(
            [
                f"{jobs:,} x {slots}",
                str(seeds),
                *figures,
                f"{100 * np.mean(losses):.1f} %",
                str(failed),
                ", ".join(peers) if peers else "-",
            ]
        )
    header = [
        "jobs x slots",
        "seeds",
        "seconds, geometric mean",
        "worst",
        "gap, mean",
        "worst",
        "loss, mean",
        "none found",
        f"HiGHS at {asked.limit:g} s",
    ]
    return f"{table(header, rows)}\n\n({machine()}.)"


TABLES = {"signal-sizes": sizes}

if __name__ == "__main__":
    run(__doc__, TABLES, limit=60.0, peers=2)
