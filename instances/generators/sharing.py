"""The `sharing` family: training jobs that may share nodes, as EaCO measured them, or single GPUs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from wattsched.instances.clusters import numbered
from wattsched.instances.errors import require_range
from wattsched.instances.sharing.instance import (
    Alone,
    Budgets,
    Job,
    JobClass,
    Limits,
    MeasuredSet,
    SharingInstance,
    UnitType,
)
from wattsched.perfmodels.co_location import ALONE, EPOCHS, FULL_W, IDLE_W, SHARED, measured_slowdown

NODE = "v100x8"


def eaco_node(count: int, name: str = NODE) -> UnitType:
    """Nodes with eight V100; a node without a job sleeps at 0 W, as in EaCO's evaluation."""
    return UnitType(name=name, count=count, gpus=8, idle_power_w=IDLE_W, full_power_w=FULL_W)


def eaco_classes(name: str = NODE) -> list[JobClass]:
    """The four ImageNet jobs as measured alone."""
    return [
        JobClass(
            name=job,
            alone={
                name: Alone(
                    epoch_s=run.jct_h * 3600 / EPOCHS,
                    utilisation_pct=run.utilisation_pct,
                    memory_pct=run.memory_pct,
                    power_w=run.power_w,
                )
            },
        )
        for job, run in ALONE.items()
    ]


def eaco_sets(name: str = NODE) -> list[MeasuredSet]:
    """The six sets that share a node; every job of a set has its mean slowdown."""
    return [
        MeasuredSet(
            unit_type=name,
            classes=list(jobs),
            slowdown=[measured_slowdown(jobs)] * len(jobs),
            power_w=run.power_w,
            utilisation_pct=run.utilisation_pct,
            memory_pct=run.memory_pct,
        )
        for jobs, run in SHARED.items()
    ]


NODE_GPUS = 8
GPU_TYPES = {"v100": (1.0, 30.0, 300.0), "p100": (1.6, 25.0, 250.0), "k80": (4.5, 25.0, 150.0)}
"""GPU type to its epoch time against a V100 (near Gavel's medians) and its idle and full watts."""

JOBS_PER_UNIT = 1.6
KINDS = 12


def sharing_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    units: Literal["nodes", "gpus"] = "nodes",
    jobs_per_set: int | None = None,
    power_fraction: float | None = None,
    deadlines: float = 0.2,
    exclusive: float = 0.05,
) -> SharingInstance:
    """Jobs that share nodes of 8 GPUs, up to four on each, or single GPUs of three types in pairs.

    Parameters
    ----------
    gpus : int, optional
        GPUs of all units together, in whole nodes of 8 with units nodes: 9 to 16 are two (default: five units
        for eight jobs).
    units : {"nodes", "gpus"}
        What jobs share: nodes, by jobs of the four classes that EaCO measured, or gpus, by made-up jobs under
        its laws.
    jobs_per_set : int, optional
        Jobs that may share a unit, 1 to 8 (default: 4 on a node, 2 on a GPU).
    power_fraction : float, optional
        Power budget as a part, up to 1, of the draw of all units at full utilisation (default: no budget).
    deadlines : float
        Part of the jobs, 0 to 1, that have a deadline: 1.2 to 4 times their time alone.
    exclusive : float
        Part of the jobs, 0 to 1, that need a unit to themselves.

    Raises
    ------
    ValueError
        For a value out of range.
    """
    require_range(units in ("nodes", "gpus"), "units", "nodes or gpus", f"'{units}'")
    require_range(jobs_per_set is None or 1 <= jobs_per_set <= 8, "jobs_per_set", "from 1 to 8", jobs_per_set)
    for name, share in (("deadlines", deadlines), ("exclusive", exclusive)):
        require_range(0 <= share <= 1, name, "from 0 to 1", share)
    within = power_fraction is None or 0 < power_fraction <= 1
    require_range(within, "power_fraction", "above 0 and at most 1", power_fraction)
    rng = np.random.default_rng(seed)
    wanted = max(1, round(jobs / JOBS_PER_UNIT))
    if units == "nodes":
        count = wanted if gpus is None else -(-gpus // NODE_GPUS)
        types, classes, sets = [eaco_node(count)], eaco_classes(), eaco_sets()
    else:
        types, sets = _gpu_types(wanted if gpus is None else gpus), []
        classes = _gpu_classes(rng, [t.name for t in types])
    full_w = sum(unit.count * unit.full_power_w for unit in types)
    return SharingInstance(
        problem="sharing",
        name=f"sharing-{jobs}-{seed}",
        budgets=Budgets(power_w=None if power_fraction is None else round(power_fraction * full_w, 1)),
        limits=Limits(jobs_per_set=jobs_per_set or (4 if units == "nodes" else 2)),
        unit_types=types,
        classes=classes,
        sets=sets,
        jobs=_jobs(rng, jobs, classes, deadlines, exclusive),
    )


def _gpu_types(gpus: int) -> list[UnitType]:
    """Return the GPU types with `gpus` split evenly among them; the first types get the remainder."""
    counts = [(gpus + 2 - i) // 3 for i in range(len(GPU_TYPES))]
    return [
        UnitType(name=name, count=count, idle_power_w=idle_w, full_power_w=full_w)
        for (name, (_, idle_w, full_w)), count in zip(GPU_TYPES.items(), counts, strict=True)
        if count
    ]


def _gpu_classes(rng: np.random.Generator, types: list[str]) -> list[JobClass]:
    """Classes with made-up measurements on these types; slower ones are busier."""
    classes, slower = [], {name: factor for name, (factor, _, _) in GPU_TYPES.items()}
    for k in range(KINDS):
        epoch_s, load, memory = rng.lognormal(np.log(300), 0.7), rng.uniform(15, 95), rng.uniform(5, 60)
        taste = rng.lognormal(0.0, 0.15, len(types))
        alone = {
            name: Alone(
                epoch_s=float(f"{epoch_s * slower[name] * taste[i]:.6g}"),
                utilisation_pct=round(min(100.0, load * slower[name] ** 0.3), 1),
                memory_pct=round(memory, 1),
            )
            for i, name in enumerate(types)
        }
        classes.append(JobClass(name=f"kind{k:02d}", alone=alone))
    return classes


def _jobs(
    rng: np.random.Generator, count: int, classes: list[JobClass], deadlines: float, exclusive: float
) -> list[Job]:
    """Jobs of random classes, of which some parts have deadlines, and need a unit to themselves."""
    kind = rng.integers(len(classes), size=count)
    epochs = rng.integers(1, EPOCHS + 1, size=count).astype(float)
    has_deadline, alone = rng.random(count) < deadlines, rng.random(count) < exclusive
    slack = rng.uniform(1.2, 4.0, count)
    fastest_s = [min(a.epoch_s for a in job_class.alone.values()) for job_class in classes]
    deadline_s = 300.0 + slack * epochs * np.array(fastest_s)[kind]
    return [
        Job(
            name=name,
            job_class=classes[kind[j]].name,
            remaining_epochs=float(epochs[j]),
            deadline_s=round(float(deadline_s[j]), 1) if has_deadline[j] else None,
            exclusive=bool(alone[j]),
        )
        for j, name in enumerate(numbered("job", count))
    ]
