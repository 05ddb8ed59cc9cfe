"""Blocks, their plans, and branch and price over them, against trying all ways."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.strategies.effort import examples
from wattsched.formulations.program import Block as Rows
from wattsched.formulations.program import Program, ProgramBuilder
from wattsched.formulations.timer import Timer
from wattsched.solvers.blocks import Blocks
from wattsched.solvers.decomposition import Decomposition
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.incumbent import Incumbent
from wattsched.solvers.plans import Master, MasterPrices, Subproblem
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import FloatArray

SIZES = (1, 2, 4)


@st.composite
def racks(draw: st.DrawFn) -> Program:
    """Jobs that wait or run in one of some racks, with GPUs, a buddy row and watts; perhaps a site's cap."""
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    n_racks, n_jobs = draw(st.integers(2, 3)), draw(st.integers(1, 4))
    alike, site = draw(st.booleans()), draw(st.booleans())
    gpus = np.full(n_racks, 5) if alike else rng.integers(1, 7, n_racks)
    cap_w = np.full(n_racks, 300.0) if alike else rng.uniform(50, 500, n_racks).round(3)
    cost, rack, size, watts, start = list[float](), list[int](), list[int](), list[float](), [0]
    for _ in range(n_jobs):
        waiting = float(rng.uniform(50, 100))
        cost, rack, size, watts = [*cost, waiting], [*rack, -1], [*size, 0], [*watts, 0.0]
        for _ in range(draw(st.integers(0, 2))):
            gained, at, w = rng.uniform(0, 50), int(rng.choice(SIZES)), round(float(rng.uniform(40, 200)), 3)
            for r in range(n_racks) if alike else [int(rng.integers(n_racks))]:
                cost, rack, size, watts = [*cost, waiting - gained], [*rack, r], [*size, at], [*watts, w]
        start.append(len(cost))
    builder = ProgramBuilder()
    columns = builder.columns(Rows("option", len(cost)), cost=np.array(cost))
    of, takes, draws = np.array(rack), np.array(size), np.array(watts)
    for r in range(n_racks):
        mine = columns[of == r]
        builder.row(f"gpus:{r}", mine, takes[of == r], upper=float(gpus[r]))
        large = (of == r) & (takes >= 2)
        builder.row(
            f"buddy:{r}", columns[large], takes[large], upper=float(max(0, gpus[r] // 2 * 2 - 2 * (r % 2)))
        )
        builder.row(f"power_w:{r}", mine, draws[of == r], upper=float(cap_w[r]))
    if site:
        builder.row("power_w", columns[of >= 0], draws[of >= 0], upper=float(cap_w.sum() * 0.6))
    return builder.program(np.array(start))


def ways(program: Program) -> list[FloatArray]:
    """All points that keep the rows."""
    spans = [range(a, b) for a, b in zip(program.group_start, program.group_start[1:], strict=False)]
    found = []
    for chosen in product(*spans):
        x = np.zeros(program.n_columns)
        x[list(chosen)] = 1.0
        if program.violation(x) <= 1e-9:
            found.append(x)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(racks())
def test_branching_over_plans_finds_the_best_of_all_ways(program: Program) -> None:
    blocks = Blocks.of(program)
    if blocks is None:
        return
    search = Incumbent(program, Limits(gap=0.0), Timer())
    prices, _ = dual_prices(program)
    proof = Decomposition(blocks, search, prices).run()
    best = min(map(program.objective, ways(program)))
    assert search.x is not None
    assert search.objective == pytest.approx(best, rel=1e-9)
    assert proof.bound == pytest.approx(best, rel=2e-5)
    assert proof.bound <= best * (1 + 1e-9)


@settings(max_examples=examples(150), deadline=None)
@given(racks(), st.integers(0, 10**6))
def test_any_prices_bound_all_ways(program: Program, seed: int) -> None:
    blocks = Blocks.of(program)
    if blocks is None:
        return
    rng = np.random.default_rng(seed)
    of_groups = rng.uniform(0, 120, program.n_groups)
    priced, plans = Master(blocks).priced(
        MasterPrices(of_groups, -rng.uniform(0, 0.3, len(blocks.linking))),
        Subproblem(np.ones(program.n_columns, dtype=bool)),
    )
    assert priced.bound <= min(map(program.objective, ways(program))) + 1e-6
    for plan in plans:  # which keeps the rows of its block
        x = np.zeros(program.n_columns)
        x[blocks.blocks[plan.block].columns[0][plan.places]] = 1.0
        own = np.setdiff1d(np.arange(program.n_rows), blocks.linking)
        assert np.all((program.matrix @ x)[own] <= program.row_upper[own] + 1e-6)


@settings(max_examples=examples(150), deadline=None)
@given(racks(), st.integers(0, 10**6))
def test_the_cheapest_plan_is_the_cheapest_of_all(program: Program, seed: int) -> None:
    blocks = Blocks.of(program)
    for block in [] if blocks is None else blocks.blocks:
        reduced = np.random.default_rng(seed).uniform(-50, 20, len(block.group))
        mine = [[-1, *np.flatnonzero(block.group == group).tolist()] for group in np.unique(block.group)]
        least = 0.0
        for chosen in product(*mine):
            places = [place for place in chosen if place >= 0]
            state = 0
            for place in places:
                state = block.after[block.step[place], state] if state < block.after.shape[1] else state
            if state < block.after.shape[1] and block.uses[-1, places].sum() <= 1.0:
                least = min(least, float(reduced[places].sum()))
        found, places = block.cheapest(reduced, np.full(len(block.uses), 100.0), 0.0)
        assert found == pytest.approx(least, rel=1e-6, abs=1e-9)
        assert reduced[places].sum() == pytest.approx(least, rel=1e-6, abs=1e-9)


def test_a_round_of_racks_is_closed_and_proven() -> None:
    round_ = wattsched.generate("hetero", jobs=40, racks=9, rack_power_fraction=0.4, seed=5)
    result = wattsched.solve(round_, solver="price")
    assert result.gap is not None
    assert result.gap <= 1e-4
    assert result.certificate is not None
    assert any(name.startswith("job:") for node in result.certificate.tree for name in node.prices or {})
    assert wattsched.check(round_, result).faults == []
    # The relaxation of the program alone proves far less.
    of_rows = result.certificate.price_bound
    assert of_rows is not None
    assert result.objective - result.certificate.bound < 0.5 * (result.objective - of_rows)


def test_it_is_said_that_time_ended_the_search_though_some_is_left_for_the_proof() -> None:
    round_ = wattsched.generate("hetero", jobs=100, racks=16, rack_power_fraction=0.4, seed=5)
    result = wattsched.solve(round_, solver="price", gap=0.0, time_limit=2.5)
    assert (result.termination.reason, result.termination.limit) == ("feasible", "time")


def test_a_large_pool_has_no_blocks() -> None:
    builder = ProgramBuilder()
    columns = builder.columns(Rows("option", 4), cost=np.array([2.0, 1.0, 2.0, 1.0]))
    builder.row("gpus", columns[[1, 3]], 1.0, upper=1.0)
    assert Blocks.of(builder.program(np.array([0, 2, 4]))) is None
