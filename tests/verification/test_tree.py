"""Certificate trees, whatever proves their leaves."""

import math
from collections.abc import Mapping, Sequence

import pytest

from wattsched.verification.report import Proof
from wattsched.verification.tree import Taken, prove_tree

TWO_LEAVES = [{"split": {}, "inside": 1, "outside": 2}, {"prices": {"row": 1.0}}, {"prices": {"row": 2.0}}]


@pytest.mark.parametrize("unproven", [None, math.nan])
@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("of_the_first", [True, False])
def test_a_leaf_that_proves_nothing_leaves_the_tree_without_a_bound(
    unproven: float | None, sense: str, of_the_first: bool
) -> None:
    def prove_leaf(prices: Mapping[str, object], taken: Sequence[Taken]) -> Proof:
        return Proof(bound=unproven if (prices["row"] == 1.0) == of_the_first else 3.0)

    proof = prove_tree(prove_leaf, TWO_LEAVES, sense)
    assert proof.bound is None
    assert proof.faults == [f"node {1 if of_the_first else 2} of the tree: its prices prove nothing"]


def test_a_node_with_prices_and_a_split_is_refused() -> None:
    both = [{**TWO_LEAVES[0], "prices": {"row": 1.0}}, *TWO_LEAVES[1:]]
    (fault,) = prove_tree(lambda prices, taken: Proof(bound=1.0), both, "min").faults
    assert fault == "certificate: node 0 of the tree has 'prices' and a 'split'; it is a leaf or none"


@pytest.mark.parametrize(("sense", "worst"), [("min", 1.0), ("max", 2.0)])
def test_the_worst_bound_holds_for_all(sense: str, worst: float) -> None:
    def prove_leaf(prices: Mapping[str, object], taken: Sequence[Taken]) -> Proof:
        return Proof(bound=float(str(prices["row"])))

    assert prove_tree(prove_leaf, TWO_LEAVES, sense).bound == worst
