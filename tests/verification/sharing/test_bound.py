"""Prices of `sharing` that make no sense are refused."""

from __future__ import annotations

import pytest

from wattsched.instances.generators.sharing import sharing_round
from wattsched.verification.sharing.bound import prove

SHARING = sharing_round(jobs=3, power_fraction=None)
UNIT = SHARING.unit_types[0].name


@pytest.mark.parametrize(
    ("prices", "told"),
    [
        ({"gpus:V100": -1.0}, "of row 'gpus:V100' proves nothing: the instance has no row of that name"),
        ({f"nodes:{UNIT}": float("nan")}, "not a finite number"),
        (
            {f"nodes:{UNIT}": 2.0},
            f"row 'nodes:{UNIT}' is positive: more of it cannot make a min objective worse",
        ),
        ({"power_w": -1.0}, "of row 'power_w' proves nothing: the instance has no row of that name"),
    ],
)
def test_prices_that_prove_nothing_are_refused(prices: dict[str, float], told: str) -> None:
    (fault,) = prove(SHARING, prices).faults
    assert told in fault
