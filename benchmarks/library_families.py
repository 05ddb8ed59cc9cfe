"""The families of the library: what `benchmarks/library.py --freeze` makes instances of.

Names say what an instance is: family, jobs, what varies, seed. Seeds and sizes are chosen before anything is
solved, and not by how hard the instances turn out to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wattsched.library.recipes import Generated, Imported, Recipe


@dataclass(frozen=True)
class Draft:
    """An entry that is to be frozen."""

    name: str
    family: str
    recipe: Recipe
    tags: tuple[str, ...]
    objective: str | None = None


def drafts() -> Iterator[Draft]:
    """All entries of the library."""
    yield from _uniform()
    yield from _objectives()
    yield from _racks()
    yield from _sia()
    yield from _philly_like()
    yield from _sets()
    yield from _adversarial()
    yield from _shifting()
    yield from _sharing()
    yield from _placement()
    yield from _rounds()
    yield from _windows()


def _made(family: str, **options: Any) -> Generated:
    return Generated(generate=family, options=options)


def _uniform() -> Iterator[Draft]:
    for jobs in (20, 60, 200, 1000, 5000):
        for budget in ("power", "energy", "both"):
            recipe = _made("uniform", jobs=jobs, seed=jobs + 1, budget=budget)
            caps = {"power": ["power-cap"], "energy": ["energy-budget"]}.get(
                budget, ["power-cap", "energy-budget"]
            )
            yield Draft(f"uniform-{jobs}-{budget}", "uniform", recipe, ("one-pool", *caps))


def _objectives() -> Iterator[Draft]:
    plain = ("work-value", "total-completion", "progress", "makespan", "max-min", "proportional", "goodput")
    for jobs in (12, 40):
        for objective in plain:
            recipe = _made("uniform", jobs=jobs, seed=100 + jobs, budget="power")
            yield Draft(
                f"objective-{jobs}-{objective}", "objectives", recipe, ("one-pool", "power-cap"), objective
            )
        for objective in ("energy", "carbon", "money"):
            recipe = Generated(
                generate="uniform",
                options={"jobs": jobs, "seed": 100 + jobs, "budget": "power", "power_fraction": 0.9},
                budgets={"least_goodput": 2.0 * jobs},
                fields={"carbon_g_per_kwh": 300.0, "price_per_kwh": 0.25},
            )
            tags = ("one-pool", "power-cap", "least-goodput")
            yield Draft(f"objective-{jobs}-{objective}", "objectives", recipe, tags, objective)


def _racks() -> Iterator[Draft]:
    sizes = ((20, 3), (60, 4), (60, 8), (200, 8), (200, 16), (1000, 32))
    for jobs, racks in sizes:
        for energy in (None, 0.4, 0.8):
            more = {} if energy is None else {"energy_fraction": energy}
            recipe = _made("hetero", jobs=jobs, racks=racks, seed=jobs + racks, **more)
            label = "power" if energy is None else f"energy{energy:g}".replace("0.", "")
            tags = ("racks", "power-domains", "power-cap", "deadlines", "broken-gpus")
            tags = tags if energy is None else (*tags, "energy-budget")
            yield Draft(f"racks-{jobs}-{racks}-{label}", "racks", recipe, tags)


def _sia() -> Iterator[Draft]:
    for jobs in (20, 60, 160, 500):
        for fraction in (None, 0.7, 0.5):
            more = {} if fraction is None else {"power_fraction": fraction}
            recipe = _made("sia-like", jobs=jobs, seed=jobs + 2, **more)
            label = "free" if fraction is None else f"power{fraction:g}".replace("0.", "")
            tags = ("gpu-types",) if fraction is None else ("gpu-types", "power-cap")
            yield Draft(f"sia-{jobs}-{label}", "sia", recipe, tags)


def _philly_like() -> Iterator[Draft]:
    for jobs in (30, 100, 300):
        for gpu in ("A100", "H100"):
            for fraction in (0.7, 0.5):
                recipe = _made("philly-like", jobs=jobs, seed=jobs, gpu_type=gpu, power_fraction=fraction)
                label = f"{gpu.lower()}-power{fraction:g}".replace("0.", "")
                tags = ("one-pool", "power-cap", "running-jobs", "restarts")
                yield Draft(f"philly-like-{jobs}-{label}", "philly-like", recipe, tags)


def _sets() -> Iterator[Draft]:
    for jobs in (12, 30, 60, 120):
        for objective in ("goodput", "total-completion"):
            recipe = _made("sets", jobs=jobs, seed=jobs)
            yield Draft(
                f"sets-{jobs}-{objective}", "sets", recipe, ("one-pool", "power-cap", "sets"), objective
            )


def _adversarial() -> Iterator[Draft]:
    for kind in ("correlated", "parity", "tight", "degenerate"):
        for jobs in (15, 40, 100, 250):
            for seed in (1, 2):
                recipe = _made("adversarial", jobs=jobs, seed=seed, kind=kind)
                yield Draft(f"{kind}-{jobs}-{seed}", "adversarial", recipe, ("one-pool", "power-cap", kind))


def _shifting() -> Iterator[Draft]:
    for jobs, slots in ((4, 8), (8, 24), (12, 48), (24, 24), (32, 36)):
        for label, options in (
            ("carbon5", {"carbon_fraction": 0.5}),
            ("carbon4", {"carbon_fraction": 0.4}),
            ("late", {"completion_factor": 3.0}),
        ):
            slot_s = 1800.0 if slots == 48 else 3600.0
            recipe = _made("shifting", jobs=jobs, slots=slots, slot_s=slot_s, seed=jobs + slots, **options)
            budget = "completion-budget" if label == "late" else "carbon-budget"
            yield Draft(f"shifting-{jobs}-{slots}-{label}", "shifting", recipe, ("horizon", budget))


def _sharing() -> Iterator[Draft]:
    for units in ("nodes", "gpus"):
        for jobs in (12, 30, 80):
            for fraction in (None, 0.7):
                more = {} if fraction is None else {"power_fraction": fraction}
                recipe = _made("sharing", jobs=jobs, seed=jobs, units=units, **more)
                label = "free" if fraction is None else "power7"
                tags = ("co-location", f"units-{units}", "deadlines")
                tags = tags if fraction is None else (*tags, "power-cap")
                yield Draft(f"sharing-{units}-{jobs}-{label}", "sharing", recipe, tags)


def _placement() -> Iterator[Draft]:
    for jobs in (6, 8, 12, 16):
        for load in (0.3, 0.5, 0.7):
            recipe = _made("placement", jobs=jobs, load=load, seed=jobs)
            label = f"load{load:g}".replace("0.", "")
            yield Draft(
                f"placement-{jobs}-{label}", "placement", recipe, ("gpu-shares", "fragmentation", "gpu-types")
            )


ITP = "itp-elasticflow-2021/raw/cluster{:02d}.csv"
ITP_ORIGIN = "Microsoft ITP, Gu et al. (ASPLOS 2023)"
PHILLY = "philly-2017/philly_jobs.csv.gz"
PHILLY_ORIGIN = "Microsoft Philly, Jeon et al. (ATC 2019)"
PHILLY_LICENCE = "CC-BY-4.0, in a list under Apache-2.0"
"""The list is AdaptDL's, derived from traces that may be passed on with their authors' names alone."""
OPENB = "alibaba-gpu-2023/openb_{}.csv"
OPENB_ORIGIN = "Alibaba openb, Weng et al. (ATC 2023)"
REAL = ("real", "running-jobs", "restarts", "power-cap")


def _rounds() -> Iterator[Draft]:
    for cluster in (1, 2, 3, 5, 6, 8, 9, 10):
        for objective in ("total-completion", "goodput"):
            recipe = Imported(
                trace="itp",
                files=[ITP.format(cluster)],
                options={"power_fraction": 0.6},
                nodes=16,
                origin=ITP_ORIGIN,
                licence="MIT",
            )
            yield Draft(f"itp-{cluster:02d}-{objective}", "itp", recipe, REAL, objective)
    for group in ("11cb48", "6c71a0", "b436b2", "103959", "ee9e8c", "0e4a51"):
        recipe = Imported(
            trace="philly",
            files=[PHILLY],
            options={"virtual_cluster": group, "power_fraction": 0.6},
            nodes=16,
            origin=PHILLY_ORIGIN,
            licence=PHILLY_LICENCE,
        )
        yield Draft(f"philly-{group}", "philly", recipe, REAL, "total-completion")


def _windows() -> Iterator[Draft]:
    lists = (
        "default",
        "multigpu20",
        "multigpu50",
        "gpushare40",
        "gpushare100",
        "gpuspec10",
        "gpuspec33",
        "cpu050",
    )
    for name in lists:
        recipe = Imported(
            trace="openb",
            files=[OPENB.format("node_list_gpu_node"), OPENB.format(f"pod_list_{name}")],
            options={"window": 12, "arrived": 0.9},
            origin=OPENB_ORIGIN,
            licence="Apache-2.0",
        )
        yield Draft(f"openb-{name}", "openb", recipe, ("real", "gpu-shares", "fragmentation", "gpu-types"))
