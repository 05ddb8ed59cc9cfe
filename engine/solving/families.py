"""Solving a family of programs: branch and bound over its parameters, whose leaves are ordinary programs.

Every part of the parameters' box has an ordinary program, which any solver bounds. A decision of that program
is checked as it is, and the member of the family that suits it best is solved for another one. Parts that may
hold better decisions are split at the parameter whose worst case the program understates most.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.results.result import Certificate, Node, Result, SolverAnswer
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limit, Solution, Start, Termination, unheard
from wattsched.solving.call import Call
from wattsched.solving.certificates import LARGEST, by_tree, dearer_than_any, verified
from wattsched.topology.arrays import FloatArray

if TYPE_CHECKING:
    from wattsched.formulations.sizing.uncertain_round import UncertainRound
    from wattsched.formulations.sizing.uncertainty import Box

MOST_PARTS = 2_000
"""Parts of the box that are looked at."""

SMALL = 5_000
"""Programs with more columns are solved only where prices alone do not settle a part."""

_ROUNDING = 1e-9
_SEARCHING, _GROWING, _MARGIN = 0.4, 0.25, 1.3
"""Shares of the time for the search, and of what then is left for trees of choices beside the proof of the
parts, which may take longer than expected by a margin."""
_SOLVING = 0.5
"""Share of the gap to which each program is solved; the rest is for what programs understate."""

NO_DECISION = "no decision keeps all limits, those of uncertain watts in the worst case"


@dataclass(order=True)
class _Part:
    """A part of the box: what its decisions cost at least, and prices that prove a bound."""

    bound: float
    number: int
    box: Box = field(compare=False)
    prices: FloatArray | None = field(default=None, compare=False)
    named: dict[str, float] | None = field(default=None, compare=False)
    proven: float = field(default=-math.inf, compare=False)


def decide_family(call: Call, family: UncertainRound) -> Result:
    """Decide an instance that is a family of programs; decisions known so far are checked by the call."""
    result = _decided(call, family)
    if result.decided_by:
        return result
    ended: dict[str, Any] = result.termination.model_dump()
    own = SolverAnswer(**ended, objective=result.objective, bound=result.bound, gap=result.gap)
    return result.model_copy(update={"solver_answer": own})


def _decided(call: Call, family: UncertainRound) -> Result:
    search = _Search(call, family)
    with call.timer.phase("solve"):
        search.run()
    if call.incumbent is None and search.bound < math.inf:
        return call.result_now("no decision was found", search.limit)
    certificate = None if call.timer.over() else search.certificate()
    if call.incumbent is None:
        return call.result(Termination("infeasible", detail=NO_DECISION), certificate=certificate)
    call.certificate, call.bound = certificate, search.bound
    proven = -math.inf if certificate is None else call.sign * certificate.bound
    if proven > call.bound or proven >= search.enough:
        call.bound = proven
    return call.result_now(limit=search.limit)


class _Search:
    """State of the branch and bound; `splits` and `leaves` are the nodes of its tree by number."""

    def __init__(self, call: Call, family: UncertainRound):
        self.call, self.family = call, family
        self.limit: Limit | None = None
        self.splits: dict[int, Node] = {}
        self.leaves = {0: _Part(-math.inf, 0, family.root)}
        self._left = [*self.leaves.values()]
        self._searching, self._growing = call.timer.share(_SEARCHING), call.timer

    @property
    def bound(self) -> float:
        """No decision costs less."""
        return min(part.bound for part in self.leaves.values())

    @property
    def enough(self) -> float:
        """Bound from which on a part is of no interest any more; infinite without a decision."""
        best = self.call.incumbent
        if best is None:
            return math.inf
        return best.cost - max(_ROUNDING, self.call.limits.gap * (1.0 - _ROUNDING)) * abs(best.cost)

    def run(self) -> None:
        """Solve parts, those with the lowest bounds first, until none may hold a better decision."""
        call, timer = self.call, self._searching
        most = MOST_PARTS if call.exact else 1
        while self._left and self._left[0].bound < self.enough:
            if timer.over() or not most:
                self.limit = "time" if timer.over() else "nodes"
                break
            self._solve(heapq.heappop(self._left))
            call.bound, most = self.bound, most - 1
            call.say(f"{len(self.leaves)} parts of the uncertainty, bound {call.sign * call.bound:.9g}")

    def _solve(self, part: _Part) -> None:
        """Bound a part, look for a decision in it, and split it if it may hold a better one."""
        model = self._model(part.box, self.call.formulation)
        if model is None:
            part.bound = math.inf
            return
        best = self.call.incumbent
        if best is not None and model.lagrangian:
            self._price(part, model)
            loose = self.family.looseness(part.box)
            wide = max(loose.values()) > max(_ROUNDING, self.call.limits.gap)
            large = model.program.n_columns > SMALL
            if part.bound >= self.enough or (large and wide and self._split(part, loose, best.decision)):
                return
        solution, decision = self._solved(model, part.prices)
        infeasible = solution.termination.reason == "infeasible"
        part.bound = max(part.bound, math.inf if infeasible else solution.bound)
        self._keep(part, model, solution.prices)
        if decision is None or part.bound >= self.enough:
            return
        short = self.family.shortfalls(decision, part.box)
        if max(short.values()) > _ROUNDING:
            point = {name: (value, value) for name, value in self.family.parameters(decision).items()}
            if (member := self._model(point, self.call.formulation)) is not None:
                self._solved(member)
        if part.bound < self.enough:
            self._split(part, short, decision)

    def _split(self, part: _Part, short: Mapping[str, float], decision: Any) -> bool:
        """Split a part at the parameter of a decision that is most understated; False where none can be."""
        values = self.family.parameters(decision)
        for name in sorted(short, key=lambda name: -short[name]):
            halves = self.family.split(name, part.box[name], values[name])
            if short[name] > _ROUNDING and halves is not None:
                at_most, *intervals = halves
                number = len(self.leaves) + len(self.splits)
                split = {"threshold": name, "at_most": at_most}
                self.splits[part.number] = Node(split=split, inside=number, outside=number + 1)
                del self.leaves[part.number]
                for child, interval in enumerate(intervals, start=number):
                    box = {**part.box, name: interval}
                    self.leaves[child] = _Part(part.bound, child, box, part.prices)
                    heapq.heappush(self._left, self.leaves[child])
                return True
        return False

    def _model(self, box: Box, formulation: str) -> Model[Any] | None:
        """Program of a box with the constant of its worst case; None where the box holds no decision."""
        try:
            model = self.call.built(formulation, self.family.within(box))
        except InfeasibleError:
            return None
        program = model.listed
        return replace(model, program=replace(program, offset=program.offset + self.family.constant(box)))

    def _solved(self, model: Model[Any], prices: FloatArray | None = None) -> tuple[Solution, Any]:
        """Solve a program from prices of a larger box, and check its decision, if there is one."""
        call = self.call
        left_s = self._searching.remaining_s()
        time_s = None if left_s is None else max(0.01, left_s)
        limits = replace(call.limits, gap=_SOLVING * call.limits.gap, time_s=time_s)
        start = Start(prices=prices) if prices is not None and len(prices) == model.program.n_rows else None
        with unheard():
            solver = find_solver(call.solver)
            solution = solver.at_once(model.program, limits) or solver(model.program, limits, start)
        if solution.x is None:
            return solution, None
        try:
            decision = model.decode(solution.x, solution.starts)
        except ValueError:  # a formulation may let through what does not fit
            return solution, None
        call.checked(call.solver, decision)
        return solution, decision

    def _price(self, part: _Part, model: Model[Any]) -> None:
        """Bound a part by row prices alone."""
        left_s = self.call.timer.remaining_s()
        prices, _ = dual_prices(model.program, left_s, start=part.prices, enough=self.enough)
        self._keep(part, model, prices)
        part.bound = max(part.bound, part.proven)

    def _keep(self, part: _Part, model: Model[Any], prices: FloatArray | None) -> None:
        """Keep the prices of a part's program if they prove more than those known."""
        if prices is None or model.named_prices is None:
            return
        proven = model.program.lagrangian_bound(prices) if model.lagrangian else -math.inf
        if part.named is None or proven > part.proven:
            part.prices, part.named, part.proven = prices, model.named_prices(prices), proven

    def certificate(self) -> Certificate | None:
        """Tree of the parts, whose leaves have prices or trees of their own, with what it proves.

        Prices alone where the time does not suffice to verify a tree.
        """
        call, nodes, unsolved = self.call, list[Node](), self.call.incumbent is None
        prices = min(self.leaves.values()).named or {}
        with call.timer.phase("prove"):
            without, began_s = call.prover({}, ()), call.timer.elapsed_s()
            proof = alone = call.prover(prices, ())
        verifying_s = _MARGIN * len(self.leaves) * (call.timer.elapsed_s() - began_s)
        left_s, value = call.timer.remaining_s(), self.enough
        if left_s is None or left_s > verifying_s:
            if left_s is not None:
                self._growing = call.timer.at_most(_GROWING * (left_s - verifying_s))
            if unsolved:
                value = dearer_than_any(call, without)
            try:
                self._write(0, min(self.bound, value), nodes)
            except UnsuitableError:
                return None
            with call.timer.phase("prove"):
                proof = verified(call, nodes)
        if alone.bound is None or proof.bound is None or (unsolved and proof.excess <= 0):
            return None
        price_bound, bound = (max(-LARGEST, min(LARGEST, one)) for one in (alone.bound, proof.bound))
        return Certificate(prices=prices, bound=bound, price_bound=price_bound if nodes else None, tree=nodes)

    def _write(self, number: int, value: float, nodes: list[Node]) -> int:
        """Append the nodes of the tree from one on, and return its place among them."""
        place, split = len(nodes), self.splits.get(number)
        if split is None:
            for node in self._proof_of(self.leaves[number], value):
                below = {name: at + place for name in ("inside", "outside") if (at := getattr(node, name))}
                nodes.append(node.model_copy(update=below))
            return place
        nodes.append(split)
        children = {name: self._write(getattr(split, name), value, nodes) for name in ("inside", "outside")}
        nodes[place] = split.model_copy(update=children)
        return place

    def _proof_of(self, part: _Part, value: float) -> list[Node]:
        """Nodes that prove a value of a part: its prices, or a tree of choices if there is time for one."""
        grows = part.proven < value and self.call.prove_s != 0.0 and not self._growing.over()
        if grows or part.named is None:
            model = self._model(part.box, self.call.problem.default)
            if model is not None and (part.named is None or part.prices is None):
                self._price(part, model)
            ample = self._growing.limit_s is None
            if model is not None and grows and (ample or model.program.n_columns <= SMALL):
                assert part.prices is not None
                _, nodes = by_tree(self.call, model, value, part.prices)
                return nodes or [Node(prices=part.named)]
        return [Node(prices=part.named or {})]
