"""Results of calls: the best decision that holds, with the best bound and as much proof as time allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from wattsched.formulations.infeasibility import InfeasibilityProof, InfeasibleError
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.results.result import Certificate, Result, Size, SolverAnswer
from wattsched.solvers.solution import Limit, Solution, Termination, relative_gap
from wattsched.solving.call import BRANCHING, EARLIER, IN_PLACE, ROUNDING, Call, Candidate
from wattsched.solving.certificates import Priced, by_cases, certificate_of, no_decision, rounded_up
from wattsched.topology.arrays import FloatArray

_ROUNDING_GAP = 1e-12
# What two computations of the same bound may differ by, and a little more.
_NEARLY = 1e-8
_EXPLANATION_S = 10.0
# Of programs by kind so many columns are written down to explain what they lack.
_EXPLAINED = 3_000_000


@dataclass(frozen=True)
class Answer:
    """Builds the result of a call from all that was found when the solver has ended.

    Attributes
    ----------
    call : Call
    model : Model
        Of the requested formulation.
    solution : Solution
        The solver's, of the model's program.
    found : list of Candidate
        Decisions and points of others.
    """

    call: Call
    model: Model[Any]
    solution: Solution
    found: list[Candidate]

    @property
    def certificate(self) -> Certificate | None:
        """Best bound that named row prices prove, of the requested formulation or else of the default one."""
        return None if self.priced is None else self.priced.certificate

    @cached_property
    def priced(self) -> Priced | None:
        """Row prices that prove most of all that solvers have found, or that are computed now."""
        named = self._named
        if named is None:
            return None
        if named.named_prices is None:
            return Priced.of_model(self.call, named)
        prices = self._prices_of(named)
        if named.lagrangian:
            return Priced.best(self.call, named, prices)
        return Priced.proven(self.call, named, named.named_prices(prices[-1])) if prices else None

    @cached_property
    def _named(self) -> Model[Any] | None:
        """Model with prices that have names: of the requested formulation, else of the default one."""
        if self.model.named_prices is not None or self.model.prices is not None:
            return self.model
        try:
            return self.call.model(self.call.problem.default)
        except (InfeasibleError, UnsuitableError):
            return None

    def _prices_of(self, named: Model[Any]) -> list[FloatArray]:
        """Row prices of a model that solvers have found, or are computed now."""
        call, program = self.call, named.program
        found = [c.solution.prices for c in self.found if c.model is named and c.solution is not None]
        # Of a bottleneck prices of thresholds, as the safety net's, prove more than the LP relaxation's.
        enough = program.bottleneck is None or any(y is not None for y in found)
        found += [self.solution.prices] if named is self.model else []
        priced = [y for y in found if y is not None]
        if not priced or not enough:
            from wattsched.solvers.dual import dual_prices

            start = priced[-1] if priced else None
            least = min([math.inf, *(c.cost for c in self.candidates)])
            with call.timer.phase("prove"):
                left_s = call.timer.remaining_s()
                prices, _ = dual_prices(program, left_s, start=start, enough=least)
                priced.append(prices)
        return priced

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Decisions and points, the cheapest first; of equals the solver's own."""
        own = [one for one in self.found if one.solution is self.solution]
        own = own or self.call.of_solution(self.call.solver, self.model, self.solution)
        found = [*own, *(one for one in self.found if one.solution is not self.solution)]
        return sorted(found, key=lambda candidate: candidate.cost)

    def result(self) -> Result:
        """Decode and check the candidates until one holds, and state the best bound of all."""
        failed: list[str] = []
        for candidate in map(self.call.decided, self.candidates):
            if candidate.valid:
                # A better one may have been checked before: no program says what moves cost.
                best = self.call.incumbent or candidate
                chosen = candidate if candidate.cost <= _highest(best.cost) else best
                return self._with_decision(chosen, failed[:1])
            # An earlier decision that is no longer possible says nothing of this instance.
            failed += _failed(candidate) if candidate.source != EARLIER else []
        return self._without_decision(failed[:1])

    def _with_decision(self, chosen: Candidate, failed: list[str]) -> Result:
        """Result of the chosen decision, with the bounds that solvers found, proven as far as time allows.

        `failed` has what was wrong with a better one.
        """
        call, bounds = self.call, list(self._solver_bounds())
        self._keep(chosen, failed, bounds, None)
        certificate = self.certificate
        bounds += [] if certificate is None else [call.sign * certificate.bound]
        self._keep(chosen, failed, bounds, certificate)
        cases = by_cases(call, self.model, chosen.decision, chosen.cost, certificate)
        if cases is not None:
            if certificate is None or cases.bound > call.sign * certificate.bound:
                certificate = certificate_of(call, cases, certificate) or certificate
                bounds += [] if certificate is None else [call.sign * certificate.bound]
            better = chosen if cases.decision is None else call.checked(BRANCHING, cases.decision)
            chosen = better if better.cost < chosen.cost else chosen
        bound = _best_bound(chosen.cost, bounds)
        if self.priced is not None and math.isfinite(bound):
            found = self.solution.proof if self.priced.model is self.model else None
            certificate = self.priced.proven_further(chosen.cost, bound, found) or certificate
        return self._stated(chosen, failed, bounds, certificate)

    def _keep(
        self, chosen: Candidate, failed: list[str], bounds: list[float], certificate: Certificate | None
    ) -> None:
        """Have a result at hand, should the call be given up before more of it is proven."""
        if self.call.watched:
            # Bounds that are found later are none of this result.
            self.call.partial_result = partial(self._stated, chosen, failed, [*bounds], certificate)

    def _stated(
        self, chosen: Candidate, failed: list[str], bounds: list[float], certificate: Certificate | None
    ) -> Result:
        """Result of a decision, lower bounds on the cost so far and a certificate; `failed` are faults."""
        call, cost, report = self.call, chosen.cost, chosen.report
        assert report is not None
        assert report.objective is not None
        for b in bounds:
            if b > _highest(cost):
                found = (
                    "infeasibility was proved" if math.isinf(b) else f"the bound found is {call.sign * b:g}"
                )
                failed = [*failed, f"a decision of {report.objective:g} exists, but {found}"]
        bound = _best_bound(cost, bounds)
        if certificate is not None and call.sign * certificate.bound > _highest(cost):
            certificate = None  # which the decision refutes
        if certificate is not None:
            proven = min(cost, call.sign * certificate.bound)
            # What anybody can verify is better than a finer bound on the solver's word.
            enough = relative_gap(cost, proven) <= max(call.limits.gap, _ROUNDING_GAP)
            rounded = call.rounded(cost, proven) == cost
            if not enough and (rounded or relative_gap(cost, proven) <= _NEARLY):
                certificate = rounded_up(call, certificate, report.objective)
                if rounded or certificate.bound == report.objective:
                    enough, proven = True, cost
            bound = proven if enough else max(bound, proven)
        bound = call.rounded(cost, bound)
        gap = relative_gap(cost, bound) if math.isfinite(bound) else None
        # Nobody is told in a session what the last decision lacks.
        before = [] if call.of_session else [one for one in self.found if one.source == EARLIER]
        earlier = [fault for one in before for fault in _failed(one)]
        return call.result(
            self._termination(chosen, gap, failed),
            objective=report.objective,
            bound=call.sign * bound if math.isfinite(bound) else None,
            gap=gap,
            decided_by="" if chosen.source == call.solver else chosen.source,
            solver_answer=self._own(cost if chosen.source == call.solver else None),
            unsupported=self._unsupported,
            faults=list(dict.fromkeys([*failed, *earlier])),
            checked=True,
            totals=report.totals,
            certificate=certificate,
            decision=chosen.decision,
            size=self.size,
        )

    def _own(self, cost: float | None = None) -> SolverAnswer:
        """Summarise the requested solver's own answer; `cost` is its decision's, where that was checked."""
        call, own, bound = self.call, self.solution, self._own_bound
        if cost is None:
            found = (one.cost for one in self.candidates if one.solution is own)
            cost = next(filter(math.isfinite, found), None)
        reason, gap = own.termination.reason, None
        if cost is not None:
            bound = call.rounded(cost, min(bound, cost)) if bound <= _highest(cost) else -math.inf
            gap = relative_gap(cost, bound) if math.isfinite(bound) else None
            reason = "optimal" if self._closed(gap) else "feasible"
        elif reason != "error" and not (reason == "infeasible" and _whole(self.model)):
            reason = "no_solution"
        return SolverAnswer(
            reason=reason,
            limit=None if reason in ("optimal", "infeasible") else self._own_limit,
            detail=own.termination.detail,
            objective=None if cost is None else call.sign * cost,
            bound=call.sign * bound if math.isfinite(bound) else None,
            gap=gap,
        )

    @property
    def _own_bound(self) -> float:
        """Lower bound on the cost of every decision, as the requested solver found it."""
        return min(self.solution.bound, self.model.outside)

    def _closed(self, gap: float | None) -> bool:
        # Asked for no gap at all, the last digits still differ.
        return gap is not None and gap <= max(self.call.limits.gap, _ROUNDING_GAP)

    def _solver_bounds(self) -> Iterator[float]:
        """Lower bounds on the cost of every decision, as solvers found them."""
        yield self._own_bound
        for candidate in self.found:
            if candidate.model is not None and candidate.solution is not None:
                yield min(candidate.solution.bound, candidate.model.outside)

    def _termination(self, chosen: Candidate, gap: float | None, wrong: list[str]) -> Termination:
        """Why the call ended with the chosen decision at this gap; what was wrong comes first."""
        call, ended = self.call, self.solution.termination
        detail = wrong[0] if wrong else ended.detail
        if chosen.source != call.solver and not wrong:
            lost = self.solution.x is None and not call.by_heuristic
            why = f"{call.solver}: {detail or 'no decision in time'}; " if lost else ""
            detail = f"{why}this is the decision of '{chosen.source}'"
        if self._closed(gap):
            return Termination("optimal", None, detail)
        if any(one.source == IN_PLACE for one in self.found):
            detail = "; ".join([*([detail] if detail else []), "the bound leaves out what moves cost"])
        if not detail and ended.reason == "optimal" and not _whole(self.model):
            detail = "the best of the columns generated; others may be better"
        return Termination("feasible", self._limit, detail)

    @property
    def _limit(self) -> Limit | None:
        """Limit that stopped the solver, or the formulation before it, or what came afterwards."""
        return self._own_limit or ("time" if self.call.timer.over() else None)

    @property
    def _own_limit(self) -> Limit | None:
        """Limit that stopped the solver, or the formulation before it."""
        return self.solution.termination.limit or ("time" if self.model.cut else None)

    def _without_decision(self, failed: list[str]) -> Result:
        """No decision holds: infeasible if that can be shown, otherwise as the solver said."""
        call, ended = self.call, self.solution.termination
        if failed:
            ended = Termination("error", detail=failed[0])
            return self._ended(ended, faults=failed)
        reason = ""
        if _whole(self.model) and ended.reason == "infeasible":
            reason = f"{call.solver} proved that no decision exists"
            # To explain and to certify it may take too long.
            call.partial_result = partial(self._infeasible, reason)
        try:
            reason = "; ".join(self._reasons() if _whole(self.model) else []) or reason
        except InfeasibleError as error:  # the default formulation proves it while it is built
            return refuted(call, error)
        if reason:
            call.partial_result = partial(self._infeasible, reason)
            certificate = no_decision(call, self._named)
            proven = None if certificate else self._branched(reason)
            return proven or self._infeasible(reason, certificate)
        certificate = self.certificate
        proof = None if certificate is None else call.problem.refute(call.data, certificate.prices)
        if proof is not None:
            return _infeasible(call, proof, solver_answer=self._own(), size=self.size)
        if (branched := self._branched("branching proved that no decision exists")) is not None:
            return branched
        if ended.reason in ("optimal", "feasible", "infeasible"):
            # That a program of some of the columns is infeasible says nothing of the instance.
            said = "" if ended.reason == "infeasible" else ended.detail
            ended = Termination("no_solution", self._limit, said or "no decision was found")
        bound = None if certificate is None else certificate.bound
        return self._ended(ended, bound=bound, certificate=certificate, unsupported=self._unsupported)

    def _branched(self, reason: str) -> Result | None:
        """Result with a decision that branching finds, or its proof that there is none; None without both."""
        cases = by_cases(self.call, self.model, None, math.inf, self.certificate)
        if cases is None or cases.decision is None:
            certificate = cases and certificate_of(self.call, cases, None, none=True)
            return self._infeasible(reason, certificate) if certificate else None
        found = self.call.checked(BRANCHING, cases.decision)
        return self._with_decision(found, []) if found.valid else None

    def _infeasible(self, reason: str, certificate: Certificate | None = None) -> Result:
        ended = Termination("infeasible", detail=reason)
        return self._ended(ended, certificate=certificate)

    def _ended(self, ended: Termination, **values: Any) -> Result:
        """Result without a decision."""
        return self.call.result(ended, solver_answer=self._own(), size=self.size, **values)

    @property
    def size(self) -> Size:
        """Size of the program."""
        program, options, dropped = self.model.program, self.model.options, self.model.dropped
        sizes = {"columns": program.n_columns, "rows": program.n_rows, "nonzeros": program.nonzeros}
        return Size(**sizes, options=options, dropped=dropped)

    @property
    def _unsupported(self) -> str:
        return self.solution.termination.detail if self.solution.termination.reason == "error" else ""

    def _reasons(self) -> list[str]:
        """Describe which limits are short, and by how much; empty when that cannot be shown."""
        from wattsched.solvers.infeasibility import short_rows

        problem, left_s = self.call.problem, self.call.timer.remaining_s()
        try:
            model = self.call.model(problem.default)
        except UnsuitableError:
            return []
        if model.written_out is not None and model.program.n_columns <= _EXPLAINED:
            model = model.written_out()
        if not _whole(model) or model.program.by_kind:
            return []
        time_s = _EXPLANATION_S if left_s is None else max(0.1, min(_EXPLANATION_S, left_s))
        found = short_rows(model.listed, time_s, problem.may_grow)
        rows = [row.times(model.units.get(row.row, 1.0)) for row in found]
        return [words for row in rows if (words := problem.describe(self.call.data, row)) is not None]


def _whole(model: Model[Any]) -> bool:
    """True if the program holds every decision; with some of the columns it cannot prove that none exists."""
    return model.outside == math.inf


def _highest(cost: float) -> float:
    """Bound of a decision's cost that may be right, but for rounding."""
    return cost + ROUNDING * max(1.0, abs(cost))


def _best_bound(cost: float, bounds: list[float]) -> float:
    """Best bound that may be right; rounding in the last digits must not put it on the wrong side."""
    return min(cost, max([-math.inf, *(b for b in bounds if b <= _highest(cost))]))


def refuted(call: Call, error: InfeasibleError) -> Result:
    """Answer that a formulation proved while it was built."""
    if call.incumbent is not None:
        wrong = f"a decision of {call.sign * call.incumbent.cost:g} exists, but infeasibility was proved"
        return call.result_now(wrong).model_copy(update={"faults": [wrong]})
    return _infeasible(call, error.proof or InfeasibilityProof({}, math.inf, error.detail))


def _infeasible(call: Call, proof: InfeasibilityProof, **values: object) -> Result:
    """Answer that there is no decision, with the proof as its certificate where it has a bound."""
    ended = Termination("infeasible", detail=proof.detail)
    if not math.isfinite(proof.bound):
        return call.result(ended, **values)
    certificate = Certificate(prices=dict(proof.prices), bound=proof.bound)
    return call.result(ended, certificate=certificate, **values)


def _failed(candidate: Candidate) -> list[str]:
    faults = [] if candidate.report is None else candidate.report.faults[:1]
    return [f"the decision of '{candidate.source}' failed its check: {fault}" for fault in faults]
