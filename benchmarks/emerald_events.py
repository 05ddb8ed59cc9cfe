"""The jobs, limits and measured watts of the three events that `emerald.py` plans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from benchmarks.harness import data
from wattsched.topology.arrays import FloatArray, IntArray

FOLDER = "emerald-2025"
MINUTES, SLOTS, SLOT_S, RAMP_S, RESTART_S = 400, 20, 1200.0, 900.0, 120.0
SHORTEST_S = 30.0
"""Seconds of the slots into which ramps are split."""
HORIZON_S = 60.0 * MINUTES
IDLE_W, GPUS_PER_NODE = 50.0, 8
PAUSED, HALVED = 6, 7
"""States of a job after its six power limits."""


@dataclass(frozen=True)
class Job:
    """A job by its states, six power limits, paused and halved: rate, watts and GPUs of each."""

    name: str
    flexibility: float
    limit_w: FloatArray
    rate: FloatArray
    watts: FloatArray
    gpus: IntArray


@dataclass(frozen=True)
class Event:
    """Jobs, limits as (first minute, last minute, share of the baseline), and watts measured by minute."""

    name: str
    start: str
    jobs: list[Job]
    limits: list[tuple[float, float, float]]
    measured_w: FloatArray
    published: str = "no"

    @property
    def flexibility(self) -> FloatArray:
        """Least performance that the class of each job allows."""
        return np.array([job.flexibility for job in self.jobs])

    @property
    def weights(self) -> FloatArray:
        """Share of each job in the weighted performance, which the demonstration takes from its class."""
        return np.asarray(self.flexibility / self.flexibility.sum())

    @property
    def baseline_w(self) -> float:
        """Draw of all jobs at 400 W."""
        return float(sum(job.watts[PAUSED - 1] for job in self.jobs))

    def share(self, time_s: ArrayLike) -> FloatArray:
        """Part of the baseline that may be drawn at each second."""
        lines = [
            np.interp(time_s, [60 * a, 60 * a + RAMP_S, 60 * b, 60 * b + RAMP_S], [1, share, share, 1])
            for a, b, share in self.limits
        ]
        return np.asarray(np.min(lines, axis=0))


def values(jobs: list[Job], field: str, states: IntArray) -> FloatArray:
    """Rate, watts or GPUs of each job in each slot, by its states."""
    return np.stack([getattr(job, field)[row] for job, row in zip(jobs, states, strict=True)])


def read(name: str) -> pd.DataFrame:
    """A file of the demonstration."""
    return pd.read_csv(data(FOLDER) / name)


def job(name: str, flexibility: float, gpus: int | None = None) -> Job:
    """A job with the rates and watts of its workload, scaled to its GPUs."""
    sweep = read("dvfs_sweep.csv")
    rows = sweep[sweep.Workload == name.rpartition("-")[0]].sort_values("GPU power cap")
    one_w, rate = rows["power per GPU"].to_numpy(), rows["normalized throughput"].to_numpy()
    gpus = gpus or round(float(rows["total GPU power"].iloc[-1] / one_w[-1]))
    half_w = (one_w[-1] + IDLE_W) / 2
    return Job(
        name,
        flexibility,
        rows["GPU power cap"].to_numpy(dtype=float),
        np.append(rate, [0.0, 0.5]),
        gpus * np.append(one_w, [IDLE_W, half_w]),
        np.array([gpus] * 6 + [0, gpus // 2]),
    )


def aps_minutes() -> tuple[pd.DataFrame, dict[str, int]]:
    """Watts of each job and in total by minute of 1 May; GPUs of each, in whole nodes, by its first hour."""
    minutes = read("APS_job_power.csv").drop(columns="timestamp")
    gpus = {}
    for name in minutes.columns[:-1]:
        alone = job(name, 1.0)
        one_w = alone.watts[PAUSED - 1] / alone.gpus[PAUSED - 1]
        gpus[name] = GPUS_PER_NODE * round(minutes[name][:60].mean() / one_w / GPUS_PER_NODE)
    return minutes, gpus


def events() -> list[Event]:
    """The three events; where something is not published, the page of the table says what is taken."""
    classes = read("SRP_performance.csv").dropna(subset=["Flex Bucket"])
    srp_jobs = [job(n.strip(), f) for n, f in zip(classes.Model, classes.Flexibility, strict=True)]
    performance = float((classes.Performance * classes["Weight based on bucket"]).sum())
    aps, gpus = aps_minutes()
    aps_jobs = [job(name, (0.9, 0.75, 0.5)[n % 3], gpus[name]) for n, name in enumerate(gpus)]
    caiso_w = read("CAISOexp_totalpower_cleaned.csv").total.to_numpy()
    shares = [
        1 - np.ceil(100 * (1 - np.median(caiso_w[a:b]) / np.median(caiso_w[:60]))) / 100
        for a, b in ((75, 225), (245, 360))
    ]
    return [
        Event("SRP, 3 May", "2025-05-03T14:40-07:00", srp_jobs, [(80, 275, 0.75)],
              read("SRP_total_power.csv").total.to_numpy(), f"{performance:.4f}"),
        Event("APS, 1 May", "2025-05-01T16:10-07:00", aps_jobs, [(95, 290, 0.75)],
              aps["total (W)"].to_numpy()),
        Event("CAISO, 2 May", "2025-05-02T14:00-07:00", srp_jobs,
              [(60, 365, shares[0]), (225, 365, shares[1])], caiso_w[:MINUTES]),
    ]  # fmt: skip
