"""Optimum of a small `sizing` instance in which moves of running jobs have a price: who stays is tried, too.

Rounds have no sets and no nodes that sleep.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product

from tests.brute_force.sizing import (
    _better,
    _current_kind,
    _free,
    _total,
    choices_of,
    decided,
    price_of_change,
    within_budgets,
    within_quotas,
)
from tests.brute_force.sizing_places import Gpu, Kind, capacity_of, fit, kinds, next_power, structural_blocks
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job


def optimum_with_moves(instance: Instance, objective: str) -> float | None:
    """Best objective over all combinations and all who may stay; None when there is none."""
    instance = decided(instance)
    best: float | None = None
    blocks = {kind: structural_blocks(instance, nodes) for kind, nodes in kinds(instance).items()}
    able = {job.name: _can_keep(instance, job, blocks) for job in instance.jobs}
    placeable: dict[tuple[object, ...], bool] = {}
    for combination in product(*(choices_of(instance, job, objective) for job in instance.jobs)):
        if not within_quotas(instance, combination) or not within_budgets(instance, combination):
            continue
        pairs = list(zip(instance.jobs, combination, strict=True))
        stays = [job.name for job, choice in pairs if choice.unchanged and job.preemptible and able[job.name]]
        for kept in (set(some) for n in range(len(stays) + 1) for some in combinations(stays, n)):
            moved = [choice.unchanged and job.preemptible and job.name not in kept for job, choice in pairs]
            value = _total(objective, [
                choice.value + price_of_move(instance, job, objective) * moves
                for (job, choice), moves in zip(pairs, moved, strict=True)
            ])  # fmt: skip
            if best is not None and _better(best, value, objective) == best:
                continue
            counts = tuple((c.kind, c.gpus) for job, c in pairs if job.preemptible and job.name not in kept)
            key = (*sorted(kept), *counts)
            if key not in placeable:
                placeable[key] = _fit_beside(instance, kept, counts, blocks)
            best = value if placeable[key] else best
    return best


def price_of_move(instance: Instance, job: Job, objective: str) -> float:
    """What a move of a job that keeps its options makes of a value."""
    return 0.0 if displaced(instance, job) else price_of_change(instance, job, objective, False)


def displaced(instance: Instance, job: Job) -> bool:
    """Whether a job holds a GPU, or a block with one, that takes no job any more: a move costs nothing."""
    gone = {(n.name, g) for n in instance.cluster.nodes for g in n.unavailable}
    if job.current is None or not any(job.current.nodes.values()):
        return False
    held = {(node, g) for node, gpus in job.current.nodes.items() for g in gpus}
    kind, size = _current_kind(instance, job), next_power(job.current.gpus)
    assert kind is not None
    if held & gone or capacity_of(instance, kind) != "blocks":
        return bool(held & gone)
    for block in structural_blocks(instance, kinds(instance)[kind]):
        for start in range(0, len(block) - size + 1, size):
            around = set(block[start : start + size])
            if held <= around and around & gone:
                return True
    return False


def _can_keep(instance: Instance, job: Job, blocks: dict[Kind, list[list[Gpu]]]) -> bool:
    """Whether a running job has GPUs as a decision may give them."""
    if job.current is None or not any(job.current.nodes.values()):
        return False
    kind = _current_kind(instance, job)
    assert kind is not None
    held = {(node, g) for node, gpus in job.current.nodes.items() for g in gpus}
    if displaced(instance, job):
        return False
    match capacity_of(instance, kind):
        case "blocks":
            size = next_power(job.current.gpus)
            starts = [(b, s) for b in blocks[kind] for s in range(0, len(b) - size + 1, size)]
            return any(held <= set(block[start : start + size]) for block, start in starts)
        case "count":
            return True
    return sum(0 < len(gpus) < kind[1] for gpus in job.current.nodes.values()) <= 1


def _fit_beside(
    instance: Instance,
    kept: Collection[str],
    counts: tuple[tuple[Kind | None, int], ...],
    blocks: dict[Kind, list[list[Gpu]]],
) -> bool:
    """Whether jobs with these GPU counts fit beside those that keep what they hold."""
    jobs = [
        job.model_copy(update={"preemptible": False}) if job.name in kept else job for job in instance.jobs
    ]
    alone = [
        _free(instance.model_copy(update={"jobs": [job]}), blocks) for job in jobs if not job.preemptible
    ]
    every = {(n.name, g) for n in instance.cluster.nodes for g in range(n.gpus)}
    every -= {(n.name, g) for n in instance.cluster.nodes for g in n.unavailable}
    if sum(len(every - left) for left in alone) > len(every - set.intersection(every, *alone)):
        return False
    left = set.intersection(every, *alone)
    return all(
        fit(instance, kind, nodes, left, sorted(gpus for at, gpus in counts if at == kind and gpus))
        for kind, nodes in kinds(instance).items()
    )
