"""Every decision of a small round, with its values in all objectives and what each job does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tests.brute_force.sizing import (
    _free,
    _total,
    choices_of,
    decided,
    kinds,
    structural_blocks,
    together,
    within_budgets,
    within_quotas,
)
from tests.brute_force.sizing_places import fit
from wattsched.instances.sizing.instance import Instance


class Tried(NamedTuple):
    """A decision: its value by objective, and the number of each job's choice."""

    values: dict[str, float]
    choices: tuple[int, ...]


def decisions(instance: Instance, objectives: tuple[str, ...]) -> Iterator[Tried]:
    """Yield all decisions of a round without nodes that sleep; which GPUs jobs have makes none."""
    instance = decided(instance)
    by_kind = kinds(instance)
    free = _free(instance, {kind: structural_blocks(instance, nodes) for kind, nodes in by_kind.items()})
    of_jobs: list[list[dict[str, Any]]] = []
    for job in instance.jobs:
        found = [choices_of(instance, job, name) for name in objectives]
        of_jobs.append([dict(zip(objectives, same, strict=True)) for same in zip(*found, strict=True)])
    fixed = [not job.preemptible for job in instance.jobs]
    for numbers in product(*(range(len(choices)) for choices in of_jobs)):
        chosen = [choices[number] for choices, number in zip(of_jobs, numbers, strict=True)]
        combination = tuple(one[objectives[0]] for one in chosen)
        kept = together(instance, combination) and within_quotas(instance, combination)
        if not kept or not within_budgets(instance, combination):
            continue
        fits = all(
            fit(
                instance,
                kind,
                nodes,
                free,
                sorted(
                    c.gpus
                    for c, keep in zip(combination, fixed, strict=True)
                    if c.kind == kind and c.gpus and not keep
                ),
            )
            for kind, nodes in by_kind.items()
        )
        if fits:
            yield Tried({n: _total(n, [one[n].value for one in chosen]) for n in objectives}, numbers)
