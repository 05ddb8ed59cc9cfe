"""The Lagrangian bound is what its formula says, and never above the optimum."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.sizing.data import expand, without_options
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits


@settings(max_examples=examples(60))
@given(
    instance=small_instances(),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    name=st.sampled_from(["mckp", "assignment"]),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.0, 0.1, 10.0, 1e4]),
)
def test_any_prices_prove_a_bound(
    instance: Instance, objective: str, name: str, seed: int, scale: float
) -> None:
    options = expand(instance)
    assume(not len(without_options(options.of)))
    program = problem("sizing").formulation(name)(options, objective).program
    y = scale * np.random.default_rng(seed).standard_normal(program.n_rows)
    bound = program.lagrangian_bound(y)

    y = np.where(np.isfinite(program.row_lower) | (y < 0), y, 0.0)
    y = np.where(np.isfinite(program.row_upper) | (y > 0), y, 0.0)
    dense = program.matrix.toarray()
    expected = program.offset
    for i, price in enumerate(y):
        if price:
            expected += price * (program.row_lower[i] if price > 0 else program.row_upper[i])
    reduced = [program.cost[j] - sum(y * dense[:, j]) for j in range(program.n_columns)]
    for a, b in zip(program.group_start, program.group_start[1:], strict=False):
        expected += min(reduced[a:b])
    for j in range(program.n_choices, program.n_columns):
        expected += min(reduced[j] * program.lower[j], reduced[j] * program.upper[j])
    assert bound == expected or abs(bound - expected) <= 1e-9 * max(
        1.0, abs(expected), float(np.abs(y).max()) * 1e4
    )

    solution = get("highs")(program, Limits(gap=0.0))
    if solution.objective is not None:
        assert bound <= solution.objective + 1e-6 * max(1.0, abs(solution.objective))
