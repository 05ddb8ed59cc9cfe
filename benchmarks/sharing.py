"""Reproduce EaCO's measurements, certify rounds of Gavel's pairs, and compare policies that share GPUs.

    WATTSCHED_DATA=... python benchmarks/sharing.py [--part NAME] [--write]

``--write`` puts the tables into docs/tables.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tables import machine, table, write

from wattsched.formulations.sharing import heuristics, patterns
from wattsched.formulations.sharing.data import Patterns, patterns_of
from wattsched.instances.generators.sharing import NODE, eaco_classes, eaco_node, eaco_sets
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import Budgets, Job, SharingInstance
from wattsched.instances.sharing.instance import Limits as SetLimits
from wattsched.instances.traces.gavel import read_jobs, read_pairs, round_of_pairs
from wattsched.instances.units import J_PER_KWH
from wattsched.perfmodels.co_location import ALONE, EPOCHS, SHARED
from wattsched.replay.sharing.policies import Decide, anew
from wattsched.replay.sharing.stream import Outcome, replay
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import Outcomes, check

GAP = 1e-3
SHORT = {"AlexNet": "J1", "ResNet-18": "J2", "ResNet-50": "J3", "VGG-16": "J4"}
STREAM_JOBS, MEAN_ARRIVAL_S = 300, 1500.0
SEEDS = (0, 1, 2)


# -- EaCO's tables -----------------------------------------------------------------------------------


def measured() -> str:
    """Energy and completion times of EaCO's sets: published, from the instance, and from the laws alone."""
    given = SharingInstance(
        problem="sharing", unit_types=[eaco_node(1)], classes=eaco_classes(), sets=eaco_sets(), jobs=[]
    )
    by_law = given.model_copy(update={"sets": []})
    rows = []
    for members, run in [*(((name,), run) for name, run in ALONE.items()), *SHARED.items()]:
        model, law = (Outcomes(instance).of(NODE, members) for instance in (given, by_law))
        kwh = [o.power_w * float(np.mean(o.epoch_s)) * EPOCHS / J_PER_KWH for o in (model, law)]
        apart = sum(ALONE[name].energy_kwh for name in members)
        saved = "" if len(members) == 1 else f"{100 * (1 - kwh[0] / apart):.1f}"
        published = "" if len(members) == 1 else f"{100 * (1 - run.energy_kwh / apart):.1f}"
        rows.append(
            [
                "".join(SHORT[name] for name in members),
                f"{run.power_w:,.0f}",
                f"{law.power_w:,.0f}",
                f"{run.jct_h:.2f}",
                f"{float(np.mean(law.epoch_s)) * EPOCHS / 3600:.2f}",
                f"{run.energy_kwh:.2f}",
                f"{kwh[0]:.2f}",
                f"{kwh[1]:.2f}",
                published,
                saved,
            ]
        )
    header = [
        "set", "W", "W by law", "JCT h", "JCT by law", "kWh published", "kWh of the model", "kWh by law",
        "saved % published", "saved % of the model",
    ]  # fmt: skip
    return table(header, rows)


# -- rounds of Gavel's pairs -------------------------------------------------------------------------


def rounds(data: Path) -> str:
    """Certify rounds of 2,000 jobs on three GPU types."""
    folder = data / "gavel-2020"
    pairs = read_pairs(folder / "oracle_pair_throughputs.json")
    jobs = read_jobs(folder / "traces" / "msr_seed0_jobs.csv", 2000)
    rows = []
    for per_type in (350, 500):
        gpus = dict.fromkeys(("v100", "p100", "k80"), per_type)
        plain = round_of_pairs(pairs, jobs, gpus)
        # About three quarters of what is drawn when throughput alone counts.
        budget = Budgets(power_w=150.0 * 3 * per_type)
        for objective, budgets in (
            ("throughput", Budgets()),
            ("power", Budgets()),
            ("throughput", budget),
            ("energy", Budgets()),
            ("eaco", Budgets()),
        ):
            rows.append(_round(plain.model_copy(update={"objective": objective, "budgets": budgets})))
    header = ["GPUs", "objective", "budget", "seconds", "value", "bound proved again", "gap %", "GPUs in use",
              "jobs waiting"]  # fmt: skip
    return table(header, rows)


def _round(instance: SharingInstance) -> list[str]:
    begin = time.perf_counter()
    model = patterns.build(patterns_of(instance), instance.objective)
    answer = get("highs")(model.program, Limits(gap=GAP))
    took_s = time.perf_counter() - begin
    assert answer.x is not None
    assert answer.prices is not None
    report = check(instance, model.decode(answer.x, {}))
    assert not report.faults, report.faults
    assert report.objective is not None
    assert model.named_prices is not None
    bound = prove(instance, model.prices or model.named_prices(answer.prices)).bound
    assert bound is not None
    gap = abs(report.objective - bound) / abs(report.objective)
    limit = instance.budgets.power_w
    units = "/".join(str(unit.count) for unit in instance.unit_types)
    return [
        units,
        f"`{instance.objective}`",
        "" if limit is None else f"{limit / 1000:,.0f} kW",
        f"{took_s:.1f}",
        f"{report.objective:,.2f}",
        f"{bound:,.2f}",
        f"{100 * gap:.4f}",
        f"{report.totals['active_units']:,.0f}",
        f"{len(instance.jobs) - report.totals['running_jobs']:,.0f}",
    ]


# -- policies over time ------------------------------------------------------------------------------


def stream(nodes: int, seed: int) -> tuple[SharingInstance, list[float]]:
    """Jobs of EaCO's four classes with the durations of Gavel's trace generator, arriving at random."""
    rng = np.random.default_rng(seed)
    exponent = np.where(
        rng.random(STREAM_JOBS) < 0.8, rng.uniform(1.5, 3, STREAM_JOBS), rng.uniform(3, 4, STREAM_JOBS)
    )
    duration_s = 60 * 10**exponent
    names = rng.choice(list(ALONE), STREAM_JOBS)
    jobs = [
        Job(
            name=f"job{j:03d}",
            job_class=str(name),
            remaining_epochs=float(seconds / (ALONE[str(name)].jct_h * 3600 / EPOCHS)),
        )
        for j, (name, seconds) in enumerate(zip(names, duration_s, strict=True))
    ]
    arrival_s = np.cumsum(rng.exponential(MEAN_ARRIVAL_S, STREAM_JOBS)).tolist()
    instance = SharingInstance(
        problem="sharing",
        name=f"stream-{seed}",
        unit_types=[eaco_node(nodes)],
        classes=eaco_classes(),
        sets=eaco_sets(),
        jobs=jobs,
    )
    return instance, arrival_s


def optimum(objective: str, **fields: object) -> Decide:
    """Decide by `patterns`, jobs of a class being equal: what is left of their work does not count."""

    def decide(instance: SharingInstance) -> SharingDecision:
        jobs = [job.model_copy(update={"remaining_epochs": 1.0}) for job in instance.jobs]
        equal = instance.model_copy(update={"jobs": jobs, "objective": objective, **fields})
        model = patterns.build(patterns_of(equal), objective)
        answer = get("highs")(model.program, Limits(gap=GAP))
        assert answer.x is not None
        decision: SharingDecision = model.decode(answer.x, {})
        return decision

    return decide


def _by(rule: Callable[[Patterns, str], SharingDecision | None], **fields: object) -> Decide:
    """Decide by a rule, with other fields of the instance."""
    return lambda instance: rule(patterns_of(instance.model_copy(update=fields)), "eaco")


def policies() -> str:
    """Energy, completion times and active nodes of every policy."""
    deciders: dict[str, Decide] = {
        "`eaco`": _by(heuristics.eaco),
        "`fifo`": _by(heuristics.fifo),
        "`fifo-packed`": _by(heuristics.fifo_packed),
        "`gandiva`": _by(heuristics.gandiva),
    }
    for most in (2, 3):
        limits = SetLimits(jobs_per_set=most)
        deciders[f"`eaco`, at most {most} per node"] = _by(heuristics.eaco, limits=limits)
    deciders["optimum of `energy`"] = optimum("energy")
    deciders["optimum of `power`"] = optimum("power")
    deciders["optimum of `throughput`"] = optimum("throughput")
    order = ["`fifo`", "`fifo-packed`", "`gandiva`", "`eaco`", *list(deciders)[4:]]
    parts = []
    for nodes in (64, 28):
        rows, reference = [], 0.0
        for name in order:
            begin = time.perf_counter()
            runs = [_replay(stream(nodes, seed), deciders[name]) for seed in SEEDS]
            each_ms = 1000 * (time.perf_counter() - begin) / sum(run.decisions for run in runs)
            kwh = float(np.mean([run.energy_j for run in runs])) / J_PER_KWH
            reference = reference or kwh
            rows.append(
                [name, f"{kwh:,.0f}", f"{100 * (kwh / reference - 1):+.1f}", *_means(runs), f"{each_ms:.0f}"]
            )
        header = ["policy", "kWh", "% of `fifo`", "active nodes", "wait h", "run h", "wait + run h", "last h",
                  "ms per decision"]  # fmt: skip
        parts.append(f"{nodes} nodes:\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def _replay(of: tuple[SharingInstance, list[float]], decide: Decide) -> Outcome:
    return replay(*of, anew(of[0], decide))


def _means(runs: list[Outcome]) -> list[str]:
    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    wait_h, run_h = (mean([float(v.mean()) for v in values]) / 3600 for values in
                     ([r.wait_s for r in runs], [r.run_s for r in runs]))  # fmt: skip
    return [
        f"{mean([run.active_units for run in runs]):.1f}",
        f"{wait_h:.2f}",
        f"{run_h:.2f}",
        f"{wait_h + run_h:.2f}",
        f"{mean([run.end_s for run in runs]) / 3600:.0f}",
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", action="append", choices=["measured", "rounds", "policies"])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    arguments = parser.parse_args()
    wanted = arguments.part or ["measured", "rounds", "policies"]
    if "rounds" in wanted and "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    for part in wanted:
        if part == "measured":
            content = measured()
        elif part == "rounds":
            content = f"{rounds(Path(os.environ['WATTSCHED_DATA']))}\n\nOn {machine()}, one thread."
        else:
            content = policies()
        print(f"\n{content}\n", flush=True)
        if arguments.write:
            write(f"sharing-{part}", content)


if __name__ == "__main__":
    main()
