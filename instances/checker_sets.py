"""The checker's rules of sets: all jobs of a declared set run on the same GPUs, or none is in it."""

from __future__ import annotations

from collections.abc import Iterator

from wattsched.instances.checker_gpus import gpus_of
from wattsched.instances.decision import Assignment, Decision
from wattsched.instances.instance import Instance


def set_faults(instance: Instance, decision: Decision) -> Iterator[str]:
    """Sets that are not declared, or in which a job is missing, a stranger, or on other GPUs."""
    declared = {one.name: one for one in instance.sets}
    for name, members in _formed(decision).items():
        if name not in declared:
            yield f"job '{members[0].job}' is in the set '{name}', which is not declared"
            continue
        present = {assignment.job for assignment in members}
        for job in declared[name].rates:
            if job not in present:
                yield f"set '{name}' is formed without its job '{job}'"
        first = members[0]
        for other in members:
            if other.job not in declared[name].rates:
                yield f"job '{other.job}' is not in the set '{name}'"
            elif gpus_of(other.nodes) != gpus_of(first.nodes):
                yield f"jobs '{first.job}' and '{other.job}' of set '{name}' have different GPUs"


def users_of(decision: Decision) -> list[Assignment]:
    """Assignments that take GPUs: the jobs alone, and the first of every set."""
    return [*(a for a in decision.jobs if a.set is None), *(found[0] for found in _formed(decision).values())]


def _formed(decision: Decision) -> dict[str, list[Assignment]]:
    found: dict[str, list[Assignment]] = {}
    for assignment in decision.jobs:
        if assignment.set is not None:
            found.setdefault(assignment.set, []).append(assignment)
    return found
