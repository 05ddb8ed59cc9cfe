"""The claims of one result, against what was recomputed and proven of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wattsched.verification.report import (
    CLAIM_TOLERANCE,
    ROUNDING,
    TOLERANCE,
    Proof,
    Report,
    is_finite,
    number,
    reach_of,
)

WITHOUT_DECISION = {
    "infeasible": ("objective", "bound", "gap", "proven_gap", "totals", "dropped"),
    "no_solution": ("objective", "gap", "proven_gap", "totals", "dropped"),
    "error": ("objective", "gap", "proven_gap", "totals", "dropped"),
}
"""Reasons to stop that leave no decision, and what else cannot be claimed then."""

INTERNAL = ("worst:", "share:", "job:", "task:", "pieces:", "cuts:", "unlike:")
"""Rows that are no capacities, by the beginnings of their names."""

PROVEN = ("optimal", "infeasible")
"""Reasons to stop before any limit was reached."""

PHASES = (
    "expand",
    "build",
    "reference",
    "spread",
    "safety",
    "solve",
    "decode",
    "check",
    "prove",
    "conflict",
    "total",
)
"""Phases of a call whose seconds are counted."""

# Versions before said nothing of bounds that were beyond the proof by less: they are on the solver's word.
_SAID_BEFORE = 1e-8

_LAST_DIGITS = 1e-12
# By so much do clocks differ that seconds are read from.
_TICK_S = 0.05

# What was asked for by default when results did not say it.
_USUAL_GAP = 1e-4
# Below that tolerances are absolute: sums of other processors differ in their last digits.
_SMALL = 1e-6

MOST_NAMED = 5
"""Jobs that have a line each of those with the same fault."""

LEAST = 1e-9
"""Gaps of smaller objectives are relative to this."""


def is_within(gap: float, asked: float) -> bool:
    """True if a gap is as small as asked; the last digits may differ even where no gap is asked for."""
    return gap <= asked * (1 + ROUNDING) + _LAST_DIGITS


def told_apart(a: float, b: float) -> tuple[str, str]:
    """Write two different numbers, in as few digits as they look different with."""
    written = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in (3, 6, 9, 12, 17))
    return next((one, other) for one, other in written if one != other)


def gap_between(objective: float, bound: float) -> float:
    """Gap of an objective and a bound, relative to the objective."""
    return abs(objective - bound) / max(LEAST, abs(objective))


def beyond_proof(
    reason: str, bound: float | None, proven: float | None, sense: str, least: float = 0.0
) -> bool:
    """True if an answer claims more than its certificate proves.

    Parameters
    ----------
    reason : str
        Reason to stop: that there is no decision needs a certificate, unless it is `self_evident`.
    bound, proven : float, optional
        Bounds that the result and its certificate state.
    sense : {"min", "max"}
    least : float
        Difference of the two that is none yet.
    """
    if proven is None:
        return reason == "infeasible" or bound is not None
    beyond = 0.0 if bound is None else bound - proven if sense == "min" else proven - bound
    return beyond > max(CLAIM_TOLERANCE * abs(proven), least)


def is_older(result: Mapping[str, Any]) -> bool:
    """True if a result is of an older format, which stated neither the gap asked for nor its instance."""
    return result.get("digest") == "" and result.get("gap_asked") is None


def reason_of(result: Mapping[str, Any]) -> str:
    """Return the reason why the solver stopped."""
    ended = result.get("termination")
    return str(ended.get("reason")) if isinstance(ended, dict) else ""


def _seconds(value: Any) -> float:
    """Seconds, as far as they are some."""
    return float(value) if is_finite(value) else 0.0


class Claims:
    """The claims of one result: what it says, and what was recomputed and proven of it.

    ``sign`` turns values into costs: 1 where less is better, -1 where more is. That there is no decision may
    be ``evident`` without a certificate. The ``proofs`` are by the field of the certificate that claims them.
    """

    def __init__(
        self,
        result: Mapping[str, Any],
        sense: str,
        report: Report | None,
        proofs: Mapping[str, Proof],
        evident: bool,
    ):
        self.result, self.report, self.proofs = result, report, proofs
        self.sign = 1.0 if sense == "min" else -1.0
        self.decided = result.get("decision") is not None
        certificate = result.get("certificate")
        self.certificate: dict[str, Any] = certificate if isinstance(certificate, dict) else {}
        self.recomputed = None if report is None else report.objective
        self.size = 0.0 if report is None else report.size
        self.reason, self.older = reason_of(result), is_older(result)
        bound, proven = number(result, "bound"), number(self.certificate, "bound")
        unsaid = max(LEAST, _SAID_BEFORE * abs(proven or 0.0))
        self.evident = evident
        self.beyond_proof = not evident and beyond_proof(self.reason, bound, proven, sense)
        self.must_say_so = not evident and beyond_proof(self.reason, bound, proven, sense, unsaid)

    @property
    def on_trust(self) -> bool:
        """True if the result states what only the solver's word stands for."""
        gap = number(self.result, "gap")
        asked_for_more = gap is None or not is_within(gap, _USUAL_GAP)
        return self.beyond_proof or (self.older and self.reason == "optimal" and asked_for_more)

    def faults(self) -> Iterator[str]:
        """Yield the faults of all claims, of which some do not hold, or contradict each other."""
        yield from self._termination()
        for name, proof in self.proofs.items():
            yield from proof.faults or self._certificate(name, proof)
        yield from self._prices()
        yield from self._times()
        yield from self._honesty()
        if self.decided:
            yield from self._objective_and_gap()
        if self.report is not None:
            yield from self._totals(self.report.totals)
            yield from self._dropped(self.report.dropped)

    def _dropped(self, dropped: frozenset[str]) -> Iterator[str]:
        """Yield jobs that are said to be left out, and are not, or the reverse."""
        said = self.result.get("dropped", {})
        if not isinstance(said, dict) or not all(isinstance(why, str) for why in said.values()):
            yield "dropped: must be an object of job names and reasons"
            return
        for name in sorted(said.keys() - dropped)[:MOST_NAMED]:
            yield f"dropped: job '{name:.80}' is said to have no option, but is no such job"
        for name in sorted(dropped - said.keys())[:MOST_NAMED]:
            yield f"dropped: job '{name}' has no option, which the result does not say"

    def _termination(self) -> Iterator[str]:
        """Yield the contradictions between the reason to stop and the rest of a result."""
        result, reason = self.result, self.reason
        if reason in PROVEN and (limit := result["termination"].get("limit")) is not None:
            yield f"termination: '{reason}' is proven, yet the limit '{limit}' is said to have cut it short"
        if not self.decided:
            if reason not in WITHOUT_DECISION:
                yield "the result holds no decision to check"
                return
            for name in WITHOUT_DECISION[reason]:
                if result.get(name) not in (None, {}):
                    yield f"{name}: cannot be claimed without a decision, the result says '{reason}'"
            if result.get("checked"):
                yield "checked: there is no decision that can have been checked"
            return
        if result.get("checked") is not True:
            yield "checked: the result says that nobody checked its decision"
        if reason in WITHOUT_DECISION:
            yield f"termination: the result says '{reason}' but has a decision"
        elif reason == "optimal":
            gap, stated = number(result, "gap"), result.get("gap")
            if gap is None or not 0 <= gap < 1:
                yield f"termination: 'optimal' needs a gap from 0 to below 1, the result has {stated}"
        if reason in ("optimal", "feasible"):
            yield from self._as_asked(reason)

    def _as_asked(self, reason: str) -> Iterator[str]:
        """Yield a fault where the distance of objective and bound contradicts the reason to stop."""
        stated, bound = number(self.result, "objective"), number(self.result, "bound")
        objective = stated if self.recomputed is None else self.recomputed
        asked = number(self.result, "gap_asked")
        if objective is None or bound is None or asked is None:
            return
        gap = gap_between(objective, bound)
        if gap <= asked if reason == "feasible" else not is_within(gap, asked):
            yield f"termination: '{reason}' at a gap of {gap:.9g}, the one asked for is {asked:.9g}"

    def _honesty(self) -> Iterator[str]:
        """Yield the faults in what a result says of its own proof."""
        asked = number(self.result, "gap_asked")
        if not self.older and (asked is None or not 0 <= asked < 1):
            yield f"gap_asked: must be from 0 to below 1, the result has {self.result.get('gap_asked')!r:.80}"
        what = "'infeasible'" if self.reason == "infeasible" else "the bound"
        if self.must_say_so and self.result.get("claimed") is not True:
            yield f"claimed: {what} goes beyond the certificate, and the result does not say so"
        if not self.beyond_proof and not self.evident and self.result.get("claimed"):
            yield f"claimed: the result says that {what} goes beyond the certificate, and it does not"
        if not self.decided:
            return
        objective, proven = number(self.result, "objective"), number(self.certificate, "bound")
        stated = self.result.get("proven_gap")
        gap = None if objective is None or proven is None else gap_between(objective, proven)
        if (gap is None) != (stated is None) or (
            gap is not None and (not is_finite(stated) or abs(stated - gap) > TOLERANCE * max(LEAST, gap))
        ):
            truth = "nothing is proven" if gap is None else f"by its certificate it is {gap:.6g}"
            says = "does not say it" if stated is None else f"says {stated!r:.80}"
            yield f"proven_gap: the result {says}, {truth}"

    def _times(self) -> Iterator[str]:
        """Yield the faults of the seconds that a result states for each phase of its call."""
        times = self.result.get("time_s")
        if not isinstance(times, dict):
            yield "time_s: is missing" if times is None else f"time_s: must be an object, not {times!r:.80}"
            return
        for name, seconds in times.items():
            if not is_finite(seconds) or seconds < 0:
                yield f"time_s.{name}: {seconds!r:.80} is no number of seconds"
        if not self.older:
            yield from (f"time_s.{name}: there is no such phase" for name in times if name not in PHASES)
            if "total" not in times:
                yield "time_s.total: is missing"
            elif more := [n for n in times if _seconds(times[n]) > _seconds(times["total"]) + _TICK_S]:
                yield f"time_s.total: {times['total']!r:.80} is less than the seconds of '{more[0]}'"

    def _certificate(self, name: str, proof: Proof) -> Iterator[str]:
        """Yield the faults of a certificate's field against its proof, the decision and how it ended."""
        claimed = number(self.certificate, name)
        assert proof.bound is not None
        assert claimed is not None
        reach = self.sign * reach_of(self.sign * proof.bound, 0.0) if proof.reach is None else proof.reach
        if self.sign * (claimed - reach) > 0:
            yield f"certificate: claims the bound {claimed:.12g}, its prices prove {proof.bound:.12g}"
        if self.reason == "infeasible" and name == "bound" and proof.excess <= 0:
            yield f"certificate: its prices prove {proof.bound:.9g}, which leaves room for a decision"
        objective = self.recomputed
        if objective is not None and (
            self.sign * (proof.bound - objective) > self._tolerance(objective) + proof.leeway
        ):
            yield (
                f"objective: {objective:.9g} is better than {proof.bound:.9g}, "
                "which the certificate proves that no decision can beat"
            )

    def _prices(self) -> Iterator[str]:
        """Yield the faults of the prices that a result states, against those of its certificate.

        A result's: by how much a unit more of a limit betters the objective; a certificate's: its derivative.
        """
        stated, priced = self.result.get("prices"), self.certificate.get("prices")
        if stated is None and not self.older:
            stated = {}
        if not isinstance(stated, dict):
            return
        if self.result.get("certificate") is None and stated:
            yield "prices: there is no certificate that they could come from"
        if not isinstance(priced, dict):
            return
        # Without a decision prices need not be stated; those of the rows of jobs and sets would not help.
        owed = [name for name in priced if not name.startswith(INTERNAL)] if self.decided else []
        for name in [*stated, *(name for name in owed if name not in stated)]:
            if name not in priced:
                yield f"prices: the certificate has no price of '{name}'"
                continue
            price, derivative = stated.get(name, 0.0), priced[name]
            if not is_finite(derivative):
                continue  # a fault of the certificate's proof
            expected = 0.0 - self.sign * derivative  # no -0
            if not is_finite(price) or abs(price - expected) > TOLERANCE * abs(expected):
                found = price if name in stated else "missing"
                yield f"prices: '{name}' is {found}, the certificate has {expected:.9g}"

    def _objective_and_gap(self) -> Iterator[str]:
        """Yield the faults of the objective, the bound and the gap of a result with a decision."""
        objective = number(self.result, "objective")
        if objective is None:
            yield "objective: the result has a decision but no finite objective"
            return
        if self.recomputed is not None and not self._equal(objective, self.recomputed):
            yield f"objective: the result claims {objective:.9g}, recomputed {self.recomputed:.9g}"
        elif self.recomputed is None and self.report is not None and not self.report.faults:
            yield f"objective: {objective:.9g} is claimed, the instance has not what it is computed from"
        bound, gap = number(self.result, "bound"), number(self.result, "gap")
        if bound is None:
            if gap is not None:
                yield "gap: there is no gap without a bound"
            return
        if self.sign * (bound - objective) > self._tolerance(objective, CLAIM_TOLERANCE):
            yield f"bound: {bound:.9g} is on the wrong side of the objective {objective:.9g}"
        proven = number(self.certificate, "bound")
        # One of the two was changed. Rounding can lift a proven bound above the objective.
        if proven is not None and (
            min(self.sign * (proven - bound), self.sign * (objective - bound)) > self._tolerance(proven)
        ):
            yield f"bound: {bound:.9g} is weaker than the {proven:.9g} of the certificate"
        true_gap = gap_between(objective, bound)
        if gap is None or abs(gap - true_gap) > TOLERANCE * max(LEAST, true_gap):
            yield f"gap: the result claims {gap}, recomputed {true_gap:.9g}"

    def _totals(self, recomputed: Mapping[str, float]) -> Iterator[str]:
        """Yield the totals of a result that differ from those recomputed under the same names."""
        totals = self.result.get("totals")
        if not isinstance(totals, dict):
            yield f"totals: must be an object, not {totals!r:.80}"
            return
        for name, truth in recomputed.items():
            claimed = number(totals, name)
            counts = isinstance(truth, int)
            if claimed is None or not (claimed == truth if counts else self._equal(claimed, float(truth))):
                yield f"totals.{name}: the result says {totals.get(name)}, it is {truth:.9g}"
        for name in totals.keys() - recomputed.keys():
            yield f"totals.{name}: nothing of that name can be recomputed"

    def _tolerance(self, value: float, share: float = TOLERANCE) -> float:
        """Return the error allowed in a number, relative to it, or to its terms where large ones cancel."""
        return share * max(abs(value), _SMALL * max(1.0, self.size))

    def _equal(self, a: float, b: float) -> bool:
        return is_finite(a) and is_finite(b) and abs(a - b) <= self._tolerance(max(abs(a), abs(b)))
