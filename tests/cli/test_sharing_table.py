"""A decision of `sharing` on a page."""

from __future__ import annotations

import io

from rich.console import Console

from wattsched.instances.generators.sharing import sharing_round
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.report.sharing import print_decision, print_instance


def printed(decision: SharingDecision, instance: SharingInstance | None = None) -> str:
    page = io.StringIO()
    print_decision(Console(file=page, width=160), decision, instance)
    return page.getvalue()


def test_equal_sets_are_one_row() -> None:
    instance = sharing_round(jobs=6, seed=0, deadlines=0.0, exclusive=0.0)
    by_class: dict[str, list[str]] = {}
    for job in instance.jobs:
        by_class.setdefault(job.job_class, []).append(job.name)
    name, jobs = max(by_class.items(), key=lambda item: len(item[1]))
    unit_type = instance.unit_types[0].name
    rest = [job.name for job in instance.jobs if job.name not in jobs]
    sets = [SharedSet(unit_type=unit_type, jobs=[job]) for job in jobs]
    text = printed(SharingDecision(sets=sets, waiting=rest), instance=instance)
    assert f"{len(jobs)} jobs on {len(jobs)} units, {len(rest)} wait" in text
    assert text.count(name) == 1
    assert "x 1" in text
    assert rest[0] in text
    plain = printed(SharingDecision(sets=sets, waiting=rest))
    assert plain.count(unit_type) == len(jobs)


def test_who_shares_with_whom_is_told() -> None:
    instance = sharing_round(jobs=7, seed=0, deadlines=0.0, exclusive=0.0)
    alike = [job.model_copy(update={"job_class": instance.classes[0].name}) for job in instance.jobs]
    names = [job.name for job in alike]
    unit_type = instance.unit_types[0].name
    sets = [SharedSet(unit_type=unit_type, jobs=names[i : i + 2]) for i in (0, 2, 4)]
    decision = SharingDecision(sets=sets, waiting=names[6:])
    text = printed(decision, instance=instance.model_copy(update={"jobs": alike}))
    assert f"{names[0]}+{names[1]}, {names[2]}+{names[3]} and 1 more" in text
    assert f"{names[4]}+{names[5]}" in printed(decision)


def test_an_instance_tells_its_units_and_classes() -> None:
    page = io.StringIO()
    print_instance(Console(file=page, width=160), sharing_round(jobs=30, seed=1, power_fraction=0.5))
    text = page.getvalue()
    assert "30 jobs, 6 measured sets" in text
    assert "356 to 1,972 W" in text
    assert "VGG-16" in text
    assert "power cap" in text
