"""The price of robustness: what a round gives up so that its power cap holds though watts are uncertain.

    python price_of_robustness.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% Twelve jobs under a power cap that binds. Each may draw up to a tenth more than its option states.
import matplotlib.pyplot as plt
import numpy as np

import wattsched
from wattsched import plot

known = wattsched.generate("sia-like", jobs=12, gpus=24, seed=1)
free = wattsched.solve(known, objective="goodput")
cap_w = 0.8 * free.totals["power_w"]
document = known.model_dump() | {"objective": "goodput", "budgets": {"power_w": cap_w}}

# %% One decision for each budget of uncertainty, with its proof.
gammas = [0.0, 1.0, 2.0, 3.0, 6.0, 12.0]
rng, lost, violated = np.random.default_rng(1), [], []
for gamma in gammas:
    document["uncertainty"] = {"power_deviation": 0.1, "gamma": gamma}
    instance = wattsched.Instance.model_validate(document)
    result = wattsched.solve(instance, gap=1e-2)
    assert wattsched.check(instance, result).faults == []
    lost.append(100 * (1 - result.objective / free.objective))
    # A thousand rounds in which every job draws somewhere between 10 % less and 10 % more.
    tables = {job.name: instance.table_of(job) for job in instance.jobs}
    watts = {
        (job, pool, gpus): power_w
        for job, table in tables.items()
        for pool, gpus, power_w in zip(table.pool, table.gpus, table.power_w, strict=True)
    }
    drawn_w = np.array([watts[one.job, one.pool, one.gpus] for one in result.decision.jobs])
    more_w = rng.uniform(-0.1, 0.1, (1000, len(drawn_w))) @ drawn_w
    violated.append(100 * np.mean(result.totals["power_w"] + more_w > cap_w))
    print(
        f"{gamma:4g} jobs may deviate: {lost[-1]:5.2f} % less goodput, "
        f"cap exceeded in {violated[-1]:4.1f} % of rounds, proven gap {100 * result.proven_gap:.2f} %"
    )

# %% Both against the budget of uncertainty.
figure, axes = plt.subplots()
axes.plot(gammas, lost, "o-", color="#0072B2", label="goodput lost to the cap")
axes.plot(gammas, violated, "s--", color="#D55E00", label="rounds above the cap")
axes.set_xlabel("jobs that may deviate at once")
axes.set_ylabel("%")
axes.legend(frameon=False)
plot.save(axes, "robustness.png")
print("Written to robustness.png")
