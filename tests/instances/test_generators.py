"""Every family at every size gives valid, feasible, reproducible instances, and budgets bind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wattsched
from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.generators import families, generate, options_of
from wattsched.instances.generators.placement import NODES
from wattsched.instances.generators.sizing import durations_s
from wattsched.instances.io import document_text, write_json
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import read_instance
from wattsched.results.problems import PROBLEMS, problem
from wattsched.verification.sizing.checker import check
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.pools import pools_of

FAMILIES = ["uniform", "hetero", "philly-like", "sia-like"]
KINDS = ["correlated", "parity", "tight", "degenerate"]


def everybody_waits(instance: Instance) -> Decision:
    return Decision(jobs=[], waiting=[job.name for job in instance.jobs])


def test_registry() -> None:
    assert {*FAMILIES, *PROBLEMS} - {"sizing"} <= set(families())
    assert all(len(text) > 20 for text in families().values())
    assert "racks" in options_of("hetero")


def require_reproducible(family: str, jobs: int, folder: Path, **options: Any) -> Any:
    """Generate an instance that can be written and read, the same for the same seed alone."""
    instance = generate(family, jobs=jobs, seed=7, **options)
    write_json(folder / "instance.json", instance)
    assert read_instance(folder / "instance.json") == instance
    text = document_text(instance)
    assert document_text(generate(family, jobs=jobs, seed=7, **options)) == text
    assert document_text(generate(family, jobs=jobs, seed=8, **options)) != text
    return instance


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("jobs", [1, 3, 50, 5000])
def test_rounds_are_valid_feasible_and_reproducible(family: str, jobs: int, tmp_path: Path) -> None:
    instance = require_reproducible(family, jobs, tmp_path)
    assert len(instance.jobs) == jobs
    assert check(instance, everybody_waits(instance)).faults == []
    assert len(instance.tables) <= 200


@pytest.mark.parametrize("jobs", [1, 3, 50, 2000])
def test_windows_are_valid_and_reproducible(jobs: int, tmp_path: Path) -> None:
    assert len(require_reproducible("placement", jobs, tmp_path).tasks) == jobs


@pytest.mark.parametrize("slots", [12, 48])
def test_horizons_are_valid_and_reproducible(slots: int, tmp_path: Path) -> None:
    assert require_reproducible("shifting", 20, tmp_path, slots=slots).slots == slots


@pytest.mark.parametrize(
    ("family", "options"), [("sets", {}), *(("adversarial", {"kind": k}) for k in KINDS)]
)
def test_rounds_of_whole_numbers_are_reproducible(
    family: str, options: dict[str, str], tmp_path: Path
) -> None:
    require_reproducible(family, 7, tmp_path, **options)


@pytest.mark.parametrize("units", ["nodes", "gpus"])
def test_shared_units_are_reproducible_and_can_be_decided(units: str, tmp_path: Path) -> None:
    made = require_reproducible("sharing", 60, tmp_path, units=units)
    for name, rule in problem("sharing").heuristics.items():
        decision = rule(patterns_of(made), made.objective, Timer())
        # First come, first served misses deadlines when the queue stops.
        assert decision is not None or name != "eaco"
        assert decision is None or problem("sharing").check(made, decision).faults == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jobs", [1, 2, 7, 40])
def test_adversarial_rounds_are_of_whole_numbers_and_have_decisions(kind: str, jobs: int) -> None:
    instance = generate("adversarial", jobs=jobs, seed=3, kind=kind)
    assert len(instance.jobs) == jobs
    tables = [instance.table_of(job) for job in instance.jobs]
    assert all(watts.is_integer() for table in tables for watts in table.power_w)
    assert instance.budgets.power_w is not None
    assert instance.budgets.power_w.is_integer()
    result = wattsched.solve(instance, time_limit=20, gap=1e-3)
    assert result.decision is not None
    if kind == "parity":  # no decision uses up the cap
        assert result.totals["power_w"] <= instance.budgets.power_w - 100
    if kind == "tight":
        assert not result.decision.waiting


def test_the_cap_of_tight_rounds_is_just_above_what_no_decision_can_have() -> None:
    instance = generate("adversarial", jobs=12, seed=5, kind="tight")
    assert instance.budgets.power_w is not None
    tables = [instance.table_of(job) for job in instance.jobs]
    least_w = sum(min(table.power_w) for table in tables)
    assert least_w < instance.budgets.power_w < sum(table.power_w[0] for table in tables)


@pytest.mark.parametrize("jobs", [1, 2, 9, 60])
def test_sets_are_pairs_that_draw_less_than_apart(jobs: int) -> None:
    instance = generate("sets", jobs=jobs, seed=2)
    assert len(instance.sets) > 0 or jobs == 1
    tables = {job.name: instance.table_of(job) for job in instance.jobs}
    for one in instance.sets:
        assert len(one.rates) == 2
        for name, rate in one.rates.items():
            row = tables[name].gpus.index(one.gpus)
            assert 0.5 < rate / tables[name].rate[row] < 1
    assert check(instance, everybody_waits(instance)).faults == []


@pytest.mark.parametrize("load", [0.0, 0.3, 0.6])
def test_earlier_tasks_use_as_much_as_asked_for(load: float) -> None:
    instance = generate("placement", jobs=20, gpus=2000, load=load, constrained=0.0)
    gpus = sum(node.gpus for node in instance.nodes)
    assert 2000 <= gpus <= 2000 + max(size for _name, size, *_rest in NODES) * 10
    used = sum(sum(node.used_gpu_milli) for node in instance.nodes) / 1000 / gpus
    assert used == pytest.approx(load, abs=0.01)
    assert not any(task.gpu_types for task in instance.tasks)


def test_constrained_tasks_name_types_that_are_there() -> None:
    instance = generate("placement", jobs=40, constrained=1.0)
    there = {node.gpu_type for node in instance.nodes}
    assert all(set(task.gpu_types) <= there for task in instance.tasks)
    assert all(bool(task.gpu_types) == bool(task.gpus) for task in instance.tasks)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_thousand_jobs_are_generated(family: str) -> None:
    instance = generate(family, jobs=100_000)
    assert len(instance.jobs) == 100_000


@pytest.mark.parametrize(
    ("family", "per_job"), [("uniform", {"A100": 192}), ("sia-like", {"T4": 12, "A40": 10, "A100": 7})]
)
def test_number_of_options(family: str, per_job: dict[str, int]) -> None:
    instance = generate(family, jobs=300)
    alone = JobConfigurations(instance, pools_of(instance.cluster)).of(0)
    pools = [row.setting[0] for row in alone]
    assert {pool: pools.count(pool) for pool in set(pools)} == per_job


def test_hetero_has_72_options_in_every_rack() -> None:
    instance = generate("hetero", jobs=400, racks=6, unavailable=0.0)
    pools = pools_of(instance.cluster)
    named = [row.setting[0] for row in JobConfigurations(instance, pools).of(0)]
    assert len(pools) == len(instance.cluster.power_domains) == 6
    assert {named.count(name) for name in pools} == {72}
    assert generate("hetero", jobs=3, racks=1).cluster.gpu_types.keys() == {"A100"}


def test_budgets_bind() -> None:
    """All GPUs busy with the fastest options break the cap; so does the energy of the fastest options."""
    for family in ("uniform", "hetero", "philly-like"):
        instance = generate(family, jobs=200)
        configurations = JobConfigurations(instance, pools_of(instance.cluster))
        alone = [configurations.of(j) for j in range(len(instance.jobs))]
        dearest = sum(max(one, key=lambda row: row.rate).power_w for one in alone)
        assert instance.budgets.power_w is not None
        assert dearest > instance.budgets.power_w
    both = generate("uniform", jobs=200, budget="both", energy_fraction=0.0)
    assert both.budgets.power_w is not None
    assert both.budgets.scope == "completion"
    assert check(both, everybody_waits(both)).faults == []
    job, alone = both.jobs[0], JobConfigurations(both, pools_of(both.cluster)).of(0)
    pool, gpus, mhz, limit, batch = max(alone, key=lambda row: row.rate).setting
    first = Assignment(
        job=job.name, pool=pool, gpus=gpus, frequency_mhz=mhz, power_limit_w=limit, batch_size=batch,
        nodes={f"node{n:02d}": list(range(8)) for n in range(gpus // 8)},
    )  # fmt: skip
    rushed = Decision(jobs=[first], waiting=[j.name for j in both.jobs[1:]])
    assert [fault[:16] for fault in check(both, rushed).faults] == ["budgets.energy_j"]


def test_philly_durations_have_the_published_mean_and_quantiles() -> None:
    levels = (np.arange(400_000) + 0.5) / 400_000
    assert durations_s(levels).mean() == pytest.approx(13_136, rel=0.01)
    assert durations_s(np.array([0.5, 0.75, 0.9, 0.99])) == pytest.approx([1144, 2932, 11_265, 254_758])
    sizes = [job.max_gpus for job in generate("philly-like", jobs=5000).jobs]
    assert np.mean([size == 4 for size in sizes]) == pytest.approx(0.932, abs=0.015)


def test_running_jobs_of_philly_fill_the_cluster() -> None:
    instance = generate("philly-like", jobs=500)
    held = [job.current for job in instance.jobs if job.current is not None]
    assert sum(h.gpus for h in held) >= 0.95 * instance.cluster.total_gpus
    keep = [Assignment(job=j.name, **j.current.model_dump()) for j in instance.jobs if j.current is not None]
    waiting = [job.name for job in instance.jobs if job.current is None]
    report = check(instance, Decision(jobs=keep, waiting=waiting))
    assert [fault[:15] for fault in report.faults] == ["budgets.power_w"]
    assert (report.totals["migrations"], report.totals["restarts"]) == (0, 0)


@pytest.mark.parametrize(
    ("family", "options", "said"),
    [
        ("unknown", {}, "family: 'unknown' is not known, choose one of uniform, hetero"),
        ("uniform", {"jobs": 0}, "jobs: must be at least 1, got 0"),
        ("uniform", {"gpus": 0}, "gpus: must be at least 1, got 0"),
        ("uniform", {"jobs": 99_999_999_999}, "jobs: must be at most 10,000,000, got 99,999,999,999"),
        ("hetero", {"gpus": 10**8}, "gpus: must be at most 10,000,000"),
        ("hetero", {"racks": 10**8}, "racks: must be at most 10,000"),
        ("hetero", {"rack_power_fraction": 0.01}, "rack_power_fraction: must be at least"),
        ("uniform", {"seed": -1}, "seed: must be at least 0, got -1"),
        ("uniform", {"racks": 3}, "racks: the family 'uniform' has no such option, it accepts budget, "),
        ("uniform", {"budget": "money"}, "budget: must be power, energy or both"),
        ("uniform", {"power_fraction": 0.01}, "power_fraction: must be at least"),
        ("uniform", {"power_fraction": float("nan")}, "power_fraction: must be at least"),
        ("uniform", {"energy_fraction": 2.0}, "energy_fraction: must be from 0 to 1"),
        ("hetero", {"racks": 0}, "racks: must be at least 1"),
        ("hetero", {"unavailable": 1.0}, "unavailable: must be at least 0 and below 1"),
        ("uniform", {"carbon_g_per_kwh": 0.0}, "carbon_g_per_kwh: must be above 0 and finite, got 0"),
        ("hetero", {"carbon_g_per_kwh": float("nan")}, "carbon_g_per_kwh: must be above 0 and finite"),
        ("hetero", {"energy_fraction": 1.5}, "energy_fraction: must be from 0 to 1"),
        ("philly-like", {"gpu_type": "Z"}, "gpu_type: 'Z' is not known"),
        ("placement", {"load": 1.0}, "load: must be"),
        ("placement", {"load": -0.1}, "load: must be"),
        ("placement", {"constrained": 1.1}, "constrained: must be"),
        ("placement", {"fragmentation_w_per_gpu": 0.0}, "fragmentation_w_per_gpu: must be"),
        ("sharing", {"units": "racks"}, "units: must be nodes or gpus, got 'racks'"),
        ("sharing", {"jobs_per_set": 9}, "jobs_per_set: must be from 1 to 8, got 9"),
        ("sharing", {"deadlines": 1.5}, "deadlines: must be from 0 to 1, got 1.5"),
        ("sharing", {"power_fraction": 0.0}, "power_fraction: must be above 0"),
        ("shifting", {"slots": 1}, "slots: must be"),
        ("shifting", {"slot_s": 10.0}, "slot_s: must be"),
        ("shifting", {"shortest_slot_s": 60.0}, "shortest_slot_s: slots are split where a signal changes"),
        ("shifting", {"start": "2022-01-01"}, "start: '2022-01-01' is a time in a file"),
        ("shifting", {"carbon_fraction": 2.0}, "carbon_fraction: must be"),
        ("shifting", {"completion_factor": 0.5}, "completion_factor: must be"),
        ("uniform", {"gpu_type": "H10"}, r"gpu_type: 'H10' is not known \(did you mean 'H100'\?\)"),
    ],
)
def test_bad_arguments(family: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        generate(family, **{"jobs": 3, **options})


@pytest.mark.parametrize("family", ["uniform", "hetero"])
@pytest.mark.parametrize("g_per_kwh", [25.0, 400.0])
def test_a_carbon_budget_is_that_of_energy_in_grams(family: str, g_per_kwh: float) -> None:
    """So the same round, whose optimum is the same."""
    options = {"jobs": 6, "energy_fraction": 0.3}
    energy, carbon = generate(family, **options), generate(family, **options, carbon_g_per_kwh=g_per_kwh)
    assert carbon.budgets.energy_j is None
    assert carbon.budgets.carbon_g == pytest.approx(energy.budgets.energy_j / 3.6e6 * g_per_kwh)
    assert carbon.jobs == energy.jobs
    found = [wattsched.solve(instance, gap=1e-6) for instance in (energy, carbon)]
    assert found[1].objective == pytest.approx(found[0].objective, rel=3e-6)
    alone = generate("uniform", jobs=3, budget="power", carbon_g_per_kwh=g_per_kwh)
    assert (alone.budgets.carbon_g, alone.carbon_g_per_kwh) == (None, g_per_kwh)


@pytest.mark.parametrize("family", ["uniform", "philly-like"])
def test_gpu_types_may_be_written_in_any_case_and_draw_their_watts(family: str) -> None:
    plain, lower = generate(family, jobs=20), generate(family, jobs=20, gpu_type="b200")
    assert lower == generate(family, jobs=20, gpu_type="B200")
    (kind,) = lower.cluster.gpu_types.values()
    assert (kind.idle_power_w, kind.max_power_w) == (137.0, 1000.0)
    assert lower.budgets.power_w > 2 * plain.budgets.power_w
    assert check(lower, everybody_waits(lower)).faults == []


def test_hetero_can_have_an_energy_budget_between_idle_and_cap() -> None:
    plain = generate("hetero", jobs=20)
    tight, loose = (generate("hetero", jobs=20, energy_fraction=f) for f in (0.0, 1.0))
    assert plain.budgets.energy_j is None
    assert tight.budgets.energy_j is not None
    assert plain.budgets.power_w is not None
    assert loose.budgets.energy_j == pytest.approx(plain.budgets.power_w * plain.round_s)
    assert tight.budgets.energy_j < plain.budgets.power_w * plain.round_s
