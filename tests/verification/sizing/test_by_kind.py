"""Least costs of many jobs of a kind at once are those of one option after the other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances, tables
from tests.strategies.priced import Priced, priced
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.arithmetic import DOUBLES, RATIONALS, Enclosure
from wattsched.verification.sizing import by_kind
from wattsched.verification.sizing.bound import prove
from wattsched.verification.sizing.by_kind import by_kind_of
from wattsched.verification.sizing.least_cost import in_range, least_costs
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import prices_of, rows_of


@st.composite
def rounds(draw: st.DrawFn) -> Instance:
    """Round in which several jobs share a table."""
    content = draw(small_instances(max_jobs=8, min_jobs=2)).model_dump()
    content["tables"] = {"shared": draw(tables()), "other": draw(tables())}
    for job in content["jobs"]:
        if draw(st.integers(0, 4)):
            job["options"] = draw(st.sampled_from(["shared", "shared", "other"]))
            job["remaining_work"] = draw(st.sampled_from([0.25, 1.0, 1.5, 4.0]))
    return Instance.model_validate(content)


@pytest.fixture(autouse=True)
def _of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_kind, "SEVERAL", 1)


@settings(max_examples=examples(200), deadline=None)
@given(case=priced(rounds()) | priced(instances_with_sets()), product=st.sampled_from([1, 5, 1000]))
def test_both_enclose_the_same_sum(case: Priced, product: int) -> None:
    instance, prices = case
    assume(instance.objective not in BOTTLENECK and prove(instance, prices).excess < np.inf)
    instance, configurations, _ = decided(instance)
    assume(len(instance.jobs))
    sign = -1 if OBJECTIVES[instance.objective] == "min" else 1
    paid = prices_of(rows_of(instance, configurations), {n: sign * y for n, y in prices.items()})
    rational, together, alone = (Options(instance, configurations, a) for a in (RATIONALS, DOUBLES, DOUBLES))
    assume(in_range(together, paid))
    # Nobody is looked at by kind.
    by_kind_of(alone).jobs = np.zeros(0, dtype=np.int64)
    exact = least_costs(rational, paid)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(by_kind, "PRODUCT", product)
        found = least_costs(together, paid)
    listed = least_costs(alone, paid)
    for one in (found, listed):
        assert one.total.low <= exact.total.low <= exact.total.high <= one.total.high
        assert one.dearest >= exact.dearest
    assert _width(found.total) <= 4 * _width(listed.total) + Fraction(1, 2**40)
    allowed = {j: np.ones(len(configurations.of(j)) + 1, dtype=bool) for j in (0,)}
    if not instance.sets:
        assert least_costs(together, paid, allowed).total.low <= exact.total.low


def _width(enclosed: Enclosure) -> Fraction:
    return enclosed.high - enclosed.low


@pytest.mark.slow
@pytest.mark.parametrize("family", ["uniform", "philly-like", "hetero", "sia-like"])
@pytest.mark.parametrize("objective", sorted(set(OBJECTIVES) - set(BOTTLENECK)))
def test_generated_rounds_are_looked_at_by_kind(family: str, objective: str) -> None:
    instance = generate(family, jobs=150, seed=3).model_copy(update={"objective": objective})
    instance, configurations, _ = decided(instance)
    rows = rows_of(instance, configurations)
    scale = {"room": 50.0, "power": 0.5, "energy": 1e-6, "worst": 0.0, "share": 0.0}
    paid = prices_of(rows, {name: scale[row.kind] for name, row in rows.items()})
    together, alone = (Options(instance, configurations, DOUBLES) for _ in range(2))
    if family in ("uniform", "hetero"):
        assert len(by_kind_of(together).jobs) == 150
    by_kind_of(alone).jobs = np.zeros(0, dtype=np.int64)
    a, b = least_costs(together, paid).total, least_costs(alone, paid).total
    assert a.low <= b.high
    assert b.low <= a.high
    assert float(a.low) == pytest.approx(float(b.low), rel=1e-11)


def test_rows_that_another_one_is_as_good_as_are_left_out() -> None:
    first, second = np.array([1.0, 2.0, 0.0, 1.0, 3.0]), np.array([1.0, 0.0, 5.0, 1.0, 3.0])
    assert sorted(by_kind.pareto_rows([first, second]).tolist()) == [0, 1, 2]
