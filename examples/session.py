"""A session in forty lines: a scheduler's rounds, each decided with a bound where the last one ended.

    python session.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% A cluster of 32 GPUs under 9 kW, and how jobs scale: rate and watts by GPU count.
import numpy as np

import wattsched
from wattsched import plot

cluster = {
    "gpu_types": {"A100": {"idle_power_w": 50}},
    "nodes": [{"name": f"n{i}", "gpu_type": "A100", "gpus": 8} for i in range(4)],
}
session = wattsched.Session(cluster, objective="total-completion", round_s=60)
session.update(power_w=9_000)
counts, rng = np.array([1, 2, 4, 8]), np.random.default_rng(0)
work: dict[str, float] = {}
rates: dict[str, np.ndarray] = {}

# %% Twenty rounds: jobs arrive, all are decided anew, work is done, jobs end.
decisions = []
for minute in range(20):
    for j in range(rng.poisson(1.5)):
        name, scaling = f"job{minute}-{j}", rng.uniform(0.5, 0.95)
        work[name], rates[name] = float(rng.uniform(100, 900)), counts**scaling
        table = {"pool": "A100", "gpus": counts, "rate": rates[name], "power_w": 300.0 * counts}
        session.upsert([name], remaining_work=[work[name]], restart_s=[20.0], **table)
    if not work:
        continue
    session.upsert(list(work), remaining_work=list(work.values()))
    decision = session.solve(deadline_s=10.0)
    if not decision.solved:  # within its deadline there is a checked decision, or it says that there is none
        continue
    session.apply(decision)
    decisions.append(decision)
    for name, option in zip(decision.ids, decision.option.tolist(), strict=True):
        if option >= 0:
            work[name] -= 60 * rates[name][option]
    ended = [name for name, left in work.items() if left <= 0]
    session.remove(ended)
    work = {name: left for name, left in work.items() if left > 0}
    gap, watts = decision.result.gap, decision.result.totals["power_w"]
    print(
        f"minute {minute:2}: {watts:5.0f} W, gap {100 * gap:.3f} %,",
        f"jobs decided: {len(decision.ids):2}, ended: {len(ended)}",
    )

# %% What one more GPU and one more watt were worth from minute to minute.
plot.save(plot.price_history(decisions), "prices.png")
print("Written to prices.png")
