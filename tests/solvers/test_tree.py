"""Trees that are grown for the sake of proof reach the optimum, and never go beyond it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from wattsched.formulations.counts import Counts
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.timer import Timer
from wattsched.solvers import highs, tree
from wattsched.solvers.solution import Limits

SEEDS = st.integers(0, 2**31)


def packing(seed: int, *, infeasible: bool = False) -> Program:
    """Whole numbers of columns that cover some rows under the limits of others."""
    rng, builder = np.random.default_rng(seed), ProgramBuilder()
    n = int(rng.integers(2, 7))
    columns = builder.columns(Block("column", n), cost=rng.integers(1, 10, n).astype(float), upper=50.0)
    for row in range(int(rng.integers(1, 4))):
        uses = rng.integers(0, 4, n)
        builder.row(f"cover{row}", columns, uses, lower=float(rng.integers(1, 8) if uses.any() else 0))
    builder.row("limit", columns, np.ones(n), upper=0.5 if infeasible else 30.0)
    if infeasible:
        builder.row("some", columns, np.ones(n), lower=0.25)
    return builder.program()


def single(program: Program) -> Counts:
    """Every column counts alone."""
    n = program.n_columns
    whole = csr_array(np.eye(n))
    return Counts(program, whole, np.zeros(n, dtype=np.int64), program.named_prices, lambda i: {"column": i})


@given(SEEDS)
def test_a_tree_that_counts_proves_the_optimum(seed: int) -> None:
    program = packing(seed)
    best = highs.solve(program, Limits(gap=0.0))
    assert best.objective is not None
    value = best.objective - 1e-6
    grown = tree.prove(program, value, Timer(), counts=single(program))
    assert value <= grown.bound <= best.objective + 1e-6
    # Prices of every leaf, with those of the sides of its splits, prove its part.
    for node in grown.nodes:
        assert (node.split is None) == (node.inside < 0)
        assert np.isfinite(node.prices).all()


@given(SEEDS)
def test_a_tree_that_counts_proves_that_there_is_no_point(seed: int) -> None:
    program = packing(seed, infeasible=True)
    assert tree.prove(program, 1e6, Timer(), counts=single(program)).bound >= 1e6


@given(SEEDS)
def test_few_nodes_prove_less_and_not_too_much(seed: int) -> None:
    program = packing(seed)
    best = highs.solve(program, Limits(gap=0.0))
    assert best.objective is not None
    grown = tree.prove(program, best.objective + 100.0, Timer(), counts=single(program), nodes=3)
    assert len(grown.nodes) <= 3
    assert grown.bound <= best.objective + 1e-6
