"""Rounds by kind: the same program as with every option written out, and the same answers, however spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.brute_force.agreement import moves_cost
from tests.strategies.effort import examples
from tests.strategies.instances import small_instances, tables
from wattsched.formulations.kinds import KindProgram, passes, shards
from wattsched.formulations.sizing import by_kind, mckp
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.data import comparable_jobs, without_options
from wattsched.formulations.sizing.matching import UNKNOWN, matching_rows
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.formulations.tolerances import VIOLATION
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.running.executors import SerialExecutor
from wattsched.solvers import by_kind as solver
from wattsched.solvers import price
from wattsched.solvers.solution import Limits, Solution, listening
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.checker import check

SCALING = sorted(name for name, objective in OBJECTIVES.items() if objective.by_kind is not None)


@st.composite
def rounds(draw: st.DrawFn) -> Instance:
    """Small round in which several jobs share a table, running ones that of the first of them."""
    content = draw(small_instances(max_jobs=6, min_jobs=2)).model_dump()
    held = [job["options"] for job in content["jobs"] if job["current"] is not None]
    content["tables"] = {
        "shared": draw(tables()),
        "other": draw(tables()),
        "held": (held or [draw(tables())])[0],
    }
    for job in content["jobs"]:
        if draw(st.integers(0, 3)):
            new = job["current"] is None
            job["options"] = draw(st.sampled_from(["shared", "other", "held"])) if new else "held"
            job["remaining_work"] = draw(st.sampled_from([0.25, 1.0, 1.5, 4.0]))
    content["objective"] = draw(st.sampled_from(SCALING))
    return Instance.model_validate(content)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.filter_too_much])
@given(rounds(), st.integers(0, 2**32 - 1))
def test_prices_prove_the_same(instance: Instance, seed: int) -> None:
    known = comparable_jobs(instance)
    assume(not len(without_options(known)))
    explicit = mckp.written_out(known, instance.objective).program
    kinds = by_kind.of_kinds(known, OBJECTIVES[instance.objective]).program
    assert isinstance(kinds, KindProgram)
    rng = np.random.default_rng(seed)
    for scale in (0.0, 1e-3, 1.0, 100.0):
        named = {name: -scale * rng.exponential() for name in kinds.row_names()}
        # A row that no undominated option uses is only in one of them; it has no price then.
        named |= dict.fromkeys(set(kinds.row_names()) - set(explicit.row_names()), 0.0)
        bounds = [
            program.lagrangian_bound(np.array([named.get(name, 0.0) for name in program.row_names()]))
            for program in (explicit, kinds)
        ]
        assert bounds[1] == pytest.approx(bounds[0], rel=1e-9, abs=1e-9)
        prices = np.array([named[name] for name in kinds.row_names()])
        costs, columns = passes.Passes(kinds).least(prices)
        reduced = kinds.reduced(np.arange(kinds.n_groups), columns, prices)
        assert reduced == pytest.approx(costs, rel=1e-9, abs=1e-9)


def spread_over(program: KindProgram, n: int) -> KindProgram:
    """The program with its groups in shards; as it is for one."""
    return program if n == 1 else replace(program, spread=SerialExecutor().kept(program.shards(n)))


@settings(max_examples=examples(150), deadline=None)
@given(
    instance=rounds(),
    sizes=st.sampled_from([(1, 3, 10, 100), (2, 1_000), (1_000,)]),
    spread=st.sampled_from([(1, 2), (1, 3), (2, 1), (3, 1), (7, 1)]),
)
def test_the_answer_is_the_same(instance: Instance, sizes: tuple[int, ...], spread: tuple[int, int]) -> None:
    known = comparable_jobs(instance)
    assume(not len(without_options(known)))
    written = mckp.written_out(known, instance.objective)
    # By kind there are no columns for ways to cut nodes up, only rows by size.
    assume(not written.program.supply)
    kinds = by_kind.of_kinds(known, OBJECTIVES[instance.objective])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "SIZES", sizes)
        found = [price.solve(written.program, Limits(gap=0.0))]
        assert isinstance(kinds.program, KindProgram)
        announced: list[Solution] = []
        for program, threads in ((kinds.program, 1), (spread_over(kinds.program, spread[0]), spread[1])):
            with listening(announced.append):
                found.append(solver.solve(program, Limits(gap=0.0, threads=threads)))
    for told in announced:
        # What is solved for a part is told as a point of the whole.
        assert told.x is None or kinds.program.violation(told.x) <= VIOLATION
        assert told.x is None or kinds.program.objective(told.x) == pytest.approx(told.objective, rel=1e-9)
    assert {one.termination.reason for one in found} <= {"optimal", "infeasible"}
    assert len({one.termination.reason for one in found}) == 1
    explicit, single, other = found
    if explicit.x is None:
        assert single.x is None
        return
    assert np.array_equal(single.x, other.x)
    assert np.array_equal(single.prices, other.prices)
    assert (single.objective, single.bound) == (other.objective, other.bound)
    assert single.objective == pytest.approx(explicit.objective, rel=1e-9, abs=1e-9)
    assert single.bound == pytest.approx(explicit.bound, rel=1e-6, abs=1e-6)
    decision = kinds.decode(single.x, {})
    report = check(instance, decision)
    assert not report.faults
    point = kinds.encode(decision)
    assert point is not None
    assert kinds.program.objective(point) == pytest.approx(single.objective, rel=1e-9, abs=1e-9)
    if not moves_cost(report.totals):
        assert report.objective == pytest.approx(kinds.program.reported(single.objective), rel=1e-9, abs=1e-9)
    proof = Prover(instance)(kinds.program.named_prices(single.prices), ())
    assert proof.bound is not None
    proven = kinds.program.lagrangian_bound(single.prices)
    assert proof.bound == pytest.approx(kinds.program.reported(proven), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("horizon_s", [np.inf, 3600.0])
def test_neither_threads_nor_shards_change_a_digit(horizon_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_BLOCK", 10)
    monkeypatch.setattr(passes, "_CELLS", 1 << 9)
    instance = generate("uniform", jobs=1_000, seed=1)
    kinds = by_kind.of_kinds(comparable_jobs(instance), OBJECTIVES[instance.objective]).program
    assert isinstance(kinds, KindProgram)
    kinds = replace(kinds, horizon_s=horizon_s)
    blocks, _ = shards.blocks_of(kinds.n_groups)
    assert len(blocks) > shards.CLUSTERS + 1
    rng = np.random.default_rng(7)
    for scale in (0.0, 1e-3, 1.0):
        prices = -scale * rng.exponential(size=kinds.n_rows)
        threshold, found = kinds.threshold(prices, 500), []
        for n_shards, threads in ((1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (7, 1)):
            one = replace(spread_over(kinds, n_shards), threads=threads)
            point = one.cheapest(prices)
            found.append([*one.sums(prices), point, *one.in_question(prices, threshold)])
        for other in found[1:]:
            assert all(np.array_equal(mine, theirs) for mine, theirs in zip(found[0], other, strict=True))
        assert kinds.objective(point) == pytest.approx(found[0][1].sum(), rel=1e-12)
        everyone = np.arange(kinds.n_groups)
        assert kinds.uses_in_all(everyone, point) == pytest.approx(found[0][2].sum(axis=0), rel=1e-12)


def test_rows_of_the_last_decision_are_found_in_a_round_of_other_jobs() -> None:
    instance = generate("uniform", jobs=2_000, seed=3)
    known = comparable_jobs(instance)
    model = by_kind.of_kinds(known, OBJECTIVES[instance.objective])
    x = solver.solve(model.program, Limits(gap=1e-3)).x
    assert x is not None
    decision, jobs = model.decode(x, {}), known.jobs
    rows = matching_rows(known, decision)
    assert np.array_equal(model.encode(decision), x)
    others = {**jobs.columns, "name": [*jobs.names[:-50], *(f"new{j}" for j in range(50))]}
    later = comparable_jobs(instance.model_copy(update={"jobs": JobColumns(others)}))
    found = matching_rows(later, decision)
    assert np.array_equal(found[:-50], rows[:-50])
    assert (found[-50:] == UNKNOWN).all()
    assert (found >= 0).any()
    assert (found == WAIT).any()


def test_greedy_leaves_no_cluster_idle_under_many_rows() -> None:
    instance = generate("hetero", jobs=300, racks=32, seed=1)
    kinds = by_kind.of_kinds(comparable_jobs(instance), OBJECTIVES[instance.objective]).program
    assert isinstance(kinds, KindProgram)
    found = solver.greedy_point(kinds, Limits())
    assert found.objective is not None
    assert found.objective <= found.bound * 1.05
