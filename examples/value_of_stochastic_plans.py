"""What a plan gains that knows how the forecast may fail, and what a perfect forecast would gain on top.

    python value_of_stochastic_plans.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% Two jobs until the evening. A front brings an hour of wind, nobody knows in which of three hours.
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import wattsched
from wattsched import plot
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.solving.engine import model_of

now, windy, still = 300.0, 60.0, 450.0
document = {
    "problem": "shifting",
    "name": "noon",
    "objective": "carbon",
    "slots": 5,
    "scenarios": {
        f"wind at {front}": {
            "probability": 1 / 3,
            "carbon_g_per_kwh": [now, now, *(windy if slot == front else still for slot in (2, 3, 4))],
        }
        for front in (2, 3, 4)
    },
    "pools": {"a100": {"gpus": 8, "idle_power_w": 50.0}},
    "tables": {
        "bert": {
            "gpus": [1, 2, 4],
            "pool": ["a100"] * 3,
            "power_w": [300.0, 590.0, 1160.0],
            "rate": [1.0, 1.9, 3.4],
        }
    },
    "jobs": [
        {"name": name, "options": "bert", "remaining_work": 3600.0 * hours, "must_finish": True}
        for name, hours in (("long", 9.0), ("short", 2.0))
    ],
}


# %% Some first slots are decided before anybody knows. A plan for the mean forecast is evaluated by fixing the
# columns of these slots: what follows is the best in each scenario.
def evaluated(instance, plan, decided_slots):
    model = model_of(instance)
    runs = [(one.job, run) for one in plan.jobs for run in one.runs]
    gpus = instance.tables["bert"].gpus
    fixed = {
        f"plan[{job},{slot},{gpus.index(run.gpus)}]"
        for job, run in runs
        for slot in range(run.first_slot, min(run.first_slot + run.slots, decided_slots))
    }
    names = model.program.column_names()
    lower = np.array([float(name in fixed) for name in names])
    upper = np.where([name.startswith("plan[") for name in names], lower, model.program.upper)
    solution = get("highs")(replace(model.program, lower=lower, upper=upper), Limits(gap=1e-4))
    report = wattsched.check(instance, model.decode(solution.x, {}))
    assert report.faults == []
    return report.objective


slots, known, stochastic, mean = range(5), [], [], []
for decided_slots in slots:
    instance = ShiftingInstance.model_validate(document | {"decided_slots": decided_slots})
    result = wattsched.solve(instance, gap=1e-3)
    assert wattsched.check(instance, result).faults == []
    stochastic.append(result.objective)
    mean.append(evaluated(instance, wattsched.solve(instance.expected(), gap=1e-4).decision, decided_slots))
    known.append(stochastic[0])
    print(
        f"{decided_slots} hours decided: {result.objective:6,.0f} g expected (proven gap {result.proven_gap:.1%}), "
        f"value of the stochastic plan {mean[-1] - stochastic[-1]:4.0f} g, "
        f"of a perfect forecast {stochastic[-1] - known[-1]:4.0f} g"
    )

# %% All three against how long one has to wait for the forecast to be known.
figure, axes = plt.subplots()
axes.plot(slots, mean, "s--", color="#D55E00", label="plan for the mean forecast")
axes.plot(slots, stochastic, "o-", color="#0072B2", label="stochastic plan")
axes.plot(slots, known, ":", color="#009E73", label="perfect forecast (wait and see)")
axes.set_xlabel("hours decided before the forecast is known")
axes.set_ylabel("expected carbon (g)")
axes.legend(frameon=False)
plot.save(axes, "stochastic.png")
print("Written to stochastic.png")
