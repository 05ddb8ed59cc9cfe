"""The rent of whole nodes, by hand and against counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.strategies.placement_cases import context_of, nodes_of
from wattsched.formulations.placement.capacity import REFUSAL, WholeNodes

G2_W, P100_W = 120, 225
NODES = nodes_of((96, 8, "G2"), (96, 8, "G2"), (64, 8, "P100"), (64, 2, "P100"))


def rents(arriving: float, broken: tuple[int, ...] = ()) -> list[float]:
    """Rents when so many tasks that need a whole node are expected."""
    nodes = WholeNodes(NODES, context_of(NODES).power)
    assert nodes.size == 8
    free = nodes.largest.copy()
    free[list(broken)] = False
    return [float(w) for w in nodes.rent_w(free, arriving)]


def expected(arriving: float, whole_w: list[int], own_w: int) -> float:
    """The sum over the number of arrivals."""
    order = [*sorted(whole_w), *[REFUSAL * P100_W] * 200]
    total = 0.0
    for n in range(150):
        chance = math.exp(-arriving) * arriving**n / math.factorial(n)
        total += chance * 8 * max(0.0, order[n] - own_w)
    return total


@pytest.mark.parametrize("arriving", [0.01, 0.5, 2.0, 6.0])
def test_the_expected_watts_of_what_is_taken_instead(arriving: float) -> None:
    whole_w = [G2_W, G2_W, P100_W]
    g2, p100 = (expected(arriving, whole_w, own) for own in (G2_W, P100_W))
    assert rents(arriving) == pytest.approx([g2, g2, p100, 0])
    p100 = expected(arriving, [P100_W], P100_W)
    assert rents(arriving, broken=(0, 1)) == pytest.approx([0, 0, p100, 0])


def test_nobody_needs_a_whole_node() -> None:
    nodes = WholeNodes(NODES, context_of(NODES).power)
    assert not np.any(nodes.rent_w(nodes.largest, 0.0))
