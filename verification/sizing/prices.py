"""Row prices, turned into what they make an option pay: per GPU of its block, per watt and per joule."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.sizing.cluster import Place, free_gpus
from wattsched.verification.sizing.configurations import Menus
from wattsched.verification.sizing.outcomes import TOLERANCE

BOTTLENECK = ("makespan", "max-min")
"""Objectives in which the worst job counts."""


@dataclass(frozen=True)
class Row:
    """A row ``uses of the options <= limit - standing`` of the aggregated program; of a set ``= 0``.

    Attributes
    ----------
    kind : {"room", "power", "energy", "worst", "share"}
        What an option uses: its block, its watts or joules above idle; a job's value in the objective; or 1
        by the first job of a set and -1 by another.
    limit, standing : Fraction
        What there is, and what idle GPUs and nodes use of it whatever is decided.
    pools : tuple of str
        Pools whose jobs use the row, or the pool of the set.
    size : int
        Room: smallest block that counts.
    factor : Fraction
        Energy: use per joule (grams, for carbon).
    set : str
        Name of the set.
    jobs : tuple of str
        Its first job and the other one.
    """

    kind: Literal["room", "power", "energy", "worst", "share"]
    limit: Fraction
    standing: Fraction = Fraction(0)
    pools: tuple[str, ...] = ()
    size: int = 1
    factor: Fraction = Fraction(1)
    set: str = ""
    jobs: tuple[str, ...] = ()


@dataclass
class Tariff:
    """What options pay at given prices, in units of the cost that is minimised; only `share` can be negative.

    Attributes
    ----------
    room : dict of str to dict of int to Fraction
        By pool and block size: for the whole block.
    watt : dict of str to Fraction
        By pool: for a watt above idle.
    joule : Fraction
        For a joule, its carbon included.
    worst : dict of str to Fraction
        By job: its share in the bottleneck.
    share : dict of (str, str, str) to Fraction
        By set, pool and job: for being in the set.
    capacity : Fraction
        What all rows together are worth: price times what they leave for the jobs.
    terms : Fraction
        The same before idle uses are taken off: the size of the numbers that a bound is the sum of.
    leeway : Fraction
        What the checker's tolerance for budgets is worth at these prices.
    """

    room: dict[str, dict[int, Fraction]]
    watt: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    joule: Fraction = Fraction(0)
    worst: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    share: dict[tuple[str, str, str], Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    capacity: Fraction = Fraction(0)
    terms: Fraction = Fraction(0)
    leeway: Fraction = Fraction(0)


def rows_of(instance: Instance, menus: Menus) -> dict[str, Row]:
    """Rows of the aggregated program by name, also those that are implied by others."""
    places = menus.places
    rows = {}
    for pool, free in free_gpus(instance, places).items():
        for size, gpus in free.items():
            name = f"gpus:{pool}" if size == 1 else f"buddy:{pool}:{size}"
            rows[name] = Row("room", Fraction(gpus), pools=(pool,), size=size)
    rows |= _budget_rows(instance, places) | _share_rows(menus)
    if instance.objective in BOTTLENECK:
        rows |= {f"worst:{job.name}": Row("worst", Fraction(0)) for job in instance.jobs}
    return rows


def _budget_rows(instance: Instance, places: dict[str, Place]) -> dict[str, Row]:
    rows = {}
    budgets, everywhere = instance.budgets, tuple(places)
    standing_w = {name: _standing_w(instance, place) for name, place in places.items()}
    if budgets.power_w is not None:
        standing = sum(standing_w.values(), Fraction(0))
        rows["power_w"] = Row("power", Fraction(budgets.power_w), standing, everywhere)
    for domain in instance.cluster.power_domains:
        inside = tuple(name for name, place in places.items() if domain.name in place.domains)
        standing = sum((standing_w[name] for name in inside), Fraction(0))
        rows[f"power_w:{domain.name}"] = Row("power", Fraction(domain.power_cap_w), standing, inside)
    standing_j = Fraction(0)
    if budgets.scope == "round":
        standing_j = sum(standing_w.values(), Fraction(0)) * Fraction(instance.round_s)
    if budgets.energy_j is not None:
        rows["energy_j"] = Row("energy", Fraction(budgets.energy_j), standing_j)
    if budgets.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        grams = Fraction(instance.carbon_g_per_kwh) / J_PER_KWH
        rows["carbon_g"] = Row("energy", Fraction(budgets.carbon_g), standing_j * grams, factor=grams)
    return rows


def _share_rows(menus: Menus) -> dict[str, Row]:
    """A row for each job of a set but the first, in each pool."""
    rows = {}
    for declared in menus.instance.sets:
        first, *others = declared.rates
        pools = [row.setting[0] for row in menus.in_sets(first) if row.set == declared.name]
        for pool in pools:
            for job in others:
                row = Row("share", Fraction(0), pools=(pool,), set=declared.name, jobs=(first, job))
                rows[f"share:{declared.name}:{pool}:{job}"] = row
    return rows


def _standing_w(instance: Instance, place: Place) -> Fraction:
    """Draw of a pool without any job."""
    idle_w = Fraction(instance.cluster.gpu_types[place.gpu_type].idle_power_w)
    return idle_w * place.available + sum((Fraction(n.base_power_w) for n in place.nodes), Fraction(0))


def tariff_of(rows: dict[str, Row], prices: dict[str, Fraction], places: dict[str, Place]) -> Tariff:
    """What prices of rows make options pay.

    Parameters
    ----------
    prices : dict of str to Fraction
        By row: what a unit costs; negative at most for rows of sets.
    """
    sizes = {
        name: [1 << k for k in range(place.largest_block.bit_length())] for name, place in places.items()
    }
    tariff = Tariff(room={name: dict.fromkeys(sizes[name], Fraction(0)) for name in places})
    for name, price in prices.items():
        row = rows[name]
        tariff.capacity += price * (row.limit - row.standing)
        tariff.terms += price * (row.limit + row.standing)
        if row.kind == "room":
            room = tariff.room[row.pools[0]]
            for size in room:
                room[size] += price * size if size >= row.size else 0
        elif row.kind == "power":
            for pool in row.pools:
                tariff.watt[pool] += price
        elif row.kind == "energy":
            tariff.joule += price * row.factor
        elif row.kind == "share":
            for job, sign in zip(row.jobs, (1, -1), strict=True):
                tariff.share[row.set, row.pools[0], job] += sign * price
        else:
            tariff.worst[name.removeprefix("worst:")] += price
        if row.kind in ("power", "energy"):
            tariff.leeway += price * row.limit * Fraction(TOLERANCE)
    return tariff
