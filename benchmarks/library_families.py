"""The families of the library: what `benchmarks/library.py --freeze` makes instances of.

Names say what an instance is: family, jobs, what varies, seed. Seeds and sizes are chosen before anything is
solved, and not by how hard the instances turn out to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
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
    for family in FAMILIES:
        yield from family()


def _made(family: str, **options: Any) -> Generated:
    """Recipe of a generated instance; options that are None are left to the family."""
    return Generated(
        generate=family, options={name: value for name, value in options.items() if value is not None}
    )


def _label(word: str, fraction: float | None, without: str = "free") -> str:
    """Part of a name that says what share there is of something."""
    return without if fraction is None else f"{word}{fraction:g}".replace("0.", "")


CAPS = {"power": ("power-cap",), "energy": ("energy-budget",), "both": ("power-cap", "energy-budget")}


def _uniform() -> Iterator[Draft]:
    for jobs, budget in product((20, 60, 200, 1000, 5000), CAPS):
        recipe = _made("uniform", jobs=jobs, seed=jobs + 1, budget=budget)
        yield Draft(f"uniform-{jobs}-{budget}", "uniform", recipe, ("one-pool", *CAPS[budget]))


def _objectives() -> Iterator[Draft]:
    plain = ("work-value", "total-completion", "progress", "makespan", "max-min", "proportional", "goodput")
    tags = ("one-pool", "power-cap")
    for jobs in (12, 40):
        options = {"jobs": jobs, "seed": 100 + jobs, "budget": "power"}
        for objective in plain:
            recipe = _made("uniform", **options)
            yield Draft(f"objective-{jobs}-{objective}", "objectives", recipe, tags, objective)
        for objective in ("energy", "carbon", "money"):
            recipe = Generated(
                generate="uniform",
                options=options | {"power_fraction": 0.9},
                budgets={"least_goodput": 2.0 * jobs},
                fields={"carbon_g_per_kwh": 300.0, "price_per_kwh": 0.25},
            )
            name = f"objective-{jobs}-{objective}"
            yield Draft(name, "objectives", recipe, (*tags, "least-goodput"), objective)


def _racks() -> Iterator[Draft]:
    sizes = ((20, 3), (60, 4), (60, 8), (200, 8), (200, 16), (1000, 32))
    tags = ("racks", "power-domains", "power-cap", "deadlines", "broken-gpus")
    for (jobs, racks), energy in product(sizes, (None, 0.4, 0.8)):
        recipe = _made("hetero", jobs=jobs, racks=racks, seed=jobs + racks, energy_fraction=energy)
        name = f"racks-{jobs}-{racks}-{_label('energy', energy, 'power')}"
        yield Draft(name, "racks", recipe, tags if energy is None else (*tags, "energy-budget"))


def _sia() -> Iterator[Draft]:
    for jobs, fraction in product((20, 60, 160, 500), (None, 0.7, 0.5)):
        recipe = _made("sia-like", jobs=jobs, seed=jobs + 2, power_fraction=fraction)
        tags = ("gpu-types",) if fraction is None else ("gpu-types", "power-cap")
        yield Draft(f"sia-{jobs}-{_label('power', fraction)}", "sia", recipe, tags)


def _philly_like() -> Iterator[Draft]:
    tags = ("one-pool", "power-cap", "running-jobs", "restarts")
    for jobs, gpu, fraction in product((30, 100, 300), ("A100", "H100"), (0.7, 0.5)):
        recipe = _made("philly-like", jobs=jobs, seed=jobs, gpu_type=gpu, power_fraction=fraction)
        name = f"philly-like-{jobs}-{gpu.lower()}-{_label('power', fraction)}"
        yield Draft(name, "philly-like", recipe, tags)


def _sets() -> Iterator[Draft]:
    for jobs, objective in product((12, 30, 60, 120), ("goodput", "total-completion")):
        recipe, tags = _made("sets", jobs=jobs, seed=jobs), ("one-pool", "power-cap", "sets")
        yield Draft(f"sets-{jobs}-{objective}", "sets", recipe, tags, objective)


def _adversarial() -> Iterator[Draft]:
    kinds = ("correlated", "parity", "tight", "degenerate")
    for kind, jobs, seed in product(kinds, (15, 40, 100, 250), (1, 2)):
        recipe = _made("adversarial", jobs=jobs, seed=seed, kind=kind)
        yield Draft(f"{kind}-{jobs}-{seed}", "adversarial", recipe, ("one-pool", "power-cap", kind))


def _shifting() -> Iterator[Draft]:
    sizes = ((4, 8), (8, 24), (12, 48), (24, 24), (32, 36))
    budgets = {
        "carbon5": ({"carbon_fraction": 0.5}, "carbon-budget"),
        "carbon4": ({"carbon_fraction": 0.4}, "carbon-budget"),
        "late": ({"completion_factor": 3.0}, "completion-budget"),
    }
    for (jobs, slots), (label, (options, tag)) in product(sizes, budgets.items()):
        slot_s = 1800.0 if slots == 48 else 3600.0
        recipe = _made("shifting", jobs=jobs, slots=slots, slot_s=slot_s, seed=jobs + slots, **options)
        yield Draft(f"shifting-{jobs}-{slots}-{label}", "shifting", recipe, ("horizon", tag))


def _sharing() -> Iterator[Draft]:
    for units, jobs, fraction in product(("nodes", "gpus"), (12, 30, 80), (None, 0.7)):
        recipe = _made("sharing", jobs=jobs, seed=jobs, units=units, power_fraction=fraction)
        tags = ("co-location", f"units-{units}", "deadlines", *(() if fraction is None else ("power-cap",)))
        yield Draft(f"sharing-{units}-{jobs}-{_label('power', fraction)}", "sharing", recipe, tags)


def _placement() -> Iterator[Draft]:
    tags = ("gpu-shares", "fragmentation", "gpu-types")
    for jobs, load in product((6, 8, 12, 16), (0.3, 0.5, 0.7)):
        recipe = _made("placement", jobs=jobs, load=load, seed=jobs)
        yield Draft(f"placement-{jobs}-{_label('load', load)}", "placement", recipe, tags)


ITP = {"trace": "itp", "nodes": 16, "origin": "Microsoft ITP, Gu et al. (ASPLOS 2023)", "licence": "MIT"}
PHILLY = {
    "trace": "philly",
    "files": ["philly-2017/philly_jobs.csv.gz"],
    "nodes": 16,
    "origin": "Microsoft Philly, Jeon et al. (ATC 2019)",
    # The list is AdaptDL's, derived from traces that may be passed on with their authors' names alone.
    "licence": "CC-BY-4.0, in a list under Apache-2.0",
}
OPENB = {
    "trace": "openb",
    "options": {"window": 12, "arrived": 0.9},
    "origin": "Alibaba openb, Weng et al. (ATC 2023)",
    "licence": "Apache-2.0",
}
OPENB_FILE = "alibaba-gpu-2023/openb_{}.csv"
LISTS = (
    "default",
    "multigpu20",
    "multigpu50",
    "gpushare40",
    "gpushare100",
    "gpuspec10",
    "gpuspec33",
    "cpu050",
)
REAL = ("real", "running-jobs", "restarts", "power-cap")


def _rounds() -> Iterator[Draft]:
    for cluster, objective in product((1, 2, 3, 5, 6, 8, 9, 10), ("total-completion", "goodput")):
        files = [f"itp-elasticflow-2021/raw/cluster{cluster:02d}.csv"]
        recipe = Imported(**ITP, files=files, options={"power_fraction": 0.6})
        yield Draft(f"itp-{cluster:02d}-{objective}", "itp", recipe, REAL, objective)
    for group in ("11cb48", "6c71a0", "b436b2", "103959", "ee9e8c", "0e4a51"):
        recipe = Imported(**PHILLY, options={"virtual_cluster": group, "power_fraction": 0.6})
        yield Draft(f"philly-{group}", "philly", recipe, REAL, "total-completion")


def _windows() -> Iterator[Draft]:
    for name in LISTS:
        files = [OPENB_FILE.format(part) for part in ("node_list_gpu_node", f"pod_list_{name}")]
        recipe = Imported(**OPENB, files=files)
        yield Draft(f"openb-{name}", "openb", recipe, ("real", "gpu-shares", "fragmentation", "gpu-types"))


FAMILIES = (_uniform, _objectives, _racks, _sia, _philly_like, _sets, _adversarial, _shifting, _sharing,
            _placement, _rounds, _windows)  # fmt: skip
