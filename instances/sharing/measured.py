"""EaCO's measurements as parts of an instance of `sharing`."""

from __future__ import annotations

from wattsched.instances.sharing.instance import Alone, JobClass, MeasuredSet, UnitType
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
