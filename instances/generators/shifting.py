"""The `shifting` family: a day or more of jobs on A100 and V100 GPUs under a forecast of carbon intensity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wattsched.instances.clusters import known_gpu_type
from wattsched.instances.errors import require_range
from wattsched.instances.generators.kinds import Choices, best_rates, jobs_of_kinds, requested_gpus
from wattsched.instances.shifting.instance import GpuPool, HorizonBudgets, ShiftingInstance, ShiftingJob
from wattsched.instances.signals import read_signal
from wattsched.instances.sizing.job import Job
from wattsched.instances.traces.carbon import CarbonTrace, read_carbon, start_time
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.reading.inputs import naming, notice
from wattsched.topology.arrays import IntArray

GPU_COUNTS = (1, 2, 4, 8, 16)
MOST_KINDS = 24
TYPES = {"A100": (1.0, (1005, 1410)), "V100": (0.45, (1110, 1530))}
"""GPU type to its speed against an A100 (assumed, near published training throughputs) and its clocks."""
A100_SHARE = 0.6
LOAD = 0.6
"""Share of the horizon that the GPUs would be busy for if the jobs ran as their users ask."""
LEAST_GPUS = 8
RESTART_S = (30.0, 120.0, 600.0)
DEADLINE_SHARE = 0.1


def shifting_horizon(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    slots: int = 48,
    slot_s: float = 3600.0,
    carbon: str | Path | None = None,
    zone: str | None = None,
    start: str | None = None,
    tariff: str | Path | None = None,
    signal: str | Path | None = None,
    shortest_slot_s: float | None = None,
    carbon_fraction: float | None = 0.5,
    completion_factor: float | None = None,
) -> ShiftingInstance:
    """Jobs that arrive over the first half of a horizon, with up to 10 options on each of two GPU types.

    Parameters
    ----------
    gpus : int, optional
        GPUs of both types, two at least (default: as many as the jobs, run as asked for, would keep busy 60 %
        of the time).
    slots : int
        Slots of the horizon.
    slot_s : float
        Length of a slot in seconds.
    carbon : str or Path, optional
        CSV file of carbon intensities (default: made-up days with a dip at noon).
    zone : str, optional
        Column of that file and of `tariff`; of one that has a single column, this.
    start : str, optional
        Time in the files at which the horizon begins, UTC unless it has a zone (default: their first).
    tariff : str or Path, optional
        CSV file of prices of energy (default: none).
    signal : str or Path, optional
        Signal of limits on the draw over time (default: none).
    shortest_slot_s : float, optional
        Slots are split where the limits of the signal change, in ramps into slots about as short as this in
        seconds (default: not at all).
    carbon_fraction : float, optional
        Carbon budget between the least that the jobs can emit (0) and what they emit at their fastest (1);
        left out with a completion factor.
    completion_factor : float, optional
        Bound on the average completion time, as a multiple of that at their fastest, and the objective
        `carbon` in place of a carbon budget.

    Raises
    ------
    ValueError
        For an option out of range, or a file that does not have what the horizon needs.
    """
    require_range(2 <= slots <= 10_000, "slots", "from 2 to 10,000", slots)
    within = f"above {RESTART_S[-1]:g} and at most 86,400"
    require_range(RESTART_S[-1] < slot_s <= 86_400, "slot_s", within, f"{slot_s:g}")
    if carbon_fraction is not None:
        require_range(0 <= carbon_fraction <= 1, "carbon_fraction", "from 0 to 1", f"{carbon_fraction:g}")
    if completion_factor is not None:
        require_range(completion_factor >= 1, "completion_factor", "at least 1", f"{completion_factor:g}")
    files = {name: file for name, file in (("carbon", carbon), ("tariff", tariff)) if file is not None}
    if not files and zone is not None:
        raise ValueError(f"zone: '{zone}' is a column of a file, but neither 'carbon' nor 'tariff' names one")
    if not files and signal is None and start is not None:
        told = "is a time in a file, but none of 'carbon', 'tariff', 'signal' names one"
        raise ValueError(f"start: '{start}' {told}")
    if signal is not None and start is None:
        raise ValueError(
            "start: the limits of a signal have dates, and nothing tells when the horizon begins"
        )
    if signal is None and shortest_slot_s is not None:
        raise ValueError("shortest_slot_s: slots are split where a signal changes, and none is given")
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=GPU_COUNTS[-1])
    choices = [
        Choices(name, known_gpu_type(name), GPU_COUNTS, clocks, (128,), speed)
        for name, (speed, clocks) in TYPES.items()
    ]
    tables, drawn = jobs_of_kinds(rng, wanted, choices, MOST_KINDS)
    traces = {name: _read(name, file, zone, may_lack=len(files) > 1) for name, file in files.items()}
    if start is None and len({trace.begin for trace in traces.values()}) > 1:
        told = "'carbon' and 'tariff' begin at different times, and nothing tells when the horizon does"
        raise ValueError(f"start: {told}")
    if len({trace.zoned for trace in traces.values()}) > 1:
        local = next(trace for trace in traces.values() if not trace.zoned)
        notice(f"{local.source}: assumed: its times have no zone and are UTC")
    if carbon is None and (tariff is not None or signal is not None):
        told = "carbon intensities are made up, days with a dip at noon, as no file of `carbon` is given"
        notice(f"assumed: {told}")
    forecasts = {name: _forecast(trace, start, slots, slot_s) for name, trace in traces.items()}
    g_per_kwh = forecasts["carbon"] if "carbon" in traces else _made_up(rng, slots, slot_s)
    price, currency = forecasts.get("tariff"), traces["tariff"].currency if "tariff" in traces else None
    restart_s = dict(zip(tables, rng.choice(RESTART_S, len(tables)).tolist(), strict=True))
    best = {name: best_rates(table) for name, table in tables.items()}
    instance = ShiftingInstance(
        problem="shifting",
        name=f"shifting-{jobs}-{seed}",
        slots=slots,
        slot_s=slot_s,
        carbon_g_per_kwh=g_per_kwh,
        price_per_kwh=price,
        currency=currency or None,
        pools=_pools(_demand(drawn, best, wanted, slots * slot_s) if gpus is None else gpus),
        tables=tables,
        jobs=[_job(rng, job, best, restart_s, slots, slot_s) for job in drawn],
    )
    limited = _with_budget(instance, carbon_fraction, completion_factor)
    if signal is not None and start is not None:
        caps, begin = read_signal(signal), start_time(start, str(signal))
        caps.require_limits(str(signal), begin.timestamp(), begin.timestamp() + instance.horizon_s)
        return limited.under(caps, begin, shortest_slot_s)
    return limited


def _with_budget(
    instance: ShiftingInstance, carbon_fraction: float | None, completion_factor: float | None
) -> ShiftingInstance:
    """The instance with a budget of completion or, without that factor, of carbon, or none."""
    fastest_s, least_g, most_g = _extremes(instance)
    if completion_factor is not None:
        budgets = HorizonBudgets(average_completion_s=completion_factor * fastest_s)
        return instance.model_copy(update={"objective": "carbon", "budgets": budgets})
    if carbon_fraction is None:
        return instance
    if most_g <= 0:
        raise ValueError("carbon: the intensities are 0 throughout the horizon, no budget of grams binds")
    budgets = HorizonBudgets(carbon_g=least_g + carbon_fraction * (most_g - least_g))
    return instance.model_copy(update={"budgets": budgets})


def _demand(
    jobs: Sequence[Job], best: dict[str, dict[int, float]], wanted: IntArray, horizon_s: float
) -> int:
    """GPUs that are busy for `LOAD` of the horizon when all jobs run on as many as are `wanted`."""
    busy_gpu_s = sum(
        count * job.remaining_work / best[str(job.options)][count]
        for job, count in zip(jobs, wanted.tolist(), strict=True)
    )
    return max(LEAST_GPUS, int(busy_gpu_s / (LOAD * horizon_s)))


def _pools(gpus: int) -> dict[str, GpuPool]:
    """Pools of so many GPUs, most of them A100."""
    total = max(gpus, 2)
    a100 = max(1, min(total - 1, round(A100_SHARE * total)))
    counts = dict(zip(TYPES, (a100, total - a100), strict=True))
    return {n: GpuPool(gpus=c, idle_power_w=known_gpu_type(n).idle_power_w) for n, c in counts.items()}


def _read(option: str, file: str | Path, zone: str | None, *, may_lack: bool) -> CarbonTrace:
    if not file:
        raise ValueError(f"{option}: the file name is empty")
    return read_carbon(file, zone, "money" if option == "tariff" else "carbon", may_lack=may_lack)


def _forecast(trace: CarbonTrace, start: str | None, slots: int, slot_s: float) -> list[float]:
    """Forecast of a file in so many slots from a time on."""
    with naming("start"):
        begin = trace.moment(start) if start is not None else trace.begin
    return trace.slots(begin, slots, slot_s)


def _made_up(rng: np.random.Generator, slots: int, slot_s: float) -> list[float]:
    """Forecast in g/kWh of days with a dip at noon."""
    hour = (np.arange(slots) + 0.5) * slot_s / S_PER_H % 24
    dip = np.exp(-(((hour - 12.5) / 3.5) ** 2))
    drift = np.cumsum(rng.normal(0.0, 6.0, slots))
    return [float(v) for v in np.round(np.clip(330.0 - 190.0 * dip + drift, 20.0, None), 1)]


def _job(
    rng: np.random.Generator,
    job: Job,
    best: dict[str, dict[int, float]],
    restart_s: dict[str, float],
    slots: int,
    slot_s: float,
) -> ShiftingJob:
    """Half of the jobs are there at first, a tenth has a deadline; rates and `restart_s` are by table."""
    arrives, slot = rng.random() < 0.5, int(rng.integers(1, max(2, slots // 2)))
    arrival_s = slot * slot_s if arrives else 0.0
    has_deadline, slack = rng.random() < DEADLINE_SHARE, float(rng.uniform(0.5, 1.0))
    fastest_s = job.remaining_work / max(best[str(job.options)].values())
    return ShiftingJob(
        name=job.name,
        weight=job.weight,
        options=str(job.options),
        remaining_work=job.remaining_work,
        arrival_s=arrival_s,
        deadline_s=round(arrival_s + 3 * fastest_s + slack * slots * slot_s, 1) if has_deadline else None,
        restart_s=restart_s[str(job.options)],
    )


def _extremes(instance: ShiftingInstance) -> tuple[float, float, float]:
    """Average completion at the jobs' fastest, and grams at their thriftiest and at their fastest.

    GPUs are taken to be unlimited, the thriftiest to run in the cleanest slots alone, and the fastest at the
    forecast's average.
    """
    g = np.array(instance.carbon_g_per_kwh) / J_PER_KWH
    idle_w = sum(p.gpus * p.idle_power_w for p in instance.pools.values())
    idle_g = idle_w * instance.horizon_s * g.mean()
    weights, seconds, least, most = 0.0, 0.0, float(idle_g), float(idle_g)
    clean = float(np.quantile(g, 0.15))
    for job in instance.jobs:
        table = instance.table_of(job)
        pools = [instance.pools[pool] for pool in table.pool]
        rows = [i for i, pool in enumerate(pools) if table.gpus[i] <= pool.gpus]
        rate, watts = np.array(table.rate)[rows], np.array(table.power_w)[rows]
        extra = watts - np.array([table.gpus[i] * pools[i].idle_power_w for i in rows])
        fastest = int(np.argmax(rate))
        weights += job.weight
        seconds += job.weight * job.remaining_work / rate[fastest]
        least += float(job.remaining_work * (extra / rate).min()) * clean
        most += float(job.remaining_work * extra[fastest] / rate[fastest] * g.mean())
    return float(seconds / weights), least, most
