"""Exactly the dominated options go."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.sizing.budgets import budget_rows
from wattsched.formulations.sizing.columns import undominated
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
