"""Draw what a plan gains that knows how the forecast may fail, and what a perfect one would gain on top.

    python value_of_stochastic_plans.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% Two jobs until the evening. A front brings an hour of wind; nobody knows in which of three hours.
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import wattsched
from wattsched import plot
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.solving.engine import model_of

table = {"gpus": [1, 2, 4], "pool": ["a100"] * 3, "power_w": [300.0, 590.0, 1160.0], "rate": [1.0, 1.9, 3.4]}
document = {
    "problem": "shifting",
    "name": "front",
    "objective": "carbon",
    "slots": 5,
    "scenarios": {
        f"wind in hour {front}": {
            "probability": 1 / 3,
            "carbon_g_per_kwh": [300.0, 300.0, *(60.0 if hour == front else 450.0 for hour in (2, 3, 4))],
        }
        for front in (2, 3, 4)
    },
    "pools": {"a100": {"gpus": 8, "idle_power_w": 50.0}},
    "tables": {"bert": table},
    "jobs": [
        {"name": name, "options": "bert", "remaining_work": 3600.0 * hours, "must_finish": True}
        for name, hours in (("long", 9.0), ("short", 2.0))
    ],
}


# %% The first hours are decided before anybody knows. To evaluate a plan, its columns in them are fixed.
def evaluated(instance, plan, hours):
    """Return the expected carbon in g of a plan's first hours and the best that can follow them."""
    model, program = model_of(instance), model_of(instance).program
    fixed = {
        f"plan[{one.job},{slot},{table['gpus'].index(run.gpus)}]"
        for one in plan.jobs
        for run in one.runs
        for slot in range(run.first_slot, min(run.first_slot + run.slots, hours))
    }
    names = program.column_names()
    lower = np.array([float(name in fixed) for name in names])
    upper = np.where([name.startswith("plan[") for name in names], lower, program.upper)
    best = get("highs")(replace(program, lower=lower, upper=upper), Limits(gap=1e-4))
    report = wattsched.check(instance, model.decode(best.x, {}))
    assert report.faults == []
    return report.objective


decided, stochastic, mean = range(5), [], []
for hours in decided:
    instance = ShiftingInstance.model_validate(document | {"decided_slots": hours})
    result = wattsched.solve(instance, gap=1e-3)
    assert wattsched.check(instance, result).faults == []
    stochastic.append(result.objective)
    mean.append(evaluated(instance, wattsched.solve(instance.expected(), gap=1e-4).decision, hours))
    print(
        f"{hours} hours decided: {result.objective:5,.0f} g expected, proven gap {result.proven_gap:.2%}, "
        f"value of the stochastic plan {mean[-1] - stochastic[-1]:3.0f} g, "
        f"of a perfect forecast {stochastic[-1] - stochastic[0]:3.0f} g"
    )

# %% All three against how long one has to wait for the forecast to be known.
figure, axes = plt.subplots()
axes.plot(decided, mean, "s--", color="#D55E00", label="plan for the mean forecast")
axes.plot(decided, stochastic, "o-", color="#0072B2", label="stochastic plan")
axes.axhline(stochastic[0], ls=":", color="#009E73", label="perfect forecast (wait and see)")
axes.set_xlabel("hours decided before the forecast is known")
axes.set_ylabel("expected carbon (g)")
axes.set_xticks(decided)
axes.legend(frameon=False)
plot.save(axes, "stochastic.png")
print("Written to stochastic.png")
