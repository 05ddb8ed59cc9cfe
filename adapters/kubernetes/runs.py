"""Runs of pods and of workloads: GPUs that something held for a time, and which of them are one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated

from pydantic import Field

from wattsched.adapters.kubernetes.objects import Condition, Metadata, Moment, Several
from wattsched.adapters.kubernetes.reading import GANG
from wattsched.adapters.parts import Part
from wattsched.instances.gpu_parts import part_named
from wattsched.reading.inputs import listed

POD_GROUP = "kueue.x-k8s.io/pod-group-name"
GROUPS = (
    *(GANG, "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", "ray.io/cluster"),
    *("volcano.sh/job-name", "scheduling.x-k8s.io/pod-group", "batch.kubernetes.io/job-name", "job-name"),
)
"""Labels of pods that run together, the widest first."""
TOGETHER_S = 60.0
"""Pods that a Job makes within so many seconds are its first ones."""
GANG_PART = 0.99
"""Pods of a group are one job if all of them hold their GPUs in this part of their GPU time at least.

Starts and ends of a gang are seconds apart; so far a moment of the trace may differ from the record.
"""
Name = tuple[str, str]
"""A namespace, and a name or a UID in it."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TimedCondition(Condition):
    """Condition of an object, with its reason, and since when it has it."""

    reason: str | None = ""
    moment_s: Annotated[Moment, Field(alias="lastTransitionTime")] = None


class _Owner(Part):
    name: str = ""
    uid: str = ""


class Owned(Metadata):
    """Metadata of an object, with its owners."""

    owners: Annotated[Several[_Owner], Field(alias="ownerReferences")] = []

    @property
    def words(self) -> set[Name]:
        """Return names and UIDs, with the namespace, that a workload and its pods have in common."""
        found = {self.uid, *(word for one in self.owners for word in (one.name, one.uid))}
        found |= {self.labels.get(label, "") for label in (POD_GROUP, *GROUPS)}
        return {(self.namespace, word) for word in found if word}


@dataclass(frozen=True)
class Run:
    """GPUs that something held for a time.

    Attributes
    ----------
    group : str
        What it ran together with; its own name for a pod on its own.
    start_s, end_s : float
        Infinite where it never started, or has not ended.
    limit_s : float
        Longest time that it may run.
    seen_s : float
        When it was asked for last.
    gpu_type : str
        As nodes have it; empty where that is not clear.
    excluded : str
        Why it is not in the trace, though it ran; or empty.
    job : (str, str)
        Namespace and name of the Job that a pod is of; without a name where it is of none.
    """

    group: str
    namespace: str
    user: str
    state: str
    created_s: float
    start_s: float
    end_s: float
    limit_s: float
    seen_s: float
    gpus: int
    gpu_type: str
    excluded: str = ""
    job: Name = ("", "")


def unread_devices(others: Sequence[str]) -> str:
    """Return why something has no GPUs that are read, though it asks for other devices; empty where not."""
    return f"without GPUs that are read, but with {listed(sorted(set(others)), '')}" if others else ""


def together(runs: Iterable[Run]) -> list[Run]:
    """Runs of a gang as one: those of a group that overlap, and hold their GPUs at the same time.

    Others that overlap, such as pods of a Job that run one after the other, stay what they are.
    """
    found, overlapping, busy_until_s = list[Run](), list[Run](), -inf
    for run in sorted(runs, key=lambda run: (run.group, run.start_s)):
        if overlapping and (run.group != overlapping[0].group or run.start_s >= busy_until_s):
            found += _joined(overlapping)
            overlapping, busy_until_s = [], -inf
        overlapping.append(run)
        busy_until_s = max(busy_until_s, run.end_s)
    found += _joined(overlapping)
    return sorted(found, key=lambda run: (run.created_s, run.group, run.start_s))


def _joined(runs: list[Run]) -> list[Run]:
    """Runs of a gang as one with all their GPUs and their GPU time; others as they are."""
    if len(runs) < 2:
        return runs
    start_s, gpus = runs[0].start_s, sum(run.gpus for run in runs)
    gpu_s = sum(run.gpus * (run.end_s - run.start_s) for run in runs)
    # Seconds in which all of them hold their GPUs.
    all_s = min(run.end_s for run in runs) - max(run.start_s for run in runs)
    types = {run.gpu_type for run in runs}
    # GPUs of several types count together, slices do not.
    if gpus * all_s < GANG_PART * gpu_s or (len(types) > 1 and any(part_named(one).kind for one in types)):
        return runs
    states = {run.state for run in runs}
    return [
        replace(
            runs[0],
            state=next((one for one in ("running", "failed") if one in states), runs[0].state),
            created_s=min(run.created_s for run in runs),
            end_s=start_s + gpu_s / gpus,
            gpus=gpus,
            gpu_type=runs[0].gpu_type if len(types) == 1 else "",
        )
    ]
