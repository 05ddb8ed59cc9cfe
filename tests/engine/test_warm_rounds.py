"""Round after round from arrays: what was decided is what jobs hold, and where the next round begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
import wattsched.solvers.by_kind as solved_by_kind
from tests.brute_force.agreement import solve_by_kind
from tests.strategies.decisions import decisions
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from tests.strategies.priced import OBJECTIVE, with_objective
from wattsched.formulations.sizing import configurations
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.topology.cluster import Cluster

GAP = 1e-6


def next_round(instance: Instance, decision: Decision, choice: np.random.Generator) -> Instance:
    """A round of the jobs that are left, in another order, and new ones; nothing can write to its arrays."""
    jobs = JobColumns.from_records(instance.jobs)
    many = np.arange(len(jobs))
    keep = choice.permutation(many)[: max(1, len(jobs) - 1)]
    members = {name for declared in instance.sets for name in declared.rates}
    fixed = [j for j in range(len(jobs)) if jobs.fixed[j] or jobs.names[j] in members]
    keep = np.union1d(keep, fixed).astype(np.int64)
    choice.shuffle(keep)
    new = choice.choice(np.setdiff1d(many, fixed), 2) if len(fixed) < len(jobs) else keep[:0]
    both = jobs.take(np.concatenate([keep, new]))
    columns: dict[str, Any] = {**both.columns, "current": AssignmentColumns.from_records(decision.jobs)}
    columns["name"] = [*both.names[: len(keep)], *(f"é{i}" for i in range(len(new)))]
    columns["restart_s"] = choice.choice([0.0, 40.0, 400.0], len(both))
    columns["remaining_work"] = both.numbers("remaining_work") * choice.uniform(0.5, 1.0, len(both))
    freeze(columns["current"].columns)
    freeze(columns)
    return instance.model_copy(update={"jobs": JobColumns(columns)})


def of_odd_sizes(instance: Instance) -> Instance:
    """The round with jobs of 3 GPUs in blocks of 4, none of which runs yet."""
    content = instance.model_dump()
    content["cluster"]["capacity"] = "blocks"
    for job in content["jobs"]:
        job |= {"current": None, "preemptible": True, "can_wait": True}  # some fit nowhere then
        gpus = [3 if gpus in (2, 4) else gpus for gpus in job["options"]["gpus"]]
        job["options"] |= {"gpus": gpus}
    return Instance.model_validate(content)


def on_broken_gpus(instance: Instance, decision: Decision, choice: np.random.Generator) -> Instance:
    """The next round of the same jobs, where GPUs are unavailable: of those left idle, or of all not kept."""
    kept = [job.current for job in instance.jobs if job.current is not None and not job.preemptible]
    used = [*kept, *(decision.jobs if choice.integers(2) else ())]
    spared = {(node, gpu) for one in used for node, gpus in one.nodes.items() for gpu in gpus}
    content = instance.cluster.model_dump()
    for node in content["nodes"]:
        able = [gpu for gpu in range(node["gpus"]) if (node["name"], gpu) not in spared]
        node["unavailable"] = sorted(choice.permutation(able)[: choice.integers(len(able) + 1)].tolist())
    columns = JobColumns.from_records(instance.jobs).columns
    columns = {**columns, "current": AssignmentColumns.from_records(decision.jobs)}
    update = {"jobs": JobColumns(columns), "cluster": Cluster.model_validate(content)}
    return instance.model_copy(update=update)


def freeze(columns: dict[str, Any]) -> None:
    """Let nobody write to arrays."""
    for column in columns.values():
        for array in (column, getattr(column, "codes", None)):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    st.one_of(small_instances(max_jobs=6, min_jobs=2), instances_with_sets()),
    st.sampled_from(sorted(OBJECTIVES)),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_a_warm_round_is_as_good_as_a_cold_one(
    instance: Instance, objective: str, kinds: bool, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        solve_by_kind(patch, kinds)
        patch.setattr(solved_by_kind, "_MENDED", 1)
        patch.setattr(solved_by_kind, "_MENDED_SHARE", 1.0)
        first = wattsched.solve(instance, objective=objective, gap=GAP)
        assume(first.decision is not None)
        second = next_round(instance, first.decision, np.random.default_rng(seed))
        warm = wattsched.solve(second, objective=objective, gap=GAP, initial_solution=first)
        cold = wattsched.solve(second, objective=objective, gap=GAP)
        rows = Instance.model_validate({**dict(second), "jobs": list(second.jobs)})
        of_rows = wattsched.solve(rows, objective=objective, gap=GAP)
    assert warm.digest == cold.digest == of_rows.digest
    assert warm.termination.reason == cold.termination.reason == of_rows.termination.reason
    if cold.decision is None:
        return
    for other in (cold, of_rows):
        assert warm.objective == pytest.approx(other.objective, rel=2 * GAP, abs=1e-9)
        assert warm.bound == pytest.approx(other.bound, rel=2 * GAP, abs=1e-9)
    assert not wattsched.check(second, warm).faults


@settings(max_examples=examples(100))
@given(
    small_instances(max_jobs=4) | small_instances(max_jobs=4).map(of_odd_sizes),
    st.sampled_from(sorted(OBJECTIVES)),
    st.integers(0, 2**32 - 1),
)
def test_where_gpus_break_jobs_go_on_as_well_as_if_nothing_was_decided_before(
    instance: Instance, objective: str, seed: int
) -> None:
    first = wattsched.solve(instance, objective=objective, gap=GAP)
    assume(first.decision is not None)
    second = on_broken_gpus(instance, first.decision, np.random.default_rng(seed))
    warm = wattsched.solve(second, objective=objective, gap=GAP, initial_solution=first)
    cold = wattsched.solve(second, objective=objective, gap=GAP)
    assert warm.termination.reason == cold.termination.reason
    assert (warm.decision is None) == (cold.decision is None)
    assert not warm.faults or warm.decided_by != "initial_solution"
    if cold.decision is not None and not second.by_column().numbers("change_cost").any():
        assert warm.objective == pytest.approx(cold.objective, rel=2 * GAP, abs=1e-9)
        assert warm.bound == pytest.approx(cold.bound, rel=2 * GAP, abs=1e-9)
    assert warm.decision is None or not wattsched.check(second, warm).faults


@settings(max_examples=examples(150), deadline=None)
@given(
    st.data(),
    small_instances(max_jobs=4)
    | small_instances(max_jobs=4).map(of_odd_sizes)
    | instances_with_sets()
    | sleeping(small_instances(max_jobs=4)),
    OBJECTIVE,
)
def test_whatever_a_round_begins_with_its_answer_contradicts_nothing(
    data: st.DataObject, instance: Instance, objective: str
) -> None:
    instance = with_objective(instance, objective)
    begins = data.draw(decisions(instance))
    assume(all(one.gpus == sum(map(len, one.nodes.values())) for one in begins.jobs))
    known = wattsched.check(instance, begins).report
    assert known is not None
    result = wattsched.solve(instance, initial_solution=begins, gap=GAP)
    assert not [
        fault for fault in result.faults if not fault.startswith("the decision of 'initial_solution'")
    ]
    if not known.faults and known.objective is not None:
        sign = 1.0 if result.sense == "min" else -1.0
        assert result.objective is not None
        assert sign * result.objective <= sign * known.objective + GAP * max(1.0, abs(known.objective))


def test_what_the_decision_before_leaves_is_where_a_large_round_begins() -> None:
    instance = wattsched.generate("uniform", jobs=400, seed=2)
    first = wattsched.solve(instance, gap=1e-4)
    jobs = JobColumns.from_records(instance.jobs)
    left = jobs.take(np.append(np.arange(4, 400), np.arange(4)))
    names = [*left.names[:-4], "a", "b", "c", "d"]
    held = AssignmentColumns.from_records(first.decision.jobs)
    columns = {**left.columns, "name": names, "current": held, "restart_s": np.full(400, 30.0)}
    second = instance.model_copy(update={"jobs": JobColumns.of(columns)})
    result = wattsched.solve(second, gap=1e-3, initial_solution=first)
    assert result.termination.reason == "optimal"
    assert result.faults == []
    assert "safety" not in result.time_s
    assert result.bound <= wattsched.solve(second, gap=1e-5).objective * (1 + 1e-9)


CHANGES: tuple[dict[str, Any], ...] = (
    *({"objective": name} for name in ("total-completion", "goodput", "progress")),
    *({"power_w": part} for part in (None, 0.7, 0.9)),
    *({"round_s": seconds} for seconds in (60.0, 900.0)),
    *({"carbon_g": most} for most in (None, 2e4, 3e4)),
    *({"carbon_g_per_kwh": grams} for grams in (200.0, 900.0)),
    *({"scope": name} for name in ("round", "completion")),
    *({"reserved_w": {"node0": watts}} for watts in (0.0, 900.0)),
    *({"unavailable": {"node2": gone}} for gone in ((), (0, 3))),
    {"down": ["node1"]},
    {"up": ["node1"]},
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(CHANGES), min_size=2, max_size=6), st.integers(0, 3))
def test_what_kinds_have_from_the_round_before_is_of_this_round(changes: list[Any], seed: int) -> None:
    """A session whose budgets, jobs and cluster change decides as its file does that is read anew."""
    first = wattsched.generate("uniform", jobs=12, budget="power", seed=seed)
    tables = {name: table.model_dump() for name, table in first.tables.items()}
    own = wattsched.Session(
        first.cluster, tables=tables, objective="total-completion", carbon_g_per_kwh=200.0
    )
    names = [job.name for job in first.jobs]
    work = [job.remaining_work for job in first.jobs]
    own.upsert(names, options=[min(tables)] * len(names), remaining_work=work, restart_s=[40.0] * len(names))
    decided = []
    with pytest.MonkeyPatch.context() as patch:
        solve_by_kind(patch, True)
        patch.setattr(configurations, "_ALIKE", 1)
        for name, change in zip(names, changes, strict=False):
            part = change.get("power_w")
            own.update(**change | ({"power_w": part * first.budgets.power_w} if part else {}))
            decision = own.solve(gap=GAP)
            decided.append((own.to_instance().model_dump(mode="json"), decision.result))
            if decision.result.decision is not None:
                own.apply(decision)
            own.remove([name])
        # Not in between: what was found last would be of other objects.
        for file, warm in decided:
            anew = wattsched.solve(Instance.model_validate(file), gap=GAP)
            assert warm.termination.reason == anew.termination.reason
            assert warm.objective == pytest.approx(anew.objective, rel=2 * GAP, abs=1e-9)


def test_a_count_of_0_is_none() -> None:
    columns = {"name": ["a", "b"], "options": ["kind000"] * 2, "remaining_work": np.ones(2)}
    jobs = JobColumns.of({**columns, "min_gpus": np.array([0, 2])})
    assert [job.min_gpus for job in jobs] == [None, 2]
