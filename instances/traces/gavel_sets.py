"""Gavel's measured pairs as sets of jobs that may share a GPU, options of `sizing`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from wattsched.instances.instance import JobSet
from wattsched.instances.sharing.instance import Job
from wattsched.instances.traces.gavel_pairs import GPU_POWER_W, PairTable
from wattsched.perfmodels.co_location import power_at


def sets_of_pairs(
    table: PairTable, jobs: Sequence[Job], gpu: str, pool: str | None = None, least: float = 1.0
) -> list[JobSet]:
    """Pairs of jobs that were measured to fit on one GPU of a type.

    Rates are in epochs of `gavel_pairs.EPOCH_ITERATIONS` per second, watts those of `gpu_power_w`.

    Parameters
    ----------
    gpu : str
        GPU type of the table.
    pool : str, optional
        Pool of the sets; default: one that is called like the GPU type.
    least : float
        Pairs whose speeds, relative to those alone, do not add up to more than this are left out.
    """
    alone = {c.name: c.alone[gpu] for c in table.classes if gpu in c.alone}
    measured = {tuple(s.classes): s.slowdown for s in table.sets if s.unit_type == gpu and s.fits}
    sets = []
    for pair in combinations(jobs, 2):
        # Classes of a pair are in the order of their names.
        one, other = sorted(pair, key=lambda job: job.job_class)
        slowdown = measured.get((one.job_class, other.job_class))
        if slowdown is None or sum(1 / factor for factor in slowdown) <= least:
            continue
        of_both = [alone[job.job_class] for job in (one, other)]
        epochs_s = [a.epoch_s * factor for a, factor in zip(of_both, slowdown, strict=True)]
        sets.append(
            JobSet(
                name=f"{one.name}+{other.name}",
                pool=pool or gpu,
                gpus=1,
                power_w=gpu_power_w(gpu, sum(a.utilisation_pct for a in of_both)),
                rates={one.name: 1 / epochs_s[0], other.name: 1 / epochs_s[1]},
            )
        )
    return sets


def gpu_power_w(gpu: str, utilisation_pct: float) -> float:
    """Watts of a GPU at a utilisation, by EaCO's law between the idle and full watts of the data sheet."""
    return float(power_at(utilisation_pct, *GPU_POWER_W[gpu]))
