"""The checker of `sharing`: EaCO's tables come out of it, and every kind of fault is found."""

from __future__ import annotations

from typing import Any

import pytest

from wattsched.instances.generators.sharing import NODE, eaco_classes, eaco_node, eaco_sets
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import Job, SharingInstance
from wattsched.perfmodels.co_location import ALONE, EPOCHS, SHARED
from wattsched.verification.sharing.checker import check

SAVINGS_PCT = (29.8, 31.4, 31.7, 44.5, 42.4, 42.1)
"""Published savings of the sets in energy against their jobs alone."""


def eaco_instance(*classes: str, **fields: Any) -> SharingInstance:
    """One job of each class, with all of its epochs."""
    jobs = [Job(name=f"j{i}", job_class=name, remaining_epochs=EPOCHS) for i, name in enumerate(classes)]
    given = {
        "problem": "sharing",
        "unit_types": [eaco_node(4)],
        "classes": eaco_classes(),
        "sets": eaco_sets(),
        "jobs": jobs,
    }
    return SharingInstance(**(given | fields))


def decided(*sets: str, waiting: tuple[str, ...] = (), unit_type: str = NODE) -> SharingDecision:
    formed = [SharedSet(unit_type=unit_type, jobs=names.split("+")) for names in sets]
    return SharingDecision(sets=formed, waiting=list(waiting))


@pytest.mark.parametrize("name", list(ALONE))
def test_jobs_alone_are_as_published(name: str) -> None:
    report = check(eaco_instance(name), decided("j0"))
    run = ALONE[name]
    assert report.faults == []
    assert report.totals["power_w"] == run.power_w
    assert report.totals["energy_j"] / 3.6e6 == pytest.approx(run.energy_kwh, rel=2e-3)
    assert report.totals["mean_completion_s"] / 3600 == pytest.approx(run.jct_h)


@pytest.mark.parametrize(("members", "saving"), list(zip(SHARED, SAVINGS_PCT, strict=True)))
def test_shared_sets_are_as_published(members: tuple[str, ...], saving: float) -> None:
    instance = eaco_instance(*members)
    together = check(instance, decided("+".join(job.name for job in instance.jobs)))
    apart = check(instance, decided(*(job.name for job in instance.jobs)))
    run = SHARED[members]
    assert together.faults == apart.faults == []
    assert together.totals["power_w"] == run.power_w
    assert together.totals["mean_completion_s"] / 3600 == pytest.approx(run.jct_h)
    kwh = together.totals["energy_j"] / 3.6e6
    saved = 100 * (1 - together.totals["energy_j"] / apart.totals["energy_j"])
    if len(members) < 4:
        assert kwh == pytest.approx(run.energy_kwh, rel=2e-3)
        assert saved == pytest.approx(saving, abs=0.15)
    else:
        # The published energy is not the published power times the published time.
        assert kwh == pytest.approx(1944 * 44.21 / 1000)
        assert saved == pytest.approx(46.9, abs=0.1)


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (decided("j0+j1", "j1+j2"), "job 'j1' is named 2 times among those that run"),
        (decided("j0+j1"), "job 'j2' neither runs nor waits"),
        (decided("j0+j1", "j2", waiting=("j2",)), "job 'j2' runs and waits"),
        (decided("j0+j1", "j2+x"), "job 'x' is not in the instance"),
        (decided("j0+j0", "j1", "j2"), "job 'j0' is named 2 times among those that run"),
        (decided("j0", "j1", "j2", unit_type="gpu"), "the unit type 'gpu' is not in the instance"),
        (decided("j0", "j1", "j2"), f"3 sets on '{NODE}', it has 2 units"),
        (decided("j0+j1+j2"), "the set has 3 jobs, limits.jobs_per_set is 2"),
        (decided("j1", "j0+j2"), "the set has a utilisation of 55.16 %, limits.utilisation_pct is 50"),
        (decided("j0+j1", waiting=("j2",)), "budgets.power_w"),
    ],
)
def test_faults_are_found(decision: SharingDecision, told: str) -> None:
    instance = eaco_instance(
        "AlexNet", "ResNet-18", "VGG-16",
        unit_types=[eaco_node(2)],
        limits={"jobs_per_set": 2, "utilisation_pct": 50.0},
        budgets={"power_w": 900.0},
    )  # fmt: skip
    report = check(instance, decision)
    assert any(told in fault for fault in report.faults), report.faults
    assert report.objective is None


def test_deadlines_and_exclusive_jobs_are_kept() -> None:
    jobs = [
        Job(name="late", job_class="ResNet-18", remaining_epochs=90.0, deadline_s=35.5 * 3600),
        Job(name="mine", job_class="VGG-16", exclusive=True, can_wait=False),
    ]
    instance = eaco_instance(jobs=jobs)
    faults = check(instance, decided("late+mine")).faults
    assert any("job 'late' completes after" in fault for fault in faults)
    assert any("job 'mine' is exclusive and shares its unit" in fault for fault in faults)
    assert check(instance, decided("late", "mine")).faults == []
    assert any(
        "'mine' waits and may not" in f for f in check(instance, decided("late", waiting=("mine",))).faults
    )
    waits = instance.model_copy(update={"round_s": 3600.0})
    assert any(
        "job 'late' waits and then" in f for f in check(waits, decided("mine", waiting=("late",))).faults
    )


def test_units_of_a_pool_share_its_gpus() -> None:
    node = eaco_node(4).model_copy(update={"pool": "v100"})
    instance = eaco_instance("AlexNet", "VGG-16", unit_types=[node], pools=[{"name": "v100", "gpus": 15}])
    assert check(instance, decided("j0+j1")).faults == []
    assert check(instance, decided("j0", "j1")).faults == ["the sets use 16 GPUs of pool 'v100', it has 15"]
