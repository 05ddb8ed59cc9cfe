"""EaCO's measurements against the model and the laws, and certified rounds of Gavel's pairs.

python -m benchmarks.sharing --write [--only sharing-rounds]
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Asked, data, machine, run, table, timed
from wattsched.formulations.model import Model
from wattsched.formulations.sharing import patterns
from wattsched.formulations.sharing.data import patterns_of
from wattsched.instances.generators.sharing import NODE, eaco_classes, eaco_node, eaco_sets
from wattsched.instances.sharing.instance import Budgets, SharingInstance
from wattsched.instances.traces.gavel import read_jobs, read_pairs, round_of_pairs
from wattsched.instances.units import J_PER_KWH
from wattsched.perfmodels.co_location import ALONE, EPOCHS, SHARED
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits, Solution
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import Outcomes, check

GAP = 1e-3
SHORT = {"AlexNet": "J1", "ResNet-18": "J2", "ResNet-50": "J3", "VGG-16": "J4"}


def measured(asked: Asked) -> str:
    """Energy and completion times of EaCO's sets: published, from the instance, and from the laws alone."""
    given = SharingInstance(
        problem="sharing", unit_types=[eaco_node(1)], classes=eaco_classes(), sets=eaco_sets(), jobs=[]
    )
    by_law = given.model_copy(update={"sets": []})
    rows = []
    for members, of in [*(((name,), of) for name, of in ALONE.items()), *SHARED.items()]:
        model, law = (Outcomes(instance).of(NODE, members) for instance in (given, by_law))
        kwh = [o.power_w * float(np.mean(o.epoch_s)) * EPOCHS / J_PER_KWH for o in (model, law)]
        apart = sum(ALONE[name].energy_kwh for name in members)
        saved = (f"{100 * (1 - energy / apart):.1f}" for energy in (of.energy_kwh, kwh[0]))
        rows.append(
            [
                "".join(SHORT[name] for name in members),
                *(f"{watts:,.0f}" for watts in (of.power_w, law.power_w)),
                *(f"{hours:.2f}" for hours in (of.jct_h, float(np.mean(law.epoch_s)) * EPOCHS / 3600)),
                *(f"{energy:.2f}" for energy in (of.energy_kwh, *kwh)),
                *(("", "") if len(members) == 1 else saved),
            ]
        )
    header = [
        "set", "W", "W by law", "JCT h", "JCT by law", "kWh published", "kWh of the model", "kWh by law",
        "saved % published", "saved % of the model",
    ]  # fmt: skip
    return table(header, rows)


def rounds(asked: Asked) -> str:
    """Certify rounds of 2,000 jobs on three GPU types."""
    folder = data("gavel-2020")
    pairs = read_pairs(folder / "oracle_pair_throughputs.json")
    jobs = read_jobs(folder / "traces" / "msr_seed0_jobs.csv", 50 if asked.quick else 2000)
    rows = []
    for per_type in (10,) if asked.quick else (350, 500):
        plain = round_of_pairs(pairs, jobs, dict.fromkeys(("v100", "p100", "k80"), per_type))
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
    return f"{table(header, rows)}\n\nOn {machine()}, one thread."


def _round(instance: SharingInstance) -> list[str]:
    def solve() -> tuple[Model, Solution]:
        model = patterns.build(patterns_of(instance), instance.objective)
        return model, get("highs")(model.program, Limits(gap=GAP))

    (model, answer), took_s = timed(solve)
    assert answer.x is not None
    assert answer.prices is not None
    report = check(instance, model.decode(answer.x, {}))
    assert not report.faults, report.faults
    assert report.objective is not None
    assert model.named_prices is not None
    bound = prove(instance, model.prices or model.named_prices(answer.prices)).bound
    assert bound is not None
    limit = instance.budgets.power_w
    return [
        "/".join(str(unit.count) for unit in instance.unit_types),
        f"`{instance.objective}`",
        "" if limit is None else f"{limit / 1000:,.0f} kW",
        f"{took_s:.1f}",
        f"{report.objective:,.2f}",
        f"{bound:,.2f}",
        f"{100 * abs(report.objective - bound) / abs(report.objective):.4f}",
        f"{report.totals['active_units']:,.0f}",
        f"{len(instance.jobs) - report.totals['running_jobs']:,.0f}",
    ]


TABLES = {"sharing-measured": measured, "sharing-rounds": rounds}

if __name__ == "__main__":
    run(__doc__, TABLES)
