"""Rounds with prices of their rows, and what their bounds are compared with."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from wattsched.instances.sizing.instance import PER_KWH, Instance
from wattsched.verification.arithmetic import DOUBLES, RATIONALS
from wattsched.verification.report import Proof
from wattsched.verification.sizing.least_cost import reach_of
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import OBJECTIVES
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import RowPrices, rows_of

OBJECTIVE = st.sampled_from(sorted(OBJECTIVES))
Priced = tuple[Instance, dict[str, float]]

ROW = {"gpus": [1, 4], "pool": ["A", "A"], "completion_s": [1000.0, 400.0], "power_w": [200.0, 800.0]}
SIX = Instance.model_validate(
    {
        "objective": "total-completion",
        "cluster": {
            "gpu_types": {"A": {"idle_power_w": 50.0}},
            "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0}],
        },
        "budgets": {"power_w": 900.0},
        "jobs": [{"name": f"j{i}", "options": ROW} for i in range(6)],
    }
)
"""Six jobs, each 400 s on all four GPUs; waiting costs 300 s more."""


THRIFTY = Instance.model_validate(
    {
        **SIX.model_dump(),
        "objective": "energy",
        "budgets": {"power_w": 900.0, "least_goodput": 3.0},
        "cluster": {
            "gpu_types": {"A": {"idle_power_w": 50.0}},
            "nodes": [
                {"name": name, "gpu_type": "A", "gpus": 2, "base_power_w": 100.0, "sleeps": True}
                for name in "nm"
            ],
        },
    }
)
"""The same on two nodes that sleep, three of whose jobs are enough."""


def with_objective(instance: Instance, objective: str) -> Instance:
    """The same under an objective, with what that needs to know."""
    needed = PER_KWH.get(objective)
    known = {} if needed is None or getattr(instance, needed) is not None else {needed: 400.0}
    return instance.model_copy(update={"objective": objective, **known})


def better(a: float, b: float, objective: str) -> bool:
    """Whether one value is better than another by more than the last digits."""
    excess = b - a if OBJECTIVES[objective] == "min" else a - b
    return excess > 1e-9 * max(0.1, abs(b))


def require_no_better(proof: Proof, best: float | None, objective: str) -> None:
    """Assert that the best decision's objective, None where there is none, is no better than a proof."""
    assert proof.faults == []
    if proof.excess > 0:
        assert best is None
    elif best is not None:
        assert proof.bound is not None
        assert not better(best, proof.bound, objective)


def require_enclosed(rational: Options, double: Options, paid: RowPrices) -> None:
    """Options are worth no more, and pay no more, in doubles than in rational numbers; nor do thresholds."""
    exact = reach_of(rational, paid)
    rounded = reach_of(double, paid)
    assert list(rounded.start) == list(exact.start)
    for name in ("low", "charge"):
        assert np.all(getattr(rounded, name) <= getattr(exact, name))
    for capacity in (0, 1, 100):
        inner = exact.threshold(exact.low, capacity, RATIONALS)
        outer = rounded.threshold(rounded.low, capacity, DOUBLES)
        assert outer <= inner


@st.composite
def priced(draw: st.DrawFn, instances: st.SearchStrategy[Instance]) -> Priced:
    """An instance with prices on any of its rows: of the right sign, or of either on those of sets."""
    instance = with_objective(draw(instances), draw(OBJECTIVE))
    rows = rows_of(*decided(instance)[:2])
    sign = -1.0 if OBJECTIVES[instance.objective] == "min" else 1.0
    # Where prices have the size of a round's, bounds are worth something.
    scale = {
        "room": 100.0,
        "pieces": 200.0,
        "cuts": 500.0,
        "power": 2.0,
        "energy": 0.01,
        "worst": 1.0,
        "share": 300.0,
        "quota": 100.0,
        "least": 300.0,
    }
    prices = {}
    for name in draw(st.lists(st.sampled_from(sorted(rows)), unique=True)) if rows else []:
        share = draw(st.one_of(st.floats(0.0, 1.0), st.sampled_from([1.0, 0.5, 1e-9, 30.0])))
        either = rows[name].kind == "share" and draw(st.booleans())
        turned = -1.0 if either or rows[name].kind == "least" else 1.0
        prices[name] = turned * sign * share * scale[rows[name].kind]
    return instance, prices
