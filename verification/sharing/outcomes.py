"""How the jobs of a set run, from the file's numbers alone: as measured, or by the laws.

Nothing is shared with formulations and solvers, nor with the arrays that they read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import fsum

from wattsched.instances.sharing.instance import Alone, MeasuredSet, SharingInstance, UnitType

TOLERANCE = 1e-9


@dataclass(frozen=True)
class SetOutcome:
    """How the jobs of one set run.

    Attributes
    ----------
    epoch_s : list of float
        Seconds per epoch of each job, in their order.
    power_w, utilisation_pct, memory_pct : float
        Of the unit.
    refused : str
        Why no such set may be formed; empty when it may.
    """

    epoch_s: list[float]
    power_w: float
    utilisation_pct: float
    memory_pct: float
    refused: str = ""


class Outcomes:
    """Looks outcomes of sets up, or has the laws say them."""

    def __init__(self, instance: SharingInstance):
        self._instance = instance
        self.types = {unit_type.name: unit_type for unit_type in instance.unit_types}
        self.alone = {job_class.name: job_class.alone for job_class in instance.classes}
        self._measured = {(m.unit_type, tuple(sorted(m.classes))): m for m in instance.sets}
        self._misfits = [(m.unit_type, Counter(m.classes)) for m in instance.sets if not m.fits]
        self._known: dict[tuple[str, tuple[str, ...]], SetOutcome] = {}

    def of(self, unit_type: str, classes: tuple[str, ...]) -> SetOutcome:
        """Outcome of jobs of these classes on one unit, every class of which can run there."""
        if (unit_type, classes) not in self._known:
            self._known[unit_type, classes] = self._find(unit_type, classes)
        return self._known[unit_type, classes]

    def _find(self, unit_type: str, classes: tuple[str, ...]) -> SetOutcome:
        unit = self.types[unit_type]
        alone = [self.alone[name][unit_type] for name in classes]
        load_pct = fsum(a.utilisation_pct for a in alone)
        memory_pct = fsum(a.memory_pct for a in alone)
        measured = self._measured.get((unit_type, tuple(sorted(classes))))
        if len(classes) == 1:
            first = alone[0]
            power_w = self._law_w(unit, load_pct) if first.power_w is None else first.power_w
            outcome = SetOutcome([first.epoch_s], power_w, load_pct, memory_pct)
        elif measured is not None and measured.fits:
            outcome = self._as_measured(unit, measured, classes, alone)
        else:
            law = self._instance.slowdown
            load = load_pct / 100
            slowdown = max(load, 1 + (len(classes) - 1) * (law.per_job + law.per_load * load**law.exponent))
            epochs = [a.epoch_s * slowdown for a in alone]
            outcome = SetOutcome(epochs, self._law_w(unit, load_pct), min(load_pct, 100.0), memory_pct)
        why = self._why_refused(unit_type, classes, measured, outcome)
        return SetOutcome(outcome.epoch_s, outcome.power_w, outcome.utilisation_pct, outcome.memory_pct, why)

    def _as_measured(
        self, unit: UnitType, measured: MeasuredSet, classes: tuple[str, ...], alone: list[Alone]
    ) -> SetOutcome:
        slowdown = dict(zip(measured.classes, measured.slowdown, strict=True))
        utilisation_pct = measured.utilisation_pct
        if utilisation_pct is None:
            utilisation_pct = min(fsum(a.utilisation_pct for a in alone), 100.0)
        memory_pct = measured.memory_pct
        return SetOutcome(
            [a.epoch_s * slowdown[name] for a, name in zip(alone, classes, strict=True)],
            self._law_w(unit, utilisation_pct) if measured.power_w is None else measured.power_w,
            utilisation_pct,
            fsum(a.memory_pct for a in alone) if memory_pct is None else memory_pct,
        )

    def _law_w(self, unit: UnitType, utilisation_pct: float) -> float:
        share = min(utilisation_pct / 100, 1.0)
        rise: float = share**unit.power_exponent
        return unit.idle_power_w + (unit.full_power_w - unit.idle_power_w) * rise

    def _why_refused(
        self, unit_type: str, classes: tuple[str, ...], measured: MeasuredSet | None, outcome: SetOutcome
    ) -> str:
        limits, counts = self._instance.limits, Counter(classes)
        if len(classes) > limits.jobs_per_set:
            return f"has {len(classes)} jobs, limits.jobs_per_set is {limits.jobs_per_set}"
        if len(classes) > 1 and measured is None and self._instance.unmeasured == "refuse":
            return f"was not measured: {', '.join(sorted(classes))}"
        for name, misfit in self._misfits:
            if name == unit_type and misfit <= counts:
                return f"was measured not to fit: {', '.join(sorted(misfit.elements()))}"
        if outcome.utilisation_pct > limits.utilisation_pct * (1 + TOLERANCE):
            used, most = outcome.utilisation_pct, limits.utilisation_pct
            return f"has a utilisation of {used:.9g} %, limits.utilisation_pct is {most:g}"
        if outcome.memory_pct > limits.memory_pct * (1 + TOLERANCE):
            return (
                f"needs {outcome.memory_pct:.9g} % of the memory, limits.memory_pct is {limits.memory_pct:g}"
            )
        return ""
