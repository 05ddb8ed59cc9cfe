"""Certificates: the row prices that prove most, and a tree of cases where they do not prove enough."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from wattsched.formulations.counts import Cases, Counts
from wattsched.formulations.model import Model
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.results.result import Certificate, Node
from wattsched.solvers import proof as proofs
from wattsched.solvers import tree
from wattsched.solvers.proof import AtMost, Choices, Tree
from wattsched.solvers.solution import proven_bound, rounding
from wattsched.solving.call import Call
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import Proof
from wattsched.verification.tree import Taken, prove_tree

# Of a gap that is asked for, or is nothing, so much is left to rounding.
_LEAST_GAP = 1e-9
_ROUNDING = 1e-9
# Columns times nodes of a tree that nobody asked for: a second's worth, where most take a tenth of that.
# Trees that count take a dozen LPs for a node, and up to some seconds, about as long as such solves.
_USUAL_WORK = 700_000
_USUAL_COUNTING = 400_000
# Of so many nodes the first one is looked at.
_ROOT = 3
# What an infeasible instance's bound is to exceed the dearest decision by, and the time for its proof that
# verifying it may take.
_EXCESS = 1e-3
# Factors of prices that may not be enough.
_SCALES = (1.0, 1e3, 1e6)
# So often is more asked for where that is not enough.
_RAISES = 4
# A bound that exceeds any cost is stated as this, which the format can hold.
LARGEST = 1e100
# The last digit of a limit, at such a price, is more than what is left to rounding.
_LARGE_PRICE = 1e9
# So much smaller than the dearest choice, a bound is what is left of terms that cancel, limits among them.
_CANCELLED = 1e-4
# Of a step so much more is proven than that the one below is too little.
_LEAST_EXCESS = 1e-6
_VERIFYING = 0.2
# What branching of a problem's own may price where nobody asked for a proof, some seconds' worth, and the
# seconds that this may take where nothing limits the call: some LPs of long horizons are slow.
_CASES_WORK, _CASES_S = 15_000, 20.0
# Of what is left it may take so much: a step is not interrupted.
_SHARE = 0.8
# Part of a bound by which prices may prove more than solvers say.
_NEAR = 1e-7


@dataclass(frozen=True)
class Priced:
    """The row prices that prove most of all that were found.

    Attributes
    ----------
    call : Call
    model : Model
    certificate : Certificate
        Of the prices alone.
    prices : float array, shape (n_rows,), optional
        The same, of a program whose rows all have names and that every decision is a point of.
    """

    call: Call
    model: Model[Any]
    certificate: Certificate
    prices: FloatArray | None = None

    @classmethod
    def best(cls, call: Call, model: Model[Any], known: list[FloatArray]) -> Priced | None:
        """The best of some prices of a program whose own bound is what its prices prove."""
        assert model.named_prices is not None
        proven, best = max(((proven_bound(model.program, y), y) for y in known), key=itemgetter(0))
        if not math.isfinite(proven):
            return None
        named = model.named_prices(best)
        # Rounding may be much of such a bound: then the independent proof says what is proven.
        cancelled = abs(proven) < _CANCELLED * model.program.largest_cost()
        if cancelled or max(map(abs, named.values()), default=0.0) > _LARGE_PRICE:
            return cls.proven(call, model, named)
        certificate = Certificate(prices=named, bound=model.program.reported(proven))
        return cls(call, model, certificate, best)

    @classmethod
    def proven(cls, call: Call, model: Model[Any], prices: Mapping[str, float]) -> Priced | None:
        """Prices under the names of certificates, with the bound that the independent proof finds."""
        with call.timer.phase("prove"):
            proof = call.prover(prices, ())
        return cls._of_proof(call, model, prices, proof)

    @classmethod
    def _of_proof(
        cls, call: Call, model: Model[Any], prices: Mapping[str, float], proof: Proof
    ) -> Priced | None:
        if proof.bound is None or not np.isfinite(proof.bound):
            return None
        named = {name: y for name, y in prices.items() if y != 0.0}
        return cls(call, model, Certificate(prices=named, bound=proof.bound))

    @classmethod
    def of_model(cls, call: Call, model: Model[Any]) -> Priced | None:
        """Prices that a formulation has found itself, with the bound that they prove; None without any."""
        if model.prices is None:
            return None
        known = call.certificate
        if known is not None and known.prices == {name: y for name, y in model.prices.items() if y != 0.0}:
            return cls(call, model, known)
        if model.proof is not None:
            return cls._of_proof(call, model, model.prices, model.proof)
        return cls.proven(call, model, model.prices)

    def proven_further(self, cost: float, bound: float, found: Tree | None = None) -> Certificate | None:
        """Certificate with a tree that proves a claimed bound, or as much of it as the time for that allows.

        None where the prices alone prove it already, nothing more is to be proven, or the formulation has no
        trees.

        Parameters
        ----------
        cost : float
            Of the decision.
        bound : float
            On the cost, as solvers claim it; no more is proven than the gap asked for needs.
        found : Tree, optional
            The proof that the solver has found itself.
        """
        call, model, known = self.call, self.model, self.certificate
        gap = max(_LEAST_GAP, call.limits.gap * (1.0 - _ROUNDING))
        value = cost - max(gap * abs(cost), rounding(model.program, cost))
        if not _keeps_time(call, model):  # for proofs of more
            value = min(bound, value)
        if call.sign * known.bound >= value or call.prove_s == 0.0:
            return None
        # Of splits that count the independent proof may round up, and else it differs by rounding alone.
        if model.counts is not None or call.sign * known.bound >= value - _NEAR * abs(value):
            with call.timer.phase("prove"):
                by_prices = call.prover(known.prices, ())
            if by_prices.bound is not None and call.sign * by_prices.bound >= value:
                return Certificate(prices=known.prices, bound=by_prices.bound)
            # What is proven beyond the next step below is rounded to the cost.
            value = min(value, cost - by_prices.step * (1.0 - _LEAST_EXCESS))
        if found is None or model.groups is None:
            proven, nodes = by_tree(call, model, value, self.prices)
        else:
            proven, nodes = _by_found(call, model, found)
        if not nodes or proven.bound is None:
            return None
        if not call.sign * known.bound < call.sign * proven.bound < np.inf:
            return None
        return Certificate(prices=known.prices, bound=proven.bound, price_bound=known.bound, tree=nodes)


def no_decision(call: Call, model: Model[Any] | None) -> Certificate | None:
    """Certificate that an instance has no decision: what is proven exceeds whatever one could cost.

    None where that is not proven in time, or the formulation has no trees.
    """
    if model is None or (model.counts is None and model.split is None and not model.program.by_kind):
        return None
    with call.timer.phase("prove"):
        without_prices = call.prover({}, ())
    value = dearer_than_any(call, without_prices)
    if without_prices.bound is None or np.isinf(value):
        return None
    proof, nodes = Proof(), list[Node]()
    if model.program.by_kind or model.program.bottleneck is not None:
        proof, nodes = _by_prices(call, model)
    if not model.program.by_kind and proof.excess <= 0:
        value = np.inf if model.program.bottleneck is not None else value
        proof, nodes = by_tree(call, model, value, root=call.prove_s == 0.0)
        for _ in range(_RAISES):
            if not nodes or proof.bound is None or proof.excess > 0 or call.sign * proof.bound < value:
                break
            # Budgets may be exceeded by a tolerance, which is worth more the higher their prices are.
            value -= 2.0 * proof.excess
            proof, nodes = by_tree(call, model, value, root=call.prove_s == 0.0)
    if not nodes or proof.bound is None or proof.excess <= 0 or (call.prove_s == 0.0 and len(nodes) > 1):
        return None
    bound = max(-LARGEST, min(LARGEST, proof.bound))
    if len(nodes) == 1:
        return Certificate(prices=nodes[0].prices or {}, bound=bound)
    return Certificate(prices={}, bound=bound, price_bound=without_prices.bound, tree=nodes)


def dearer_than_any(call: Call, without_prices: Proof) -> float:
    """Return a cost above that of any decision, by the proof without prices; infinite where it is unknown."""
    if without_prices.bound is None or not np.isfinite(without_prices.excess):
        return np.inf
    # The excess is of the bound over what any decision could cost.
    dearest = call.sign * without_prices.bound - without_prices.excess
    return dearest + _EXCESS * max(1.0, abs(dearest))


def rounded_up(call: Call, certificate: Certificate, objective: float) -> Certificate:
    """Certificate with an objective as its bound, if the independent proof reaches it but for rounding."""
    with call.timer.phase("prove"):
        proof = verified(call, certificate.tree) if certificate.tree else call.prover(certificate.prices, ())
    sign = call.sign
    if proof.reach is None or sign * proof.reach < sign * objective:
        return certificate
    return certificate.model_copy(update={"bound": objective})


def by_cases(
    call: Call, model: Model[Any], decision: Any | None, cost: float, certificate: Certificate | None
) -> Cases[Any] | None:
    """Prove a decision by the problem's own branching where prices alone do not prove it within the gap.

    Without a decision, find one, or prove that there is none.

    Parameters
    ----------
    model : Model
        Of which the solver's answer is.
    cost : float
        Of the decision, infinite without one.
    """
    branch, gap = call.problem.branch, max(_LEAST_GAP, call.limits.gap * (1.0 - _ROUNDING))
    proven = -np.inf if certificate is None else call.sign * certificate.bound
    enough = decision is not None and proven >= cost - gap * abs(cost)
    if branch is None or call.by_heuristic or call.timer.over() or enough:
        return None
    if call.prove_s is not None:
        timer, most = call.timer.at_most(call.prove_s), math.inf
    elif call.limits.time_s is not None:
        # The leaves are proven once more, which takes no longer than they did.
        timer, most = call.timer.share(0.5), math.inf
    else:
        # Work and not seconds limit what nobody asked for: it is the same on every machine.
        timer, most = call.timer.at_most(_CASES_S), _CASES_WORK
    with call.timer.phase("prove"):
        prices = {} if certificate is None else certificate.prices
        return branch(call.data, call.instance.objective, decision, gap, timer, model.columns, prices, most)


def certificate_of(
    call: Call, cases: Cases[Any], known: Certificate | None, *, none: bool = False
) -> Certificate | None:
    """Certificate of a proof by cases, with the bound that the independent proof finds.

    None where it finds none, or proves less than what is known, or, with `none`, not that there is no
    decision; a single case needs no tree.
    """
    nodes = [Node(**node) for node in cases.nodes]
    with call.timer.phase("prove"):
        by_prices = call.prover(cases.prices, ())
        proof = by_prices if len(nodes) == 1 else verified(call, nodes)
    if by_prices.bound is None or proof.bound is None or (none and proof.excess <= 0):
        return None
    most = LARGEST if none else np.inf
    alone, proven = np.clip([by_prices.bound, proof.bound], -most, most).tolist()
    if not np.isfinite([alone, proven]).all():
        return None
    if known is not None and call.sign * proven <= call.sign * known.bound:
        return None
    if len(nodes) == 1:
        return Certificate(prices=dict(cases.prices), bound=alone)
    known = known or Certificate(prices=dict(cases.prices), bound=alone)
    return Certificate(prices=known.prices, bound=proven, price_bound=known.bound, tree=nodes)


def _limits(call: Call, work: int, program: Program) -> tuple[Timer, int]:
    """Time and nodes of a tree; `work` is columns times nodes of one that nobody asked for.

    Nodes and not seconds limit that one: it is the same on every machine.
    """
    left_s = call.timer.share(_SHARE).remaining_s()
    limits_s = [s for s in (call.prove_s, left_s) if s is not None]
    most = tree.MOST_NODES if call.prove_s is not None else work // max(1, program.n_columns)
    return Timer(min(limits_s, default=None)), min(most, tree.MOST_NODES)


def by_tree(
    call: Call, model: Model[Any], value: float, prices: FloatArray | None = None, *, root: bool = False
) -> tuple[Proof, list[Node]]:
    """Proof of a value by a tree, or of as much of it as time and nodes allow, and the tree's nodes.

    Its root alone is prices; a formulation without trees has no nodes. `prices` are those that prove most
    without a tree, where the program's own bound is what they prove. With `root` only the root is split.
    """
    if model.program.bottleneck is not None:
        return _by_thresholds(call, model, value)
    if model.counts is not None:
        return _by_counts(call, model, model.counts(), value)
    return (Proof(), []) if model.split is None else _by_splits(call, model, value, prices, root)


def _keeps_time(call: Call, model: Model[Any]) -> bool:
    """True if the solver was left less time, so that a tree has some."""
    return bool(model.proving) and call.limits.time_s is not None


def _by_counts(call: Call, model: Model[Any], counts: Counts, value: float) -> tuple[Proof, list[Node]]:
    """Prove a value by a tree that splits counts; its proof and nodes."""
    timer, most = _limits(call, _USUAL_COUNTING, counts.program)
    if _keeps_time(call, model):
        most = tree.MOST_NODES
    if timer.over():
        return Proof(), []
    with call.timer.phase("prove"):
        above = [] if counts.fixed is None else [Taken({**counts.fixed, "at_most": 0}, True, 0)]
        call.prover({}, above)  # what it lists is listed once
        began_s = time.perf_counter()
        call.prover({}, above)
        if (left_s := timer.remaining_s()) is not None:
            # Half of the nodes are leaves, each of which is proven once more.
            leaf_s = max(1e-6, time.perf_counter() - began_s)
            most = int(min(most, 2 * _VERIFYING * left_s / leaf_s))
        grown = tree.prove(counts.program, value, timer.share(1.0 - _VERIFYING), counts=counts, nodes=most)
        nodes = _counted_nodes(counts, grown.nodes)
        return verified(call, nodes), nodes


def _by_splits(
    call: Call, model: Model[Any], value: float, prices: FloatArray | None, root: bool
) -> tuple[Proof, list[Node]]:
    """Prove a value by a tree over choices as of `by_tree`, whose root alone is split with `root`."""
    timer, most = _limits(call, _USUAL_WORK, model.listed)
    if root:
        timer, most = call.timer.share(_SHARE), _ROOT
    with call.timer.phase("prove"):
        grown = tree.prove(model.listed, value, timer, prices=prices, nodes=most)
        nodes = _nodes_of_splits(model, grown.nodes)
        if prices is None:  # the program's own bound is not what they prove
            return verified(call, nodes), nodes
        return Proof(bound=model.program.reported(grown.bound)), nodes


def _by_prices(call: Call, model: Model[Any]) -> tuple[Proof, list[Node]]:
    """Prove a bound by prices alone; for a bottleneck, the bound is that of its worst threshold."""
    from wattsched.solvers.dual import dual_prices

    assert model.named_prices is not None
    with call.timer.phase("prove"):
        prices, _ = dual_prices(model.program, call.timer.remaining_s())
        if not prices.any():  # without jobs, what stands idle can exceed a limit, or nothing be demanded
            prices = (model.program.row_lower > 0.0).astype(float) - (model.program.row_upper < 0.0)
        for scale in _SCALES:
            # What no decision can have is dearer than any, where it is dear enough.
            nodes = [Node(prices=model.named_prices(scale * prices))]
            if (proof := verified(call, nodes)).excess > 0 or call.timer.over():
                break
        return proof, nodes


def _by_thresholds(call: Call, model: Model[Any], value: float) -> tuple[Proof, list[Node]]:
    """Prove by a tree over choices that no decision has a bottleneck that costs less than a value."""
    from wattsched.solvers.bottleneck import bottleneck_of

    bottleneck = bottleneck_of(model.listed)
    if bottleneck is None or model.split is None:
        return Proof(), []
    timer, most = _limits(call, _USUAL_WORK, model.listed)
    with call.timer.phase("prove"):
        grown = tree.prove_threshold(bottleneck, value, timer, most)
        nodes = [] if grown is None else _nodes_of_splits(model, grown.nodes)
        return verified(call, nodes), nodes


def verified(call: Call, nodes: list[Node]) -> Proof:
    """Return what the independent proof makes of a tree's nodes, nothing of none."""
    if not nodes:
        return Proof()
    sense = call.problem.objectives[call.instance.objective]
    return prove_tree(call.prover, [node.model_dump() for node in nodes], sense)


def _by_found(call: Call, model: Model[Any], found: Tree) -> tuple[Proof, list[Node]]:
    """Prove a bound by a tree that a solver has found, or by as much of it as can be verified in time."""
    with call.timer.phase("prove"):
        began_s = time.perf_counter()
        nodes = _nodes_of_splits(model, found.cut(1))
        proven = verified(call, nodes)
        leaf_s = max(1e-6, time.perf_counter() - began_s)
        left_s = call.timer.share(_SHARE).remaining_s()
        leaves = len(found.nodes) // 2 + 1
        if left_s is not None:
            leaves = min(leaves, int(left_s / leaf_s))
        if leaves > 1 and len(found.nodes) > 1:
            nodes = _nodes_of_splits(model, found.cut(leaves))
            proven = verified(call, nodes)
        return proven, nodes


def _counted_nodes(counts: Counts, grown: list[proofs.Node]) -> list[Node]:
    """Nodes of a tree that counts, in the words of the instance; columns that are fixed come first."""
    nodes, fixed, program = list[Node](), counts.fixed, counts.program
    if fixed is not None:
        nodes.append(Node(split={**fixed, "at_most": 0}, inside=2, outside=1))
        nodes.append(Node(prices={**fixed["prices"], "split:0": program.reported(fixed["beyond"])}))
    first = len(nodes)
    for node in grown:
        if isinstance(node.split, AtMost):
            split = {**counts.named(node.split.count), "at_most": node.split.most}
            nodes.append(Node(split=split, inside=first + node.inside, outside=first + node.outside))
        else:
            of_splits = {f"split:{first + above}": program.reported(y) for above, y in node.of_splits.items()}
            nodes.append(Node(prices=counts.named_prices(node.prices) | of_splits))
    return nodes


def _nodes_of_splits(model: Model[Any], grown: Sequence[proofs.Node]) -> list[Node]:
    """Nodes of a tree in the words of the instance, none where a split has none."""
    assert model.named_prices is not None
    assert model.split is not None
    nodes = []
    for node in grown:
        if not isinstance(node.split, Choices):
            of_groups = {}
            if node.of_groups is not None and model.groups is not None:
                reported = map(model.program.reported, node.of_groups.tolist())
                of_groups = {f"job:{name}": y for name, y in zip(model.groups, reported, strict=True) if y}
            nodes.append(Node(prices=model.named_prices(node.prices) | of_groups))
            continue
        named = model.split(node.split.columns, node.split.others)
        if named is None:
            return []
        split, swapped = named
        inside, outside = (node.outside, node.inside) if swapped else (node.inside, node.outside)
        nodes.append(Node(split=split, inside=inside, outside=outside))
    return nodes
