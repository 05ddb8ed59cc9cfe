"""Solving a family of programs: branch and bound over its parameters, whose leaves are ordinary programs.

Every part of the parameters' box has an ordinary program, which any solver bounds. A decision of that program
is checked as it is, and the member of the family that suits it best is solved for another one. Parts that may
hold better decisions are split at the parameter whose worst case the program understates most.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import Any

from wattsched.formulations.family import Box, Family
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.results.result import Certificate, Node, Result
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limit, Solution, Start, Termination, unheard
from wattsched.solving.call import Call
from wattsched.solving.certificates import dearer_than_any, nodes_of_tree, verified
from wattsched.topology.arrays import FloatArray

MOST_PARTS = 2_000
"""Parts of the box that are looked at."""

SMALL = 5_000
"""Programs with more columns are solved only where prices alone do not settle a part."""

_EXACT = 1e-9
"""Relative amount by which a worst case may be understated: that is rounding."""

_SEARCHING = 0.7
"""Share of the time for the search; the rest is for its proof."""

_SOLVING = 0.5
"""Share of the gap to which each program is solved: the rest is for what programs understate."""

NO_DECISION = "no decision keeps the limits in the worst case of the uncertain watts"


@dataclass(order=True)
class _Part:
    """A part of the box: what its decisions cost at least, and, once solved, prices that prove a bound."""

    bound: float
    number: int
    box: Box = field(compare=False)
    prices: FloatArray | None = field(default=None, compare=False)
    named: dict[str, float] | None = field(default=None, compare=False)
    proven: float = field(default=-math.inf, compare=False)


def decide_family(call: Call, family: Family) -> Result:
    """Decide an instance that is a family of programs; decisions known so far are checked by the call."""
    search = _Search(call, family)
    with call.timer.phase("solve"):
        search.run()
    over: Limit | None = "time" if call.timer.over() else None
    if call.incumbent is None and search.bound < math.inf:
        return call.result_now("no decision was found", over or "nodes")
    certificate = None if over else search.certificate()
    if call.incumbent is None:
        return call.result(Termination("infeasible", detail=NO_DECISION), certificate=certificate)
    call.certificate = certificate
    proven = -math.inf if certificate is None else call.sign * certificate.bound
    call.bound = max(search.bound, proven)
    return call.result_now(limit=over)


class _Search:
    """State of the branch and bound; `splits` and `leaves` are the nodes of its tree by number."""

    def __init__(self, call: Call, family: Family):
        self.call, self.family = call, family
        root = _Part(-math.inf, 0, family.root)
        self.splits: dict[int, Node] = {}
        self.leaves = {0: root}
        self._left = [root]

    @property
    def bound(self) -> float:
        """What every decision costs at least."""
        return min(part.bound for part in self.leaves.values())

    @property
    def enough(self) -> float:
        """Bound from which on a part is of no interest any more; infinite without a decision."""
        best = self.call.incumbent
        if best is None:
            return math.inf
        return best.cost - max(_EXACT, self.call.limits.gap * (1.0 - _EXACT)) * abs(best.cost)

    def run(self) -> None:
        """Solve parts, those with the lowest bounds first, until none may hold a better decision."""
        timer = self.call.timer.share(_SEARCHING)
        most = MOST_PARTS if self.call.exact else 1
        while self._left and self._left[0].bound < self.enough and not timer.over() and most:
            self._solve(heapq.heappop(self._left))
            self.call.bound, most = self.bound, most - 1
            self.call.say(f"{len(self.leaves)} parts of the uncertainty, bound {self._said(self.bound)}")

    def _said(self, cost: float) -> str:
        return f"{self.call.sign * cost:.9g}"

    def _solve(self, part: _Part) -> None:
        """Bound a part, look for a decision in it, and split it if it may hold a better one."""
        model = self._model(part.box, self.call.formulation)
        if model is None:
            part.bound = math.inf
            return
        if self.call.incumbent is not None and model.program.n_columns > SMALL and self._divided(part, model):
            return
        solution = self._solved(model, part.prices)
        infeasible = solution.termination.reason == "infeasible"
        part.bound = max(part.bound, math.inf if infeasible else solution.bound)
        self._keep_prices(part, model, solution.prices)
        if solution.x is None or part.bound >= self.enough:
            return
        decision = self._checked(model, solution)
        if decision is None or part.bound >= self.enough:
            return
        short = self.family.shortfalls(decision, part.box)
        if max(short.values()) > _EXACT:
            self._try_member(decision)
        if part.bound < self.enough and self.call.exact:
            self._split(part, short, self.family.parameters(decision))

    def _try_member(self, decision: Any) -> None:
        """Solve the member of the family that is exact for a decision: its own decisions are possible."""
        point = {name: (value, value) for name, value in self.family.parameters(decision).items()}
        if (model := self._model(point, self.call.formulation)) is not None:
            self._checked(model, self._solved(model))

    def _split(self, part: _Part, short: dict[str, float], values: dict[str, float]) -> bool:
        """Split a part at the parameter that is most understated; False where none can be split."""
        for name in sorted(short, key=lambda name: -short[name]):
            halves = self.family.split(name, part.box[name], values[name]) if short[name] > _EXACT else None
            if halves is not None:
                break
        else:
            return False
        at_most, *intervals = halves
        number = len(self.leaves) + len(self.splits)
        split = {"threshold": name, "at_most": at_most}
        self.splits[part.number] = Node(split=split, inside=number, outside=number + 1)
        del self.leaves[part.number]
        for child, interval in enumerate(intervals, start=number):
            one = _Part(part.bound, child, {**part.box, name: interval}, part.prices)
            self.leaves[child] = one
            heapq.heappush(self._left, one)
        return True

    def _model(self, box: Box, formulation: str) -> Model[Any] | None:
        """Program of a box with the constant of its worst case; None where that is empty."""
        try:
            model = self.call.built(formulation, self.family.within(box))
        except InfeasibleError:
            return None
        program = model.listed
        return replace(model, program=replace(program, offset=program.offset + self.family.constant(box)))

    def _solved(self, model: Model[Any], prices: FloatArray | None = None) -> Solution:
        """Solve the program of a box, from the prices of a larger one."""
        call = self.call
        limits = replace(call.limits_left(_SEARCHING), gap=_SOLVING * call.limits.gap)
        start = Start(prices=prices) if prices is not None and len(prices) == model.program.n_rows else None
        with unheard():
            return find_solver(call.solver)(model.program, limits, start)

    def _divided(self, part: _Part, model: Model[Any]) -> bool:
        """True if row prices show that a part holds no better decision, or it was split as it is still wide."""
        if not model.lagrangian:
            return False
        left_s = self.call.timer.remaining_s()
        prices, bound = dual_prices(model.program, left_s, start=part.prices, enough=self.enough)
        self._keep_prices(part, model, prices)
        part.bound = max(part.bound, part.proven, bound)
        if part.bound >= self.enough:
            return True
        loose = self.family.looseness(part.box)
        if max(loose.values()) <= max(_EXACT, self.call.limits.gap):
            return False
        assert self.call.incumbent is not None
        return self._split(part, loose, self.family.parameters(self.call.incumbent.decision))

    def _checked(self, model: Model[Any], solution: Solution) -> Any | None:
        """Decode and check a solver's decision; None where it has none."""
        if solution.x is None:
            return None
        try:
            decision = model.decode(solution.x, solution.starts)
        except ValueError:
            return None
        self.call.checked(self.call.solver, decision)
        return decision

    def _keep_prices(self, part: _Part, model: Model[Any], prices: FloatArray | None) -> None:
        """Keep the prices of a part's program if they prove more than those known."""
        if prices is None or model.named_prices is None:
            return
        proven = model.program.lagrangian_bound(prices) if model.lagrangian else -math.inf
        if part.named is None or proven > part.proven:
            part.prices, part.named, part.proven = prices, model.named_prices(prices), proven

    def certificate(self) -> Certificate | None:
        """Tree of the parts, whose leaves have prices or trees of their own, with what it proves."""
        call, nodes = self.call, list[Node]()
        value = dearer_than_any(call) if call.incumbent is None else min(self.bound, self.enough)
        with call.timer.phase("prove"):
            try:
                self._write(0, value, nodes)
            except UnsuitableError:
                return None
            lowest = min(self.leaves.values(), key=lambda part: part.bound)
            prices = lowest.named or {}
            alone, proof = call.prover(prices, ()), verified(call, nodes)
        if alone.bound is None or proof.bound is None or (call.incumbent is None and proof.excess <= 0):
            return None
        most = 1e100
        price_bound, bound = (max(-most, min(most, one)) for one in (alone.bound, proof.bound))
        return Certificate(prices=prices, bound=bound, price_bound=price_bound, tree=nodes)

    def _write(self, number: int, value: float, nodes: list[Node]) -> int:
        """Append the nodes from one of the tree on, and return its place among them."""
        place = len(nodes)
        if (split := self.splits.get(number)) is None:
            moved = {"inside", "outside"}
            for node in self._proof_of(self.leaves[number], value):
                below = {name: place + at for name in moved if (at := getattr(node, name)) is not None}
                nodes.append(node.model_copy(update=below))
            return place
        nodes.append(split)
        assert split.inside is not None
        assert split.outside is not None
        children = [self._write(child, value, nodes) for child in (split.inside, split.outside)]
        nodes[place] = split.model_copy(update=dict(zip(("inside", "outside"), children, strict=True)))
        return place

    def _proof_of(self, part: _Part, value: float) -> list[Node]:
        """Nodes that prove a value of a part: its prices, or a tree of choices."""
        if part.named is not None and (part.proven >= value or self.call.prove_s == 0.0):
            return [Node(prices=part.named)]
        model = self._model(part.box, self.call.problem.default)
        if model is None or model.named_prices is None:
            return [Node(prices={})]
        prices = part.prices if part.named is not None else None
        if prices is None:
            prices, _ = dual_prices(model.listed, self.call.timer.remaining_s())
        part.named = model.named_prices(prices)
        grown = [] if self.call.prove_s == 0.0 else nodes_of_tree(self.call, model, value, prices)
        return grown or [Node(prices=part.named)]
