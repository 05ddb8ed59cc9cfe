"""Exactly the dominated options go."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.sizing.budgets import budget_rows
from wattsched.formulations.sizing.columns import beaten_in_runs, undominated
from wattsched.formulations.sizing.data import expand
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance


@settings(max_examples=examples(150))
@given(instance=small_instances(max_jobs=3), objective=st.sampled_from(sorted(OBJECTIVES)))
def test_an_option_goes_only_if_another_is_at_least_as_good_in_everything(
    instance: Instance, objective: str
) -> None:
    options = expand(instance)
    assume(len(options))
    cost = OBJECTIVES[objective].cost(options)
    keep = undominated(options, cost)
    uses = np.zeros((len(rows := budget_rows(options)), len(options)))
    for use, row in zip(uses, rows, strict=True):
        use[row.column] = -row.use if row.least else row.use
    vectors = np.array([cost, options.block, *uses]).T
    for i in np.flatnonzero(~keep):
        rivals = np.flatnonzero(keep & (options.job == options.job[i]))
        rivals = [r for r in rivals if options.pool[r] in (options.pool[i], -1)]
        assert any((vectors[r] <= vectors[i] + 1e-9 * np.abs(vectors[i])).all() for r in rivals)
    for a in np.flatnonzero(keep):
        for b in np.flatnonzero(keep & (options.job == options.job[a]) & (options.pool == options.pool[a])):
            assert a == b or not (vectors[a] <= vectors[b]).all()


COLUMNS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)))


@given(columns=COLUMNS, in_order=st.booleans())
def test_by_two_criteria_a_column_is_beaten_as_by_all_pairs(
    columns: list[tuple[int, int, int, int]], in_order: bool
) -> None:
    columns = sorted(columns, key=lambda column: (column[0], column[1], column[3] * in_order))
    job, pool, *criteria = np.array(columns, dtype=np.int64).reshape(-1, 4).T
    beaten = [
        any(
            (j, p) == other[:2] and other[2] <= a and other[3] <= b and (other[2:] != (a, b) or k < i)
            for k, other in enumerate(columns)
        )
        for i, (j, p, a, b) in enumerate(columns)
    ]
    assert beaten_in_runs(job, pool, np.array(criteria, dtype=float)).tolist() == beaten
