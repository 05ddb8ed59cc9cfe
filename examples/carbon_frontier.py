"""A frontier of carbon: how much later a night's jobs are done for how many grams less, with proof.

    python carbon_frontier.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% Ten jobs over twelve hours of a forecast of carbon intensity.
import wattsched
from wattsched import plot
from wattsched.solving.tradeoffs import verdict_on_pareto

night = wattsched.generate("shifting", jobs=10, slots=12, seed=2, carbon_fraction=None)

# %% Five decisions, from the soonest completion to the least carbon. Each has a bound of its own.
found = wattsched.pareto(night, 5, gap=0.05, time_limit=300)
first = found.points[0].result.totals
for point in found.points:
    totals = point.result.totals
    less = 1 - totals["carbon_g"] / first["carbon_g"]
    later = totals["average_completion_s"] / first["average_completion_s"] - 1
    print(f"{100 * less:5.1f} % less carbon, {100 * later:5.1f} % later, gap {100 * point.result.gap:.3f} %")

# %% The checker recomputes every point and what its certificate proves.
verdict = verdict_on_pareto(night, found)
print("faults:", verdict.faults)

# %% The curve, ready for a page.
plot.save(plot.frontier(found), "frontier.png")
print("Written to frontier.png")
