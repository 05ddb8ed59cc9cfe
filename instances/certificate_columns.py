"""Configurations and jobs of a round as arrays, for the proof of a certificate in double precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.certificate_tariff import BOTTLENECK, Tariff
from wattsched.instances.checker_flow import squared_values
from wattsched.instances.checker_menu import Configuration, Menu, Menus, block_of
from wattsched.instances.instance import Instance

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Configurations of all menus, one menu after the other; arrays of shape (n_rows,) but for `start`.

    `watts` and `watts_size` are what a row pays for watts above idle and for being in a set, and the size of
    that; `room` what it pays for its block. `place` is a number for pool, GPU count and batch size together.
    Rows that are not `alone` are a job's in sets.
    """

    start: IntArray
    unit_s: FloatArray
    power_w: FloatArray
    idle_w: FloatArray
    room: FloatArray
    watts: FloatArray
    watts_size: FloatArray
    place: IntArray
    alone: BoolArray


@dataclass(frozen=True)
class Jobs:
    """What is asked of each job; arrays of shape (n_jobs,). `held` is a number of `Rows.place`, or -1.

    `value` is what a second of its work is worth for the objective `flow`; for others its weight.
    """

    menu: IntArray
    work: FloatArray
    weight: FloatArray
    value: FloatArray
    share: FloatArray
    deadline_s: FloatArray
    restart_s: FloatArray
    running: BoolArray
    held: IntArray
    kept: BoolArray
    can_wait: BoolArray
    best_s: FloatArray
    reference_s: FloatArray


class Offered(NamedTuple):
    """What jobs may run as: a menu that equal jobs share, or one job's with what it may run as in sets."""

    menu: Menu
    in_sets: list[Configuration]
    job: str

    @property
    def rows(self) -> list[Configuration]:
        """All of it."""
        return [*self.menu.listed, *self.in_sets]


def columns_of(instance: Instance, menus: Menus, tariff: Tariff) -> tuple[Rows, Jobs]:
    """Rows of every menu in use, and the jobs that choose from them."""
    numbered: dict[Hashable, int] = {}
    used: list[Offered] = []
    for job in instance.jobs:
        menu, in_sets = menus.of(job), menus.in_sets(job.name)
        key = job.name if in_sets else id(menu)
        if numbered.setdefault(key, len(used)) == len(used):
            used.append(Offered(menu, in_sets, job.name if in_sets else ""))
    places: dict[tuple[object, ...], int] = {}
    rows = _rows(instance, menus, tariff, used, places)
    return rows, _jobs(instance, menus, tariff, used, numbered, places)


def _rows(
    instance: Instance,
    menus: Menus,
    tariff: Tariff,
    used: list[Offered],
    places: dict[tuple[object, ...], int],
) -> Rows:
    listed = [row for offered in used for row in offered.rows]
    members = np.array([row.members for row in listed], dtype=float)
    types = instance.cluster.gpu_types
    idle_w = {name: types[place.gpu_type].idle_power_w for name, place in menus.places.items()}
    watt = {name: float(tariff.watt[name]) for name in menus.places}
    room = {name: {s: float(p) for s, p in by_size.items()} for name, by_size in tariff.room.items()}
    pools = [row.setting[0] for row in listed]
    gpus = np.array([row.setting[1] for row in listed], dtype=float)
    power = np.array([row.power_w for row in listed], dtype=float) / members
    idle = np.array([idle_w[pool] for pool in pools], dtype=float) * gpus / members
    price = np.array([watt[pool] for pool in pools], dtype=float)
    link = np.array(list(_links(tariff, used)), dtype=float)
    configurations = ((row.setting[0], row.setting[1], row.setting[4]) for row in listed)
    return Rows(
        start=np.concatenate([[0], np.cumsum([len(offered.rows) for offered in used])]).astype(np.int64),
        unit_s=np.array(
            [1.0 / row.rate if row.unit_s is None else row.unit_s for row in listed], dtype=float
        ),
        power_w=power,
        idle_w=idle,
        room=np.array(
            [room[row.setting[0]][block_of(row.setting[1])] if row.leads else 0.0 for row in listed],
            dtype=float,
        ),
        watts=price * (power - idle) + link,
        watts_size=price * (power + idle) + np.abs(link),
        alone=np.array([row.set is None for row in listed], dtype=bool),
        place=np.array([places.setdefault(c, len(places)) for c in configurations], dtype=np.int64),
    )


def _links(tariff: Tariff, used: list[Offered]) -> Iterator[float]:
    for offered in used:
        yield from itertools.repeat(0.0, len(offered.menu.listed))
        for row in offered.in_sets:
            assert row.set is not None
            yield float(tariff.share[row.set, row.setting[0], offered.job])


def _jobs(
    instance: Instance,
    menus: Menus,
    tariff: Tariff,
    used: list[Offered],
    numbered: dict[Hashable, int],
    places: dict[tuple[object, ...], int],
) -> Jobs:
    jobs = instance.jobs
    bottleneck = instance.objective in BOTTLENECK
    keys = (job.name if menus.in_sets(job.name) else id(menus.of(job)) for job in jobs)
    menu = np.array([numbered[key] for key in keys], dtype=np.int64)
    work = np.array([job.remaining_work for job in jobs], dtype=float)
    running = np.array([job.current is not None for job in jobs], dtype=bool)
    restart_s = np.where(running, [job.restart_s for job in jobs], 0.0)
    held = [
        -1 if c is None else places.get((c.pool, c.gpus, c.batch_size), -1) for c in (j.current for j in jobs)
    ]
    extremes = [_extremes(offered.menu) for offered in used]
    best, reference = (np.array(part, dtype=float) for part in zip(*extremes, strict=True))
    weight = np.array([job.weight for job in jobs], dtype=float)
    value = weight
    if instance.objective == "flow":
        squares = squared_values((job, menus.of(job).reference_rate) for job in jobs)
        value = np.sqrt([float(squares[job.name]) for job in jobs])
    return Jobs(
        menu=menu,
        work=work,
        weight=weight,
        value=value,
        share=np.array([float(tariff.worst[job.name]) if bottleneck else 1.0 for job in jobs], dtype=float),
        deadline_s=np.array([math.inf if job.deadline_s is None else job.deadline_s for job in jobs]),
        restart_s=restart_s,
        running=running,
        held=np.array(held, dtype=np.int64),
        kept=np.array([not job.preemptible for job in jobs], dtype=bool),
        can_wait=np.array([job.can_wait and job.preemptible for job in jobs], dtype=bool),
        best_s=work * best[menu] + restart_s,
        reference_s=reference[menu],
    )


def _unit_s(row: Configuration) -> float:
    return 1.0 / row.rate if row.unit_s is None else row.unit_s


def _extremes(menu: Menu) -> tuple[float, float]:
    """Seconds per unit of work at best, and at best with the fewest GPUs."""
    unit_s = list(map(_unit_s, menu.listed))
    fewest = min(row.setting[1] for row in menu.listed)
    few = [s for s, row in zip(unit_s, menu.listed, strict=True) if row.setting[1] == fewest]
    return min(unit_s), min(few)
