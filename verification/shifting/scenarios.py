r"""Instances of shifting with scenarios: a decision and a certificate in all of them together.

A decision has a plan for each scenario s, and these agree in the decided slots. Let :math:`p_s` be the
probabilities, :math:`f_s` the objective in a scenario, :math:`x_s` 1 where a job runs a row of its table in a
decided slot, and :math:`\eta_s` any numbers for each of these. As the plans agree,

.. math:: \sum_s p_s f_s = \sum_s \big( p_s f_s + \eta_s^T x_s \big) - e^T x , \qquad e = \sum_s \eta_s ,

and each term of the sum is an ordinary instance, in which runs are charged besides. Prices of its rows bound
it (`bound`); a job runs at most one row in a slot, so the last term is at most the sum, over jobs and slots,
of the largest e of a row that splits leave, or 0 where they leave a pause. Certificates name rows
``SCENARIO/ROW``, and ``SCENARIO/runs:JOB@SLOT=ROW`` for :math:`\eta`. The decomposition is that of Carøe and
Schultz, Operations Research Letters 24, 1999.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from wattsched.instances.shifting.decision import Plan, ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import Strict
from wattsched.verification.report import ROUNDING, Proof, Report, charges, pairing_faults, reach_of
from wattsched.verification.shifting import bound, checker
from wattsched.verification.shifting.checker import BUDGETS, CRITERIA
from wattsched.verification.shifting.priced import Allowed
from wattsched.verification.tree import Prover, Taken, read_split

COUNTS = ("unfinished", "restarts")
"""Totals of which the most of any scenario counts, and not the mean."""


def check(instance: ShiftingInstance, decision: ShiftingDecision) -> Report:
    """Check a decision as `checker.check` does, with scenarios in all of them: totals are expected ones."""
    plans = decision.scenarios or {}
    if instance.scenarios is None:
        told = ["scenarios: the instance has none, the decision is of one that has"] if plans else []
        found = checker.check(instance, decision)
        return Report([*told, *found.faults], found.objective, found.totals)
    faults = [f"scenarios: no plan for '{name}'" for name in instance.scenarios if name not in plans]
    faults += [
        f"scenarios: '{name}' is not in the instance" for name in plans if name not in instance.scenarios
    ]
    if faults:
        return Report(faults)
    reports = {name: checker.check(instance.in_scenario(name), plans[name]) for name in instance.scenarios}
    faults += [f"scenario '{name}': {fault}" for name, one in reports.items() for fault in one.faults]
    faults += _disagreements(instance, decision, plans)
    common = set.intersection(*(set(one.totals) for one in reports.values()))
    totals = {
        total: max(one.totals[total] for one in reports.values())
        if total in COUNTS
        else math.fsum(
            instance.scenarios[name].probability * one.totals[total] for name, one in reports.items()
        )
        for total in next(iter(reports.values())).totals
        if total in common
    }
    return Report(faults, totals.get(BUDGETS.get(CRITERIA.get(instance.objective, ""), "")), totals)


def _disagreements(
    instance: ShiftingInstance, decision: ShiftingDecision, plans: Mapping[str, Plan]
) -> Iterator[str]:
    """Yield a fault for each run in the decided slots that is not in all plans, or beyond these slots."""
    decided, common = instance.decided_slots or 0, _runs(decision)
    known = {job.name for job in instance.jobs}
    yield from pairing_faults(known, (one.job for one in decision.jobs), decision.waiting)
    for job, slot in sorted((job, slot) for job, slot, _ in common if slot >= decided):
        yield f"job '{job}': runs in slot {slot}, only {decided} slots are decided"
    for name, plan in plans.items():
        own = {run for run in _runs(plan) if run[1] < decided}
        for job, slot in sorted({(job, slot) for job, slot, _ in own ^ common if slot < decided}):
            yield f"scenario '{name}': job '{job}' does not do in slot {slot} what is decided for it"


def _runs(plan: Plan) -> set[tuple[str, int, str]]:
    """Job, slot and settings of all that runs."""
    return {
        (one.job, slot, run.model_dump_json(exclude={"first_slot", "slots"}))
        for one in plan.jobs
        for run in one.runs
        for slot in range(run.first_slot, run.first_slot + run.slots)
    }


class RowsSplit(Strict):
    """A split of a job: inside, it runs none of some rows of its table in a slot.

    Without `scenario` it is of a decided slot, and holds in all scenarios.
    """

    scenario: str | None = None
    job: str
    slot: Annotated[int, Field(ge=0)]
    rows: list[Annotated[int, Field(ge=0)]]
    at_most: Literal[0]


class EndSplit(Strict):
    """A split of a job in a scenario: inside, it does not end in a slot or before."""

    scenario: str
    job: str
    ends_by_slot: Annotated[int, Field(ge=0)]
    at_most: Literal[0]


Split = RowsSplit | EndSplit


def prover_of(instance: ShiftingInstance) -> Prover:
    """Return what proves bounds on an instance's objective, with scenarios or without."""
    return bound.Prover(instance) if instance.scenarios is None else ScenarioProver(instance)


class ScenarioProver(Prover):
    """Proves bounds on the expected objective; see the module's text.

    Attributes
    ----------
    parts : dict of str to bound.Prover
        By scenario, of its instance alone.
    limits : dict of str to (str, str)
        Scenario and row by the name in certificates.
    runs : dict of str to (str, str, int, int)
        Likewise scenario, job, slot and row of its table.
    """

    def __init__(self, instance: ShiftingInstance):
        self.instance, self.scenarios = instance, instance.scenarios or {}
        self.jobs = {job.name: job for job in instance.jobs}
        self.parts = {name: bound.Prover(instance.in_scenario(name)) for name in self.scenarios}
        self.limits = {
            f"{name}/{row}": (name, row) for name, part in self.parts.items() for row in part.limits
        }
        self.runs = {
            f"{name}/runs:{job.name}@{slot}={row}": (name, job.name, slot, row)
            for name in self.scenarios
            for job in instance.jobs
            for slot in range(instance.decided_slots or 0)
            for row in range(len(instance.table_of(job).gpus))
        }

    @property
    def dearest(self) -> float:
        """Objective that no decision exceeds."""
        return math.fsum(one.probability * self.parts[name].dearest for name, one in self.scenarios.items())

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound by prices, of the decisions on some sides of splits."""
        # What a side of a split forbids is left out exactly, whatever its price.
        sides = {f"split:{one.node}" for one in taken}
        kept = {name: price for name, price in prices.items() if name not in sides}
        charged, faults = charges(kept, self.limits, self.runs, "min")
        if faults:
            return Proof(faults)
        if not all(part.has_objective for part in self.parts.values()):
            return Proof([part.no_objective for part in self.parts.values()][:1])
        of_runs, splits = self._of_runs(charged), [(self._read(one.split), not one.inside) for one in taken]
        proofs = []
        for name, one in self.scenarios.items():
            own = {
                row: charged[full] / one.probability
                for full, (scenario, row) in self.limits.items()
                if scenario == name and full in charged
            }
            runs = {job: charge / one.probability for job, charge in of_runs[name].items()}
            inside = [(split, side) for split, side in splits if split.scenario in (None, name)]
            proofs.append((one.probability, self.parts[name].proof(own, self._allowed(inside), runs)))
        decided = self.instance.decided_slots or 0
        common = [(s, side) for s, side in splits if isinstance(s, RowsSplit) and s.slot < decided]
        return self._together(proofs, of_runs, self._most_left_over(of_runs, self._allowed(common)))

    def _allowed(self, sides: Sequence[tuple[Split, bool]]) -> dict[str, Allowed]:
        """What splits leave to jobs, by name, given with whether the job does what they are about."""
        found: dict[str, Allowed] = {}
        for split, does in sides:
            job = self.jobs[split.job]
            one = found.setdefault(job.name, Allowed.everything(self.instance, job))
            if isinstance(split, RowsSplit):
                one.run(split.slot, split.rows, does)
            else:
                one.end_in(split.ends_by_slot, self.instance.begin_s, does)
        return found

    def _of_runs(self, charged: Mapping[str, float]) -> dict[str, dict[str, FloatArray]]:
        """Charges for runs by scenario and job, shape (slots, n_rows), of jobs that have any."""
        found: dict[str, dict[str, FloatArray]] = {name: {} for name in self.scenarios}
        shape = {
            job.name: (self.instance.slots, len(self.instance.table_of(job).gpus))
            for job in self.instance.jobs
        }
        for full, (name, job, slot, row) in self.runs.items():
            if full in charged:
                found[name].setdefault(job, np.zeros(shape[job]))[slot, row] = charged[full]
        return found

    def _read(self, split: Mapping[str, Any]) -> Split:
        """Read a split; a ValueError says what is wrong with it."""
        form: type[Split] = EndSplit if "ends_by_slot" in split else RowsSplit
        known: Split = read_split(form, split)
        slot = known.ends_by_slot if isinstance(known, EndSplit) else known.slot
        if known.job not in self.jobs:
            raise ValueError(f"split.job: {known.job!r:.80} is not a job of the instance")
        if known.scenario is not None and known.scenario not in self.scenarios:
            raise ValueError(f"split.scenario: {known.scenario!r:.80} is not a scenario of the instance")
        if slot >= self.instance.slots:
            raise ValueError(f"split.slot: {slot} is not one of the {self.instance.slots} slots")
        if known.scenario is None and slot >= (decided := self.instance.decided_slots or 0):
            raise ValueError(f"split.scenario: is missing, slot {slot} is none of the {decided} decided")
        rows = len(self.instance.table_of(self.jobs[known.job]).gpus)
        if isinstance(known, RowsSplit) and max(known.rows, default=-1) >= rows:
            raise ValueError(f"split.rows: {max(known.rows)} is no row of the table of job '{known.job}'")
        return known

    def _most_left_over(
        self, of_runs: Mapping[str, Mapping[str, FloatArray]], allowed: Mapping[str, Allowed]
    ) -> float:
        """Most that the sum of all scenarios' charges for runs may be, of what is allowed in decided slots.

        It allows for the rounding of the charges.
        """
        total = 0.0
        for job in self.instance.jobs:
            charged = [of_jobs[job.name] for of_jobs in of_runs.values() if job.name in of_jobs]
            if not charged:
                continue
            left = allowed.get(job.name) or Allowed.everything(self.instance, job)
            most = np.where(left.runs, np.sum(charged, axis=0), -math.inf).max(axis=1)
            total += float(np.where(left.idle, np.maximum(most, 0.0), most).sum())
            total += ROUNDING * float(np.abs(charged).max(axis=2).sum())
        return total

    def _together(
        self,
        proofs: Sequence[tuple[float, Proof]],
        of_runs: Mapping[str, Mapping[str, FloatArray]],
        lost: float,
    ) -> Proof:
        """Return the proof of all scenarios from those of each, with its probability; `lost` is left over."""
        bounds = [one.bound for _, one in proofs if one.bound is not None]
        if math.inf in bounds or lost == -math.inf:
            return Proof(bound=math.inf, excess=math.inf)
        total = math.fsum(p * b for (p, _), b in zip(proofs, bounds, strict=True)) - lost
        excess = math.fsum(p * one.excess for p, one in proofs) - lost
        # A scenario whose runs are not charged may prove by itself that it has no plan.
        alone = [p * one.excess for (p, one), runs in zip(proofs, of_runs.values(), strict=True) if not runs]
        short = next((one.short for _, one in proofs if one.short), "")
        return Proof(
            bound=total, reach=reach_of(total, self.dearest), excess=max([excess, *alone]), short=short
        )
