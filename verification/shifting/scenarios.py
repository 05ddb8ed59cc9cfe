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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from wattsched.instances.shifting.decision import Plan, ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import Strict
from wattsched.verification.report import ROUNDING, Proof, Report, charges, pairing_faults, reach_of
from wattsched.verification.shifting import bound, checker
from wattsched.verification.shifting.priced import Allowed
from wattsched.verification.tree import Prover, Taken, read_split

COUNTS = ("unfinished", "restarts")
"""Totals of which the most of any scenario counts, and not the mean."""


def check(instance: ShiftingInstance, decision: ShiftingDecision) -> Report:
    """Check a decision as `checker.check` does; with scenarios in all of them, for expected totals."""
    if instance.scenarios is None:
        found = checker.check(instance, decision)
        told = [] if decision.scenarios is None else ["scenarios: the instance has none"]
        return replace(found, faults=[*told, *found.faults])
    plans = decision.scenarios or {}
    if plans.keys() != instance.scenarios.keys():
        own, theirs = (", ".join(names) or "none" for names in (plans, instance.scenarios))
        return Report([f"scenarios: the decision has plans for {own}, the instance has {theirs}"])
    faults = list(
        pairing_faults({j.name for j in instance.jobs}, (j.job for j in decision.jobs), decision.waiting)
    )
    decided, common, reports = instance.decided_slots or 0, _runs(decision), []
    for name, plan in plans.items():
        reports.append(
            (instance.scenarios[name].probability, checker.check(instance.in_scenario(name), plan))
        )
        other = {run[:2] for run in common ^ {run for run in _runs(plan) if run[1] < decided}}
        told = [f"job '{job}' does not do in slot {slot} what is decided" for job, slot in sorted(other)]
        faults += [f"scenario '{name}': {fault}" for fault in (*reports[-1][1].faults, *told)]
    known = set.intersection(*(set(one.totals) for _, one in reports))
    order = [total for total in reports[0][1].totals if total in known]
    totals = {total: math.fsum(p * one.totals[total] for p, one in reports) for total in order}
    totals |= {total: max(one.totals[total] for _, one in reports) for total in COUNTS}
    criterion = checker.CRITERIA.get(instance.objective, "")
    return Report(faults, totals.get(checker.BUDGETS.get(criterion, "")), totals)


def _runs(plan: Plan) -> set[tuple[str, int, str]]:
    """Job, slot and settings of all that runs."""
    return {
        (one.job, slot, run.model_dump_json(exclude={"first_slot", "slots"}))
        for one in plan.jobs
        for run in one.runs
        for slot in range(run.first_slot, run.first_slot + run.slots)
    }


class Split(Strict):
    """A split of a job in a scenario, or in all of them where its slot is decided.

    Inside, it runs none of some rows of its table in a slot, or, without rows, does not end in it or before.
    """

    scenario: str
    job: str
    slot: Annotated[int, Field(ge=0)]
    rows: list[Annotated[int, Field(ge=0)]] | None = None
    at_most: Literal[0]


def prover_of(instance: ShiftingInstance) -> Prover:
    """Return what proves bounds on an instance's objective, with scenarios or without."""
    return bound.Prover(instance) if instance.scenarios is None else ScenarioProver(instance)


class ScenarioProver(Prover):
    """Proves bounds on the expected objective; see the module's text.

    Attributes
    ----------
    parts : dict of str to (float, bound.Prover)
        By scenario its probability, and the prover of its instance alone.
    limits : dict of str to (str, str)
        Scenario and row by the name in certificates.
    runs : dict of str to (str, str, int, int)
        Likewise scenario, job, slot and row of its table.
    """

    def __init__(self, instance: ShiftingInstance):
        self.instance, self.jobs = instance, {job.name: job for job in instance.jobs}
        self.rows = {job.name: len(instance.table_of(job).gpus) for job in instance.jobs}
        self.parts = {
            name: (one.probability, bound.Prover(instance.in_scenario(name)))
            for name, one in (instance.scenarios or {}).items()
        }
        self.limits = {f"{s}/{row}": (s, row) for s, (_, part) in self.parts.items() for row in part.limits}
        self.runs = {
            f"{scenario}/runs:{job}@{slot}={row}": (scenario, job, slot, row)
            for scenario in self.parts
            for job, rows in self.rows.items()
            for slot in range(instance.decided_slots or 0)
            for row in range(rows)
        }

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound by prices, of the decisions on some sides of splits."""
        # What a side of a split forbids is left out exactly, whatever its price.
        sides = {f"split:{one.node}" for one in taken}
        kept = {name: price for name, price in prices.items() if name not in sides}
        charged, faults = charges(kept, self.limits, self.runs, "min")
        if faults:
            return Proof(faults)
        splits, proofs = [(self._read(one.split), not one.inside) for one in taken], []
        runs: dict[str, dict[str, FloatArray]] = {name: {} for name in self.parts}
        own: dict[str, dict[str, float]] = {name: {} for name in self.parts}
        for name, charge in charged.items():
            if name in self.limits:
                scenario, limit = self.limits[name]
                own[scenario][limit] = charge / self.parts[scenario][0]
            else:
                scenario, job, slot, row = self.runs[name]
                of_job = runs[scenario].setdefault(job, np.zeros((self.instance.slots, self.rows[job])))
                of_job[slot, row] = charge
        for name, (probability, part) in self.parts.items():
            charged_runs = {job: charge / probability for job, charge in runs[name].items()}
            proofs.append((probability, part.proof(own[name], self._allowed(splits, name), charged_runs)))
            if proofs[-1][1].faults:
                return proofs[-1][1]
        lost = self._most_left_over(list(runs.values()), self._allowed(splits, None))
        if lost == -math.inf or any(one.bound == math.inf for _, one in proofs):
            return Proof(bound=math.inf, excess=math.inf)
        total = math.fsum(p * (one.bound or 0.0) for p, one in proofs) - lost
        excess = math.fsum(p * one.excess for p, one in proofs) - lost
        # A scenario whose runs are not charged may prove by itself that it has no plan.
        own_excess = [
            p * one.excess for (p, one), paid in zip(proofs, runs.values(), strict=True) if not paid
        ]
        excess = max([excess, *(one for one in own_excess if one > 0)])
        dearest = math.fsum(p * part.dearest for p, part in self.parts.values())
        return Proof(bound=total, reach=reach_of(total, dearest), excess=excess)

    def _read(self, split: Mapping[str, Any]) -> Split:
        """Read a split; a ValueError says what is wrong with it."""
        known = read_split(Split, split)
        for what, name, names in (("job", known.job, self.jobs), ("scenario", known.scenario, self.parts)):
            if name not in names:
                raise ValueError(f"split.{what}: {name!r:.80} is not a {what} of the instance")
        if known.slot >= self.instance.slots:
            raise ValueError(f"split.slot: {known.slot} is not one of the {self.instance.slots} slots")
        if max(known.rows or [-1]) >= self.rows[known.job]:
            raise ValueError(
                f"split.rows: {max(known.rows or [])} is no row of the table of job '{known.job}'"
            )
        return known

    def _allowed(self, splits: Sequence[tuple[Split, bool]], scenario: str | None) -> dict[str, Allowed]:
        """What splits leave to jobs in a scenario, or None for the decided slots, by their names."""
        found: dict[str, Allowed] = {}
        for split, does in splits:
            is_decided = split.rows is not None and split.slot < (self.instance.decided_slots or 0)
            if not is_decided and split.scenario != scenario:
                continue
            one = found.setdefault(split.job, Allowed.everything(self.instance, self.jobs[split.job]))
            if split.rows is None:
                one.end_in(split.slot, self.instance.begin_s, does)
            else:
                one.run(split.slot, split.rows, does)
        return found

    def _most_left_over(
        self, runs: Sequence[Mapping[str, FloatArray]], allowed: Mapping[str, Allowed]
    ) -> float:
        """Most that all scenarios' charges for runs may add up to, and what rounding may do to them."""
        total = 0.0
        for name, job in self.jobs.items():
            if charged := [of_jobs[name] for of_jobs in runs if name in of_jobs]:
                left = allowed.get(name) or Allowed.everything(self.instance, job)
                most = np.where(left.runs, np.sum(charged, axis=0), -math.inf).max(axis=1)
                total += float(np.where(left.idle, np.maximum(most, 0.0), most).sum())
                total += ROUNDING * float(np.abs(charged).max(axis=2).sum())
        return total
