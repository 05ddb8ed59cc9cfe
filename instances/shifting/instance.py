"""The instance of a shifting problem: slots of a horizon, forecasts, pools of GPUs, jobs, budgets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from wattsched.instances.errors import duplicates, refuse, require, require_known, require_range
from wattsched.instances.shifting.forecasts import (
    SCENARIO_FIELDS,
    BySlot,
    Scenario,
    by_slot,
    scenario_faults,
)
from wattsched.instances.signals import Signal
from wattsched.instances.sizing.instance import FORMAT, Budget
from wattsched.instances.sizing.job import Options, OptionTable, Weight, also_rows, by_column
from wattsched.instances.traces.carbon import start_time
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import LARGEST, Count, Name, NonNegative, Positive, Price, Strict

MOST_SLOTS = 10_000
SECONDS_RANGE = (1e-6, 1e12)
"""Seconds that a job may take at its fastest: beyond these its times get lost in rounding."""

OBJECTIVES: dict[str, Literal["min", "max"]] = dict.fromkeys(
    ("mean-completion", "carbon", "energy", "money"), "min"
)
"""Objectives and their sense; `checker` says what each one is."""


class GpuPool(Strict):
    """Equal GPUs; ``idle_power_w`` is the draw of one on which nothing runs."""

    gpus: Count
    idle_power_w: NonNegative = 0.0


class HorizonBudgets(Strict):
    """Upper limits over the horizon; None is no limit.

    Attributes
    ----------
    carbon_g, energy_j, money : float, optional
        What all GPUs draw, idle ones included, and what unfinished jobs draw after the horizon.
    average_completion_s : float, optional
        Weighted average of the jobs' completion times.
    """

    carbon_g: Budget | None = None
    energy_j: Budget | None = None
    money: Budget | None = None
    average_completion_s: Budget | None = None


class PoolsDomain(Strict):
    """Pools of which all GPUs together may draw no more than ``power_w`` at any moment."""

    pools: Annotated[list[Name], Field(min_length=1)]
    power_w: BySlot


class Held(Strict):
    """GPUs, pool and batch size that a running job holds when the horizon begins."""

    gpus: Count
    pool: Name
    batch_size: Count | None = None


class ShiftingJob(Strict):
    """A job with a table of configurations.

    Attributes
    ----------
    options : str or OptionTable
        Own table, a list of row objects, or the name of a table in ``ShiftingInstance.tables``; it must give
        rates.
    remaining_work : float
        In the unit of the rates.
    weight : float
        Weight of its completion time in the average.
    arrival_s : float
        Seconds after the beginning of the horizon; it runs from the first slot that begins then or later.
    deadline_s : float, optional
        Latest end, in seconds after the beginning of the horizon.
    must_finish : bool
        Whether it has to end within the horizon.
    least_progress : float
        Share of what it could do from its first slot to the end of the horizon, with the GPUs, pool and batch
        size that it holds, or at its fastest, that it has to do within the horizon, unless it ends.
    restart_s : float
        Seconds at the beginning of a slot in which its GPUs draw power but do no work, whenever it starts
        again: after a pause, or with another GPU count, pool or batch size. Its very first start is free. It
        cannot start again in a slot that is no longer than that.
    has_run : bool
        Whether it ran before the horizon, so that its next start is a restart.
    current : Held, optional
        What it holds when the horizon begins; it restarts unless its first slot keeps that.
    """

    name: Name
    options: Annotated[Options, Field(json_schema_extra=also_rows)]
    remaining_work: Positive
    weight: Weight = 1.0
    arrival_s: NonNegative = 0.0
    deadline_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    must_finish: bool = False
    least_progress: Annotated[float, Field(ge=0, le=1)] = 0.0
    restart_s: NonNegative = 0.0
    has_run: bool = False
    current: Held | None = None

    _by_column = field_validator("options", mode="before")(by_column)


class ShiftingInstance(Strict):
    """Jobs over the slots of a horizon, ready to be solved; ``docs/shifting.md`` has the model.

    Attributes
    ----------
    slots : int
        Number of slots.
    slot_s : float or list of float
        Seconds of every slot, or of each.
    carbon_g_per_kwh, price_per_kwh : list of float, optional
        Forecasts, one number per slot; more than that are left unread.
    currency : str, optional
        Of the prices and the budget of money, for reports.
    power_w : float or list of float, optional
        Cap on the draw of all GPUs, idle ones included: at any moment, or in each slot.
    power_domains : dict of str to PoolsDomain
        The same for the GPUs of some pools.
    scenarios : dict of str to Scenario, optional
        What may come true instead of the forecasts above; the expected objective is minimised.
    decided_slots : int, optional
        In so many first slots the plan is the same in all scenarios; later it may differ.
    """

    format: Literal["wattsched-instance/1"] = FORMAT
    name: Name = "instance"
    problem: Literal["shifting"]
    objective: Name = "mean-completion"
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)]
    slot_s: BySlot = 3600.0
    carbon_g_per_kwh: list[NonNegative] | None = None
    price_per_kwh: list[Price] | None = None
    currency: Name | None = None
    power_w: BySlot | None = None
    power_domains: dict[Name, PoolsDomain] = Field(default_factory=dict)
    scenarios: Annotated[dict[Name, Scenario], Field(min_length=1)] | None = None
    decided_slots: Annotated[int, Field(ge=0)] | None = None
    budgets: HorizonBudgets = HorizonBudgets()
    pools: Annotated[dict[Name, GpuPool], Field(min_length=1)]
    tables: dict[Name, OptionTable] = Field(default_factory=dict)
    jobs: list[ShiftingJob]

    @model_validator(mode="after")
    def _series_reach(self) -> Self:
        """Refuse a series with fewer numbers than the horizon has slots, and scenarios that are none."""
        refuse(scenario_faults(self.scenarios, self.decided_slots, self.slots))
        series = {field: getattr(self, field) for field in _SERIES}
        series |= {f"power_domains.{name}.power_w": one.power_w for name, one in self.power_domains.items()}
        refuse(
            f"{field} has {len(values)} numbers but the horizon has {self.slots} slots"
            for field, values in series.items()
            if isinstance(values, list) and len(values) < self.slots
        )
        return self

    @property
    def lengths_s(self) -> FloatArray:
        """Seconds of each slot, shape (slots,)."""
        return by_slot(self.slot_s, self.slots)

    @property
    def begin_s(self) -> FloatArray:
        """Seconds from the horizon's begin to that of each slot and, last, to its end, shape (slots + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.lengths_s)])

    @property
    def horizon_s(self) -> float:
        """Seconds of the horizon."""
        return float(self.begin_s[-1])

    def split(
        self,
        signals: Signal | Sequence[Signal],
        start: str | datetime,
        shortest_slot_s: float,
        times_s: Iterable[float] = (),
    ) -> ShiftingInstance:
        """Return the instance with slots split at some moments, and where a firm limit of a signal changes.

        In ramps, slots become about as short as the shortest. Forecasts and caps repeat.

        Parameters
        ----------
        start : str or datetime
            When the horizon begins, for signals; with a zone.
        shortest_slot_s : float
            No part of a slot is shorter; refused where a horizon could have too many of them.
        times_s : iterable of float
            Moments in seconds from the horizon's begin.
        """
        self._require_one_forecast()
        require("shortest_slot_s", shortest_slot_s, (int, float), "a number of seconds")
        least_s = self.horizon_s / max(1, MOST_SLOTS - self.slots)
        within = f"a number from {least_s:.6g} on, as a horizon has at most {MOST_SLOTS:,} slots"
        told = f"{within} and this one has {self.slots:,}"
        require_range(least_s <= shortest_slot_s < math.inf, "shortest_slot_s", told, shortest_slot_s)
        edges_s = _with_cuts(self.begin_s, sorted(times_s), shortest_slot_s)
        for signal in [signals] if isinstance(signals, Signal) else signals:
            begin_s, limits = start_time(start).timestamp(), [signal.limit(one) for one in signal.domains]
            changes_s = np.unique([time_s - begin_s for o in limits for time_s in (*o.begin_s, *o.end_s)])
            fine_s = _parts(_with_cuts(edges_s, changes_s, shortest_slot_s), shortest_slot_s)
            for one in limits:
                watts = one.least(begin_s + fine_s[:-1], begin_s + fine_s[1:])
                edges_s = np.union1d(edges_s, fine_s[1:-1][watts[1:] != watts[:-1]])
        return self._cut_at(edges_s)

    def _cut_at(self, edges_s: FloatArray) -> ShiftingInstance:
        """The instance with other edges of slots, those that it has among them; its series repeat."""
        source = (np.searchsorted(self.begin_s, edges_s[:-1], side="right") - 1).tolist()

        def repeated(values: BySlot | None) -> BySlot | None:
            return [values[slot] for slot in source] if isinstance(values, list) else values

        changed: dict[str, Any] = {field: repeated(getattr(self, field)) for field in _SERIES}
        changed |= {"slots": len(source), "slot_s": np.diff(edges_s).tolist()}
        changed["power_domains"] = {
            name: one.model_copy(update={"power_w": repeated(one.power_w)})
            for name, one in self.power_domains.items()
        }
        return self.model_copy(update=changed)

    def under(
        self, signal: Signal, start: str | datetime, shortest_slot_s: float | None = None
    ) -> ShiftingInstance:
        """Return the instance with the caps of a signal beside its own, by slot.

        Parameters
        ----------
        start : str or datetime
            When the horizon begins, with a zone.
        shortest_slot_s : float, optional
            Slots are split as by `split`, so that the caps follow the signal; None leaves them as they are.

        Raises
        ------
        ValueError
            For a domain that the instance does not have, and a time without a zone.
        """
        if shortest_slot_s is not None:
            return self.split(signal, start, shortest_slot_s).under(signal, start)
        edges_s = start_time(start).timestamp() + self.begin_s
        least = {d: signal.limit(d).least(edges_s[:-1], edges_s[1:]) for d in signal.domains}
        for strange in least.keys() - {None, *self.power_domains}:
            require_known("signal: power domain", strange or "", self.power_domains)
        domains = {
            name: one.model_copy(update={"power_w": _lower(one.power_w, least[name])})
            if name in least
            else one
            for name, one in self.power_domains.items()
        }
        site = self if None not in least or np.isinf(least[None]).all() else self.capped(least[None])
        return site.model_copy(update={"power_domains": domains})

    def capped(self, limit_w: FloatArray) -> ShiftingInstance:
        """Return the instance with a limit on the watts of all GPUs in each slot, beside its own cap."""
        self._require_one_forecast()
        return self.model_copy(update={"power_w": _lower(self.power_w, limit_w)})

    def _require_one_forecast(self) -> None:
        if self.scenarios is not None:
            told = "split its slots and lower its caps in each scenario by itself"
            raise ValueError(f"scenarios: the instance has {len(self.scenarios)} of them; {told}")

    def in_scenario(self, name: str) -> ShiftingInstance:
        """Return the instance of one scenario alone, as if it were known."""
        known = {} if self.scenarios is None else self.scenarios
        require_known("scenario", name, known)
        given = {
            field: value for field in SCENARIO_FIELDS if (value := getattr(known[name], field)) is not None
        }
        return self.model_copy(update={**given, "scenarios": None, "decided_slots": None})

    def expected(self) -> ShiftingInstance:
        """Return the instance of the mean forecasts of all scenarios, under the lowest of their caps."""
        if self.scenarios is None:
            return self
        cases = [self.in_scenario(name) for name in self.scenarios]
        probability = [one.probability for one in self.scenarios.values()]
        changed: dict[str, Any] = {"scenarios": None, "decided_slots": None}
        for field in ("carbon_g_per_kwh", "price_per_kwh"):
            lines = [line[: self.slots] for case in cases if (line := getattr(case, field)) is not None]
            changed[field] = (probability @ np.array(lines)).tolist() if len(lines) == len(cases) else None
        if caps := [by_slot(case.power_w, self.slots) for case in cases if case.power_w is not None]:
            changed["power_w"] = np.min(caps, axis=0).tolist()
        return self.model_copy(update=changed)

    def table_of(self, job: ShiftingJob) -> OptionTable:
        """Table of a job; KeyError if it names an unknown one."""
        return self.tables[job.options] if isinstance(job.options, str) else job.options


_SERIES = ("slot_s", "carbon_g_per_kwh", "price_per_kwh", "power_w")
"""Fields that may have a number per slot."""
_ROUNDING = 1e-9


def _with_cuts(edges_s: FloatArray, cuts_s: Iterable[float], shortest_s: float) -> FloatArray:
    """Edges of slots, and the cuts between them that leave no slot shorter than so many seconds."""
    for cut_s in cuts_s:
        at = int(np.searchsorted(edges_s, cut_s))
        around_s = np.abs(edges_s[max(0, at - 1) : at + 1] - cut_s)
        if 0 < at < len(edges_s) and around_s.min() >= shortest_s * (1 - _ROUNDING):
            edges_s = np.insert(edges_s, at, cut_s)
    return edges_s


def _parts(edges_s: FloatArray, shortest_s: float) -> FloatArray:
    """Edges of as many equal parts of every slot as are no shorter than so many seconds."""
    counts = np.maximum(np.diff(edges_s) * (1 + _ROUNDING) // shortest_s, 1).astype(np.int64)
    spans = zip(edges_s[:-1], edges_s[1:], counts, strict=True)
    inner = [np.linspace(begin, end, count, endpoint=False) for begin, end, count in spans]
    return np.append(np.concatenate(inner), edges_s[-1])


def _lower(power_w: BySlot | None, limit_w: FloatArray) -> list[float]:
    """The lower of a cap and a limit in each slot; the largest number stands for none."""
    return [float(w) for w in np.minimum(limit_w, by_slot(power_w or LARGEST, len(limit_w)))]


def faults_of(instance: ShiftingInstance) -> list[str]:
    """Faults of an instance, one readable line each; none for an instance that can be solved.

    Budgets and deadlines that cannot be met are no faults, but a deadline that is past when the job arrives
    is one.
    """
    return [
        *_of_scenarios(instance),
        *_of_tables(instance),
        *duplicates("job name", instance.jobs),
        *(f"job '{job.name}': {fault}" for job in instance.jobs for fault in _of_job(instance, job)),
        *_of_slots(instance),
        *_of_pools(instance),
    ]


def _of_scenarios(instance: ShiftingInstance) -> Iterator[str]:
    """Faults of the scenarios, and forecasts that are needed and not there, in a scenario or at all."""
    yield from scenario_faults(instance.scenarios, instance.decided_slots, instance.slots)
    if instance.scenarios is None:
        yield from _of_needs(instance)
    for name in instance.scenarios or ():
        yield from (f"scenarios.{name}: {fault}" for fault in _of_needs(instance.in_scenario(name)))


def _of_needs(instance: ShiftingInstance) -> Iterator[str]:
    """Forecasts that the objective or a budget needs, and that are not there."""
    for unit, forecast in (("carbon_g", "carbon_g_per_kwh"), ("money", "price_per_kwh")):
        if getattr(instance, forecast) is None and getattr(instance.budgets, unit) is not None:
            yield f"budgets.{unit} needs the forecast '{forecast}'"
        if getattr(instance, forecast) is None and instance.objective == unit.removesuffix("_g"):
            yield f"objective '{instance.objective}' needs the forecast '{forecast}'"


def _of_tables(instance: ShiftingInstance) -> Iterator[str]:
    """Tables without rows or rates, rows of unknown pools, or with fewer watts than idle GPUs."""
    tables = {f"table '{name}'": table for name, table in instance.tables.items()}
    own = {f"job '{j.name}'": j.options for j in instance.jobs if not isinstance(j.options, str)}
    for owner, table in (tables | own).items():
        if not table.gpus:
            yield f"{owner}: has no rows"
        if table.rate is None:
            yield f"{owner}: gives 'completion_s', but a job that pauses needs 'rate'"
        for row, (pool, gpus, power_w) in enumerate(zip(table.pool, table.gpus, table.power_w, strict=True)):
            if pool not in instance.pools:
                yield f"{owner}: row {row}: unknown pool '{pool}'; known: {', '.join(instance.pools)}"
            elif power_w < (idle_w := gpus * instance.pools[pool].idle_power_w):
                yield f"{owner}: row {row}: power_w {power_w:g} is less than the {idle_w:g} W of idle GPUs"


def _of_pools(instance: ShiftingInstance) -> Iterator[str]:
    """Pools of domains that are unknown, and of which running jobs hold more GPUs than there are."""
    for domain, one in instance.power_domains.items():
        for strange in sorted({*one.pools} - {*instance.pools}):
            known = ", ".join(instance.pools)
            yield f"power_domains.{domain}.pools: unknown pool '{strange}'; known: {known}"
    for name, pool in instance.pools.items():
        held = [job.current.gpus for job in instance.jobs if job.current and job.current.pool == name]
        if sum(held) > pool.gpus >= max(held, default=0):
            yield f"pool '{name}': the running jobs hold {sum(held)} GPUs, it has {pool.gpus}"


def _of_slots(instance: ShiftingInstance) -> Iterator[str]:
    """Jobs that arrive after the last slot has begun, or of which no slot has time for a restart."""
    last_s, longest_s = float(instance.begin_s[-2]), float(instance.lengths_s.max())
    for job in instance.jobs:
        if job.arrival_s * (1 - _ROUNDING) > last_s:
            told = f"leaves no slot of the horizon, the last one begins at {last_s:g}"
            yield f"job '{job.name}': arrival_s {job.arrival_s:g} {told}"
        if job.restart_s >= longest_s:
            told = f"leaves nothing of a slot of {longest_s:g} s"
            yield f"job '{job.name}': restart_s {job.restart_s:g} {told}"


def _of_job(instance: ShiftingInstance, job: ShiftingJob) -> Iterator[str]:
    """Times of a job that contradict one another, bad holdings, and bad options."""
    if job.deadline_s is not None and job.deadline_s <= job.arrival_s:
        yield f"deadline_s {job.deadline_s:g} is past when it arrives, at {job.arrival_s:g}"
    if job.current is not None and job.arrival_s > 0:
        yield f"arrival_s {job.arrival_s:g} contradicts 'current', which says that it runs already"
    if (held := job.current) is not None:
        pool = instance.pools.get(held.pool)
        if pool is None:
            yield f"current.pool '{held.pool}' is unknown; known: {', '.join(instance.pools)}"
        elif held.gpus > pool.gpus:
            yield f"current.gpus {held.gpus} is more than pool '{held.pool}' has, {pool.gpus}"
    if isinstance(job.options, str) and job.options not in instance.tables:
        yield f"options names the unknown table '{job.options}'"
        return
    table = instance.table_of(job)
    if table.rate is None:
        return
    rates = [
        rate
        for rate, pool, gpus in zip(table.rate, table.pool, table.gpus, strict=True)
        if pool in instance.pools and gpus <= instance.pools[pool].gpus
    ]
    if not rates:
        yield "no option fits into its pool"
        return
    low, high = SECONDS_RANGE
    if not low <= (seconds := job.remaining_work / max(rates)) <= high:
        yield f"remaining_work {job.remaining_work:g} takes {seconds:g} s at best, out of {low:g} to {high:g}"
