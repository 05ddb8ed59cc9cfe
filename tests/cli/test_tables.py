"""Instances and decisions of every problem on a page: what is shown of sets, shared units and slots."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.heuristics import greedy
from wattsched.instances.generators.sharing import sharing_round
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.report.shifting import curve
from wattsched.report.views import view
from wattsched.verification.shifting.checker import check

SETS = [
    {"name": f"pair{i}", "pool": "A", "gpus": 1, "power_w": 240, "rates": {"j0": 0.9, f"j{i}": 0.5}}
    for i in range(1, 30)
]
BEST = {"name": "best", "pool": "A", "gpus": 1, "power_w": 240, "rates": {"j29": 0.9, "j28": 0.8}}
INSTANCE = {
    "format": "wattsched-instance/1",
    "name": "shared",
    "objective": "goodput",
    "cluster": {
        "gpu_types": {"A": {"idle_power_w": 50}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 1}],
    },
    "tables": {"all": {"gpus": [1], "pool": ["A"], "rate": [1], "power_w": [200]}},
    "jobs": [{"name": f"j{i}", "options": "all", "remaining_work": 400} for i in range(30)],
    "sets": [*SETS, BEST],
}


def test_sets_are_shown_solved_and_checked(run, write, tmp_path):
    instance, result = write(INSTANCE), tmp_path / "result.json"
    shown = run("show", instance).output
    for told in ("Sets: 30  jobs that may share GPUs", "j0 0.9, j1 0.5", "... 18 more"):
        assert told in shown
    solved = run("solve", instance, "-o", result, code=0).stdout
    rows = [line.split()[:4] for line in solved.splitlines() if "best" in line]
    assert rows == [["j28", "1", "A", "best"], ["j29", "1", "A", "best"]]
    run("check", instance, result, code=0)
    content = json.loads(result.read_text())
    content["decision"]["jobs"].pop()
    content["decision"]["waiting"].append("j29")
    broken = run("check", instance, write(content, "broken.json"), code=1).output
    assert "set 'best' is formed without its job 'j29'" in broken


def printed(problem: str, instance: Any, decision: Any = None) -> str:
    """A decision with its instance, or an instance alone, as it is printed."""
    out = Console(file=io.StringIO(), width=200)
    if decision is None:
        view(problem).print_instance(out, instance)
    else:
        view(problem).print_decision(out, decision, instance)
    return out.file.getvalue()


def test_equal_sets_are_one_row():
    instance = sharing_round(jobs=6, seed=0, deadlines=0.0, exclusive=0.0)
    by_class: dict[str, list[str]] = {}
    for job in instance.jobs:
        by_class.setdefault(job.job_class, []).append(job.name)
    name, jobs = max(by_class.items(), key=lambda item: len(item[1]))
    unit_type = instance.unit_types[0].name
    rest = [job.name for job in instance.jobs if job.name not in jobs]
    decision = SharingDecision(
        sets=[SharedSet(unit_type=unit_type, jobs=[job]) for job in jobs], waiting=rest
    )
    text = printed("sharing", instance, decision)
    assert f"{len(jobs)} jobs on {len(jobs)} units, {len(rest)} wait" in text
    assert text.count(name) == 1
    assert "x 1" in text
    assert rest[0] in text
    assert printed("sharing", None, decision).count(unit_type) == len(jobs)


def test_who_shares_with_whom_is_told():
    instance = sharing_round(jobs=7, seed=0, deadlines=0.0, exclusive=0.0)
    alike = [job.model_copy(update={"job_class": instance.classes[0].name}) for job in instance.jobs]
    names, unit_type = [job.name for job in alike], instance.unit_types[0].name
    sets = [SharedSet(unit_type=unit_type, jobs=names[i : i + 2]) for i in (0, 2, 4)]
    decision = SharingDecision(sets=sets, waiting=names[6:])
    text = printed("sharing", instance.model_copy(update={"jobs": alike}), decision)
    assert f"{names[0]}+{names[1]}, {names[2]}+{names[3]} and 1 more" in text
    assert f"{names[4]}+{names[5]}" in printed("sharing", None, decision)


def test_an_instance_of_sharing_tells_its_units_and_classes():
    text = printed("sharing", sharing_round(jobs=30, seed=1, power_fraction=0.5))
    for told in ("30 jobs, 6 measured sets", "356 to 1,972 W", "VGG-16", "power cap"):
        assert told in text


def test_an_instance_of_shifting_and_its_decision_are_told():
    instance = shifting_horizon(jobs=5, slots=12, seed=3, carbon_fraction=0.9)
    decision = greedy(horizon_of(instance), "mean-completion")
    text = printed("shifting", instance) + printed("shifting", instance, decision)
    assert all(schedule.job in text for schedule in decision.jobs)
    assert all(word in text for word in ("A100", "Carbon intensity", "carbon budget", "5 jobs"))
    assert not check(instance, decision).faults
    assert curve([1.0, 8.0]) == "▁█"
    assert curve([2.0, 2.0]) == "▁▁"


def test_runs_over_slots_of_unequal_length_are_told_by_their_times():
    table = {"gpus": [1], "pool": ["a"], "power_w": [300.0], "rate": [1.0]}
    jobs = [{"name": "j", "options": table, "remaining_work": 2700.0, "arrival_s": 1200.0}]
    document = {"problem": "shifting", "slots": 3, "slot_s": [600.0, 1200.0, 3600.0], "jobs": jobs}
    instance = ShiftingInstance.model_validate(document | {"pools": {"a": {"gpus": 1}}})
    assert "30 min to 1.5 h: 1 a" in printed("shifting", instance, greedy(horizon_of(instance), "energy"))
