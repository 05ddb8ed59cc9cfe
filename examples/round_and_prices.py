"""A round and its prices: what one more watt would be worth, and what the price promises.

    python round_and_prices.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% Forty jobs on fifteen nodes of eight GPUs under a power cap.
import wattsched
from wattsched import plot

round_ = wattsched.generate("uniform", jobs=40, budget="power", seed=1)
result = wattsched.solve(round_, gap=1e-4)
print(f"{result.objective:,.0f} s of completion time, at most {100 * result.gap:.3f} % above the optimum")

# %% The proof stands by itself: the checker shares no code with formulations and solvers.
verdict = wattsched.check(round_, result)
print(f"proven: {100 * verdict.proven_gap:.3f} %, faults: {verdict.faults}")

# %% The price of the cap is what a watt more would save, in seconds of completion time.
cap_w, price = round_.budgets.power_w, abs(result.prices["power_w"])
print(f"cap {cap_w:,.0f} W; one more watt is worth {price:,.1f} s")

# %% By duality no cap can gain more than the price says. Compare with what it does gain.
gains = []
for share in (1.01, 1.05, 1.1, 1.2):
    budgets = round_.budgets.model_copy(update={"power_w": share * cap_w})
    more = wattsched.solve(round_.model_copy(update={"budgets": budgets}), gap=1e-4)
    most = price * (share - 1) * cap_w + (result.objective - result.bound)
    gains.append((result.objective - more.objective, most))
    print(
        f"{100 * (share - 1):3.0f} % more power: {gains[-1][0]:9,.0f} s sooner, at most {most:,.0f} by price"
    )
assert all(gain <= most for gain, most in gains)

# %% Who runs where.
plot.save(plot.cluster_map(round_, result), "round.png")
print("Written to round.png")
