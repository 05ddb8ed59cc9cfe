"""Families of rounds: `uniform`, `hetero`, `sia-like` and `philly-like`.

The first three draw jobs of made-up kinds (`kinds`); the last has the sizes and durations of a public trace
and models of the catalogue.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from wattsched.instances.clusters import (
    BASE_POWER_W,
    capped_power_w,
    homogeneous_cluster,
    idle_power_w,
    known_gpu_type,
    numbered,
    spelt_as_known,
    with_rack_caps,
)
from wattsched.instances.errors import require_range
from wattsched.instances.generators.kinds import Choices, best_rates, jobs_of_kinds, requested_gpus
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.traces.recorded import TraceJob
from wattsched.instances.traces.snapshot import first_come_round
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.cluster import MOST_GPUS, Cluster, Group, Node

GPU_COUNTS = (1, 2, 4, 8, 16, 32)
NODE_GPUS = 8


def _half(wanted: IntArray, gpus: int | None) -> int:
    """GPUs for half of those wanted, unless a number is given."""
    half = max(1, int(wanted.sum()) // 2) if gpus is None else gpus
    if half > MOST_GPUS:
        raise ValueError(f"gpus: half of the demand is {half:,}, say at most {MOST_GPUS:,}")
    return half


FREQUENCIES_MHZ = (705, 810, 915, 1020, 1125, 1230, 1320, 1410)
UNIFORM_BATCH_SIZES = (64, 128, 256, 512)
UNIFORM_KINDS = 200


def uniform_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    budget: Literal["power", "energy", "both"] = "both",
    power_fraction: float = 0.55,
    energy_fraction: float = 0.15,
    carbon_g_per_kwh: float | None = None,
    round_s: float = 3600.0,
    gpu_type: str = "A100",
) -> Instance:
    """One pool of GPUs, 192 options per job, GPUs for half of the demand, budgets that bind.

    Parameters
    ----------
    budget : {"power", "energy", "both"}
        A cap on the site's power, on the energy to completion, or on both.
    power_fraction : float
        Power cap as a fraction of the full draw.
    energy_fraction : float
        Energy budget between the least energy of all jobs (0) and the energy of their fastest options (1).
    carbon_g_per_kwh : float, optional
        Grams of CO2 per kWh, which make the energy budget one of carbon.
    round_s : float
        Length of the round. With short rounds waiting is cheap, and only GPUs are scarce.
    gpu_type : str
        A GPU type of the catalogue, whose watts the GPUs draw: A100, H100, B200 and so on. How jobs scale is
        made up, and the clocks are those of an A100.

    Raises
    ------
    ValueError
        For a fraction out of range or an unknown GPU type.
    """
    require_range(budget in ("power", "energy", "both"), "budget", "power, energy or both", f"'{budget}'")
    require_range(0 <= energy_fraction <= 1, "energy_fraction", "from 0 to 1", energy_fraction)
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=GPU_COUNTS[-1])
    gpu_type = spelt_as_known(gpu_type)
    cluster = homogeneous_cluster(-(-_half(wanted, gpus) // NODE_GPUS), NODE_GPUS, gpu_type)
    kind = cluster.gpu_types[gpu_type]
    choices = [Choices(gpu_type, kind, GPU_COUNTS, FREQUENCIES_MHZ, UNIFORM_BATCH_SIZES)]
    tables, drawn = jobs_of_kinds(rng, wanted, choices, UNIFORM_KINDS)
    given_j = None if budget == "power" else _energy_j(drawn, tables, energy_fraction)
    energy_j, carbon_g = _as_carbon(given_j, carbon_g_per_kwh)
    budgets = Budgets(
        power_w=None if budget == "energy" else capped_power_w(cluster, power_fraction),
        energy_j=energy_j,
        carbon_g=carbon_g,
        scope="round" if budget == "power" else "completion",
    )
    return Instance(
        name=f"uniform-{jobs}-{seed}",
        objective="total-completion",
        round_s=round_s,
        carbon_g_per_kwh=carbon_g_per_kwh,
        budgets=budgets,
        cluster=cluster,
        tables=tables,
        jobs=drawn.listed(),
    )


def _energy_j(jobs: JobColumns, tables: dict[str, OptionTable], fraction: float) -> float:
    """Energy budget in J, at a fraction of the way from the least energy to that of the fastest options."""
    least, fastest = [], []  # J by unit of work
    for table in tables.values():
        rate, power = np.array(table.rate), np.array(table.power_w)
        least.append(float(np.min(power / rate)))
        fastest.append(float(power[rate.argmax()] / rate.max()))
    work, kind = jobs.numbers("remaining_work"), jobs.coded("options").codes
    low, high = (float(sum((work * np.array(of_kind)[kind]).tolist())) for of_kind in (least, fastest))
    # The margin keeps the least energy itself feasible whatever the order of the sum.
    return (low + fraction * (high - low)) * (1 + 1e-9)


def _as_carbon(energy_j: float | None, g_per_kwh: float | None) -> tuple[float | None, float | None]:
    """Budget of energy, and that of carbon which takes its place where the intensity is given."""
    if g_per_kwh is None:
        return energy_j, None
    require_range(0 < g_per_kwh < math.inf, "carbon_g_per_kwh", "above 0 and finite", g_per_kwh)
    return None, None if energy_j is None else energy_j / J_PER_KWH * g_per_kwh


SIA_KINDS = 100

SIA_TYPES = (
    # GPU type, GPUs per server, share of the GPUs, speed, GPU counts, clock, batch sizes
    ("T4", 4, 0.375, 0.14, (1, 2, 4, 8, 16, 32), 1590, (64, 128)),
    ("A40", 8, 0.375, 0.5, (1, 2, 4, 8, 16), 1740, (64, 128)),
    ("A100", 8, 0.25, 1.0, (1, 2, 4, 8, 16, 32, 64), 1410, (128,)),
)
"""12 + 10 + 7 configurations: GPU counts times batch sizes (speeds are assumed, relative to an A100)."""


def sia_round(
    *, jobs: int, gpus: int | None = None, seed: int = 0, power_fraction: float | None = None
) -> Instance:
    """Three GPU types without racks, 29 configurations per job, goodput as the objective.

    The setting of Sia (SOSP 2023): every job may move between GPU types, sizes and batch sizes. The numbers
    are made up, no published trace or profile is in them.

    Parameters
    ----------
    power_fraction : float, optional
        Caps the site's power at this fraction of the full draw (default: no cap, as in Sia).
    """
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=GPU_COUNTS[-1])
    gpus = _half(wanted, gpus)
    types, nodes, choices = {}, [], []
    for name, node_gpus, share, speed, counts, clock, batches in SIA_TYPES:
        types[name], base_w = known_gpu_type(name), BASE_POWER_W * node_gpus / 8
        nodes += [
            Node(name=f"{name.lower()}-{i:04d}", gpu_type=name, gpus=node_gpus, base_power_w=base_w)
            for i in range(max(1, round(gpus * share / node_gpus)))
        ]
        choices.append(Choices(name, types[name], counts, (clock,), batches, speed, node_gpus))
    cluster = Cluster(name="sia", gpu_types=types, nodes=nodes)
    tables, drawn = jobs_of_kinds(rng, wanted, choices, SIA_KINDS, restart_s=30.0)
    return Instance(
        name=f"sia-like-{jobs}-{seed}",
        objective="goodput",
        round_s=60.0,
        budgets=Budgets(power_w=None if power_fraction is None else capped_power_w(cluster, power_fraction)),
        cluster=cluster,
        tables=tables,
        jobs=drawn.listed(),
    )


GPU_SHARES = {1: 93.2, 2: 2.2, 4: 2.3, 8: 2.0, 12: 0.01, 16: 0.24, 24: 0.01, 32: 0.08, 64: 0.01}
"""Per cent of the 82,247 jobs of the Philly list by GPU count (64 and 128 are published as one)."""

DURATION_QUANTILES_S = {0.0: 10.0, 0.5: 1144.0, 0.75: 2932.0, 0.9: 11_265.0, 0.99: 254_758.0, 1.0: 752_000.0}
"""Published quantiles of the list's durations.

The ends are not published: the lower one is assumed, the upper one gives the published mean of 13,136 s.
Between quantiles durations are log-uniform.
"""


def philly_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    power_fraction: float = 0.7,
    restart_s: float = 30.0,
    gpu_type: str = "A100",
) -> Instance:
    """Sizes and durations of the Philly traces, models of the catalogue, the first jobs running already.

    Jobs came in the order of their names; those that fitted run on the GPUs that their users asked for.

    Parameters
    ----------
    power_fraction : float
        Cap of the site's power as a fraction of the full draw.
    restart_s : float
        Time that a running job loses when it changes or stops.
    gpu_type : str
        A GPU type of the catalogue: A100, V100, H100, B200 and so on.

    Raises
    ------
    ValueError
        For a fraction out of range or an unknown GPU type.
    """
    rng = np.random.default_rng(seed)
    shares = np.array(list(GPU_SHARES.values()))
    asked = rng.choice(list(GPU_SHARES), size=jobs, p=shares / shares.sum())
    # Looked at in a moment of its life that is as likely as any other.
    remaining_s = durations_s(rng.random(jobs)) * rng.uniform(0.02, 1.0, jobs)
    queue = zip(numbered("job", jobs), [0.0] * jobs, remaining_s.tolist(), asked.tolist(), strict=True)
    return first_come_round(
        [TraceJob(*job) for job in queue],
        homogeneous_cluster(-(-_half(asked, gpus) // NODE_GPUS), NODE_GPUS, spelt_as_known(gpu_type)),
        seed=seed,
        restart_s=restart_s,
        power_fraction=power_fraction,
        name=f"philly-like-{jobs}-{seed}",
    )


def durations_s(levels: FloatArray) -> FloatArray:
    """Durations at levels of the distribution, 0 to 1."""
    quantiles = np.log(list(DURATION_QUANTILES_S.values()))
    return np.asarray(np.exp(np.interp(levels, list(DURATION_QUANTILES_S), quantiles)))


HETERO_BATCH_SIZES = (64, 128, 256)
HETERO_KINDS = 100
MOST_RACKS = 10_000

HETERO_TYPES = {
    "A100": (1.0, (825, 1020, 1215, 1410)),
    "V100": (0.45, (900, 1110, 1320, 1530)),
    "T4": (0.14, (885, 1110, 1335, 1590)),
}
"""GPU type to its speed against an A100 (assumed, near published training throughputs) and its clocks."""


def hetero_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    racks: int | None = None,
    power_fraction: float = 0.8,
    rack_power_fraction: float = 0.75,
    energy_fraction: float | None = None,
    carbon_g_per_kwh: float | None = None,
    unavailable: float = 0.02,
    round_s: float = 3600.0,
) -> Instance:
    """Racks of A100, V100 and T4 GPUs with a power cap each, 72 options per job and type of rack.

    Broken GPUs break the racks into buddy blocks of different sizes, and a fifth of the jobs has a deadline
    that it can still meet when it waits for this round.

    Parameters
    ----------
    racks : int, optional
        Number of racks, the types in turn (default: one for about 64 GPUs, from 3 to 32).
    power_fraction, rack_power_fraction : float
        Caps of the site and of each rack as fractions of their full draws.
    energy_fraction : float, optional
        Energy budget of the round, between that of the idle site (0) and that of the power cap (1).
    carbon_g_per_kwh : float, optional
        Grams of CO2 per kWh, which make the energy budget one of carbon.
    unavailable : float
        Share of GPUs that are broken.
    round_s : float
        Length of the round.

    Raises
    ------
    ValueError
        For a fraction or a number of racks out of range.
    """
    if racks is not None:
        require_range(racks >= 1, "racks", "at least 1", racks)
        require_range(racks <= MOST_RACKS, "racks", f"at most {MOST_RACKS:,}", f"{racks:,}")
    require_range(0 <= unavailable < 1, "unavailable", "at least 0 and below 1", unavailable)
    within = energy_fraction is None or 0 <= energy_fraction <= 1
    require_range(within, "energy_fraction", "from 0 to 1", energy_fraction)
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=GPU_COUNTS[-1])
    gpus = _half(wanted, gpus)
    racks = min(32, max(len(HETERO_TYPES), gpus // 64)) if racks is None else racks
    cluster = with_rack_caps(_cluster(rng, racks, gpus, unavailable), rack_power_fraction)
    choices = [
        Choices(name, cluster.gpu_types[name], GPU_COUNTS, clocks, HETERO_BATCH_SIZES, speed, NODE_GPUS)
        for name, (speed, clocks) in HETERO_TYPES.items()
        if name in cluster.gpu_types
    ]
    tables, drawn = jobs_of_kinds(rng, wanted, choices, HETERO_KINDS)
    cap_w, idle_w = capped_power_w(cluster, power_fraction), idle_power_w(cluster, cluster.nodes)
    energy_w = None if energy_fraction is None else idle_w + energy_fraction * (cap_w - idle_w)
    energy_j, carbon_g = _as_carbon(None if energy_w is None else energy_w * round_s, carbon_g_per_kwh)
    return Instance(
        name=f"hetero-{jobs}-{seed}",
        objective="total-completion",
        round_s=round_s,
        budgets=Budgets(power_w=cap_w, energy_j=energy_j, carbon_g=carbon_g),
        carbon_g_per_kwh=carbon_g_per_kwh,
        cluster=cluster,
        tables=tables,
        jobs=_with_deadlines(rng, drawn, tables, round_s).listed(),
    )


def _cluster(rng: np.random.Generator, racks: int, gpus: int, unavailable: float) -> Cluster:
    """Racks of the types in turn, with at least so many GPUs, a share of them broken."""
    names, nodes = [f"rack{r:03d}" for r in range(racks)], []
    for rack, gpu_type in zip(names, list(HETERO_TYPES) * racks, strict=False):
        for i in range(max(1, -(-gpus // (racks * NODE_GPUS)))):
            broken = np.flatnonzero(rng.random(NODE_GPUS) < unavailable)
            nodes.append(
                Node(
                    name=f"{rack}-node{i:04d}",
                    gpu_type=gpu_type,
                    gpus=NODE_GPUS,
                    parent=rack,
                    base_power_w=BASE_POWER_W / 2,
                    unavailable=broken.tolist(),
                )
            )
    groups = [Group(name="site", level="site"), *(Group(name=r, level="rack", parent="site") for r in names)]
    used = {node.gpu_type: known_gpu_type(node.gpu_type) for node in nodes}
    return Cluster(name="hetero", gpu_types=used, nodes=nodes, groups=groups)


def _with_deadlines(
    rng: np.random.Generator, jobs: JobColumns, tables: dict[str, OptionTable], round_s: float
) -> JobColumns:
    """Give a fifth of the jobs a deadline, 1.5 to 6 times what waiting and then 1 GPU would need."""
    on_one_gpu = np.array([best_rates(table)[1] for table in tables.values()])
    has, slack = rng.random(len(jobs)) < 0.2, rng.uniform(1.5, 6.0, len(jobs))
    needed_s = round_s + jobs.numbers("remaining_work") / on_one_gpu[jobs.coded("options").codes]
    deadline_s = np.array([round(value, 1) for value in (slack * needed_s).tolist()])
    return JobColumns({**jobs.columns, "deadline_s": np.where(has, deadline_s, np.nan)})
