"""Certificate trees: the worst of their leaves counts, and what is no tree or no split is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from wattsched import solve
from wattsched.formulations.shifting import branching
from wattsched.instances.generators import generate
from wattsched.results.documents import verdict_on
from wattsched.solvers import tree
from wattsched.verification.report import Proof
from wattsched.verification.tree import MOST_SPLITS, MOST_SPLITS_IN_ALL, Taken, prove_tree

SPLIT: dict[str, Any] = {"split": {}, "inside": 1, "outside": 2}
LEAF: dict[str, Any] = {"prices": {}}
TWO_LEAVES = [SPLIT, {"prices": {"row": 1.0}}, {"prices": {"row": 2.0}}]


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


@pytest.mark.parametrize(("sense", "worst"), [("min", 1.0), ("max", 2.0)])
def test_the_worst_bound_holds_for_all(sense: str, worst: float) -> None:
    def prove_leaf(prices: Mapping[str, object], taken: Sequence[Taken]) -> Proof:
        return Proof(bound=float(str(prices["row"])))

    assert prove_tree(prove_leaf, TWO_LEAVES, sense).bound == worst


def chain(splits: int) -> list[Any]:
    """A tree that splits one side again and again."""
    nodes: list[Any] = []
    for number in range(0, 2 * splits, 2):
        nodes += [{"split": {}, "inside": number + 1, "outside": number + 2}, LEAF]
    return [*nodes, LEAF]


def deep_and_wide() -> list[Any]:
    """A binary tree below the last leaf of a chain."""
    deep, wide = chain(MOST_SPLITS - 20), 2 * (MOST_SPLITS_IN_ALL // MOST_SPLITS)
    nodes, last = deep[:-1], len(deep) - 1
    for number in range(wide):
        below = {"inside": last + 2 * number + 1, "outside": last + 2 * number + 2}
        nodes.append({"split": {}, **below})
    return nodes + [LEAF] * (wide + 1)


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([{**SPLIT, "prices": {}}, LEAF, LEAF], "has 'prices' and a 'split'; it is a leaf or none"),
        ([{"prices": None}], "needs 'prices' or a 'split'"),
        ([{"prices": {}, "x": 1}], "'x' is not a field"),
        (["node"], "must be an object"),
        ([{**SPLIT, "outside": 1}, LEAF], "reached twice"),
        ([{**SPLIT, "inside": 0, "outside": 1}, LEAF], "number of a later node"),
        ([{**SPLIT, "inside": True}, LEAF, LEAF], "number of a later node"),
        ([SPLIT, LEAF], "number of a later node"),
        ([LEAF, LEAF], "reached by no split"),
        (chain(MOST_SPLITS + 1), "below 1,000 splits; no more are read"),
        (chain(20_000), "below 1,000 splits; no more are read"),
        (deep_and_wide(), "2,000,000 splits in all; no more are read"),
        ([LEAF] * 100_001, "a tree of 100,001 nodes"),
    ],
)
def test_nodes_that_are_no_tree_are_refused(nodes: list[Any], told: str) -> None:
    (fault,) = prove_tree(lambda prices, taken: Proof(bound=1.0), nodes, "min").faults
    assert fault.startswith("certificate: ")
    assert told in fault


def test_trees_that_are_grown_are_never_too_deep() -> None:
    assert prove_tree(lambda prices, taken: Proof(bound=1.0), chain(MOST_SPLITS), "min").bound == 1.0
    # Each split adds two nodes, of which one is a leaf.
    most = max(tree.MOST_NODES, branching.MOST_NODES) // 2
    assert most <= MOST_SPLITS
    assert most * (most + 1) <= MOST_SPLITS_IN_ALL


@cache
def solved(problem: str) -> tuple[Any, dict[str, Any]]:
    """A small instance, and an answer to it that has a tree."""
    jobs, seed = {"uniform": (5, 3), "shifting": (2, 3), "sharing": (5, 0), "placement": (5, 2)}[problem]
    instance = generate(problem, jobs=jobs, seed=seed)
    if problem == "sharing":
        instance = instance.model_copy(update={"objective": "power"})
    result = solve(instance, prove=120.0).model_dump(mode="json")
    assert len(result["certificate"]["tree"]) > 2
    return instance, result


def require_refused(problem: str, nodes: list[Any], told: str) -> None:
    instance, result = solved(problem)
    forged = {**result, "certificate": {**result["certificate"], "tree": nodes}}
    faults = verdict_on(instance, forged).faults
    assert any(told in fault for fault in faults), faults


JOB0 = {"job": "job0"}


@pytest.mark.parametrize(
    ("problem", "split", "told"),
    [
        ("uniform", {"job": "none", "options": []}, "not a job"),
        ("uniform", {**JOB0, "options": [["A100", 3]]}, "no option of job"),
        ("uniform", {**JOB0, "options": [[["A100"]]]}, "no option of job"),
        ("uniform", {**JOB0, "options": 1}, "must be a list"),
        ("uniform", {**JOB0, "options": [], "at_most": 1}, "split.at_most: is not a known field"),
        ("uniform", {"awake": "A100", "each_w": 1.0, "part": 0}, "no nodes of a pool"),
        ("shifting", {"job": "none", "ends_by_s": 1.0}, "is not a job"),
        ("shifting", JOB0, "split.slot: is missing"),
        ("shifting", {**JOB0, "ends_by_s": 1.0, "slot": 1, "rows": []}, "slot: is not a known field"),
        ("shifting", {**JOB0, "ends_by_s": "soon"}, "ends_by_s: must be a valid number, got 'soon'"),
        ("shifting", {**JOB0, "ends_by_s": True}, "ends_by_s: must be a valid number, got true"),
        ("shifting", {**JOB0, "ends_by_s": 10**400}, "ends_by_s: must be a valid number"),
        ("shifting", {**JOB0, "slot": 48, "rows": []}, "is not one of the 48 slots"),
        ("shifting", {**JOB0, "slot": 1.0, "rows": []}, "slot: must be a whole number"),
        ("shifting", {**JOB0, "slot": 0, "rows": 3}, "rows: must be a list"),
        ("shifting", {**JOB0, "slot": 0, "rows": [-1]}, "must be greater than or equal to 0"),
        ("shifting", {**JOB0, "slot": 0, "rows": [99]}, "is no row of the table"),
        ("shifting", {**JOB0, "slot": 0, "rows": [[0]]}, "rows[0]: must be a whole number"),
        ("shifting", {"prices": {}, "within": -1.0}, "within: must be greater than or equal to 0"),
        ("shifting", {"prices": {}, "within": "much"}, "within: must be a valid number"),
        ("shifting", {"prices": [], "within": 1.0}, "split.prices: must be an object"),
        ("shifting", {"prices": {"carbon_g": 1.0}, "within": 1.0}, "split.prices: "),
        ("shifting", {"prices": {}, "within": 1e12}, "more than 5,000 schedules"),
        ("shifting", {"prices": {}, "within": 0.0}, "claims the bound"),
        ("shifting", {**JOB0, "slot": 0, "rows": []}, "claims the bound"),
        ("shifting", {**JOB0, "ends_by_s": 1e9}, "claims the bound"),
        ("sharing", {}, "at_most: is missing"),
        ("sharing", {"at_most": True}, "at_most: must be a whole number"),
        ("sharing", {"at_most": 1.5}, "at_most: must be a whole number"),
        ("sharing", {"at_most": -1}, "at_most: must be greater than or equal to 0"),
        ("sharing", {"at_most": 1, "unit": "x"}, "unit: is not a known field"),
        ("sharing", {"at_most": 1, "unit_type": "x"}, "the unknown unit type 'x'"),
        ("sharing", {"at_most": 1, "unit_type": ["x"]}, "unit_type: must be a valid string, got ['x']"),
        ("sharing", {"at_most": 1, "classes": "x"}, "classes: must be a list"),
        ("sharing", {"at_most": 1, "classes": [["x"]]}, "classes[0]: must be a valid string, got ['x']"),
        ("sharing", {"at_most": 1, "jobs": ["x"]}, "the unknown job 'x'"),
        ("placement", {"at_most": 1, "node": "n0"}, "node: is not a known field"),
        ("placement", {"at_most": 1, "nodes": "n0"}, "nodes: must be a list"),
        ("placement", {"at_most": 1, "nodes": ["n99"]}, "the unknown node 'n99'"),
        ("placement", {"at_most": 1, "task": "x"}, "the unknown task 'x'"),
        ("placement", {"at_most": 1, "task": ["t0"]}, "task: must be a valid string, got ['t0']"),
        ("placement", {"at_most": 1, "hosts": ["t0"]}, "hosts: must be an object"),
        ("placement", {"at_most": 1, "hosts": {"x": 1}}, "the unknown task 'x'"),
        ("placement", {"at_most": 1, "hosts": {"t0": 0}}, "hosts.t0: must be greater than or equal to 1"),
        ("placement", {"at_most": 1, "hosts": {"t0": True}}, "hosts.t0: must be a whole number, got true"),
    ],
)
def test_a_split_that_is_none_or_another_is_refused(problem: str, split: dict[str, Any], told: str) -> None:
    require_refused(problem, [{**SPLIT, "split": split}, LEAF, LEAF], told)


@pytest.mark.parametrize(
    ("problem", "prices", "side", "told"),
    [
        ("uniform", {}, 1, "claims the bound"),
        ("uniform", {"gpus:A100": 1.0}, 1, "more of it cannot make"),
        ("uniform", {"gpus:none": -1.0}, 1, "no row of that name"),
        ("shifting", {"carbon_g": 1.0}, 1, "more of it cannot make"),
        ("shifting", {"gpus:A100@99": -1.0}, 1, "no row of that name"),
        ("sharing", {"nodes:v100x8": 2.0}, 1, "more of it cannot make a min objective worse"),
        ("sharing", {"gpus:V100": -1.0}, 1, "no row of that name"),
        ("sharing", {"split:0": 0.5}, 1, "more of it cannot make a min objective worse"),
        ("sharing", {"split:0": -0.5}, 2, "to ask for more cannot make"),
        ("sharing", {"split:9": -0.5}, 1, "no row of that name"),
        ("placement", {"node:n0": 1.0}, 1, "more of it cannot make"),
        ("placement", {"task:w": 1.0}, 1, "no row of that name"),
        ("placement", {"task:t0": math.nan}, 1, "not a finite number"),
    ],
)
def test_a_leaf_whose_prices_prove_less_is_refused(
    problem: str, prices: dict[str, float], side: int, told: str
) -> None:
    splits = {"uniform": {**JOB0, "options": []}, "shifting": {**JOB0, "ends_by_s": 1.0}}
    split = splits.get(problem, {"at_most": 1})
    nodes = [{**SPLIT, "split": split}, LEAF, LEAF]
    nodes[side] = {"prices": prices}
    require_refused(problem, nodes, told)
