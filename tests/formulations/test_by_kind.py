"""Rounds by kind: the same program as with every option written out, and the same answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies.instances import small_instances, tables

from wattsched.formulations.kinds import KindProgram
from wattsched.formulations.sizing import by_kind, mckp
from wattsched.formulations.sizing.data import comparable_jobs, jobs_without_options
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.solvers import by_kind as solver
from wattsched.solvers import price
from wattsched.solvers.solution import Limits
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


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])
@given(rounds(), st.integers(0, 2**32 - 1))
def test_prices_prove_the_same(instance: Instance, seed: int) -> None:
    known = comparable_jobs(instance)
    assume(not jobs_without_options(known))
    explicit = mckp.build(known, instance.objective).program
    kinds = by_kind.of_kinds(known, OBJECTIVES[instance.objective]).program
    assert isinstance(kinds, KindProgram)
    rng = np.random.default_rng(seed)
    for scale in (0.0, 1e-3, 1.0, 100.0):
        named = {name: -scale * rng.exponential() for name in kinds.row_names()}
        # A row that no undominated option uses is only in one of them; it has no price then.
        named |= dict.fromkeys(set(kinds.row_names()) - set(explicit.row_names()), 0.0)
        bounds = [
            program.lagrangian_bound(np.array([named[name] for name in program.row_names()]))
            for program in (explicit, kinds)
        ]
        assert bounds[1] == pytest.approx(bounds[0], rel=1e-9, abs=1e-9)


@settings(max_examples=300, deadline=None)
@given(instance=rounds(), sizes=st.sampled_from([(1, 3, 10, 100), (2, 1_000), (1_000,)]))
def test_the_answer_is_the_same(instance: Instance, sizes: tuple[int, ...]) -> None:
    known = comparable_jobs(instance)
    assume(not jobs_without_options(known))
    written = mckp.build(known, instance.objective)
    kinds = by_kind.of_kinds(known, OBJECTIVES[instance.objective])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "SIZES", sizes)
        found = [price.solve(written.program, Limits(gap=0.0))]
        found += [solver.solve(kinds.program, Limits(gap=0.0, threads=threads)) for threads in (1, 2)]
    assert {one.termination.reason for one in found} <= {"optimal", "infeasible"}
    assert len({one.termination.reason for one in found}) == 1
    explicit, single, double = found
    if explicit.x is None:
        assert single.x is None
        return
    assert np.array_equal(single.x, double.x)
    assert np.array_equal(single.prices, double.prices)
    assert single.objective == pytest.approx(explicit.objective, rel=1e-9, abs=1e-9)
    assert single.bound == pytest.approx(explicit.bound, rel=1e-6, abs=1e-6)
    decision = kinds.decode(single.x, {})
    report = check(instance, decision)
    assert not report.faults
    point = kinds.encode(decision)
    assert point is not None
    assert kinds.program.objective(point) == pytest.approx(single.objective, rel=1e-9, abs=1e-9)
    assert report.objective == pytest.approx(kinds.program.reported(single.objective), rel=1e-9, abs=1e-9)
    point = kinds.encode(decision)
    assert point is not None
    assert kinds.program.objective(point) <= single.objective + 1e-9 * abs(single.objective)
