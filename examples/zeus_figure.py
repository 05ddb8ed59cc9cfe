"""A paper's figure again: energy against time of one training run, over batch sizes and power limits.

    python zeus_figure.py

DeepSpeech2 on one V100 to 40 % word error rate, the motivating example of Zeus (You, Chung, Chowdhury, NSDI
2023), from the profile that the package fits to Zeus' measurements. Its cells begin with `# %%`: editors, and
Jupyter by jupytext, open it as a notebook.
"""

# %% Every batch size under every power limit.
import matplotlib.pyplot as plt
import numpy as np

from wattsched.perfmodels import find
from wattsched.plot import save

profile = find("deepspeech2", "V100")
limits = np.arange(100.0, 251.0, 25.0)
runs = profile.configurations(
    8, gpu_counts=[1], batch_sizes=[16, 24, 32, 48, 64, 96, 128, 192], power_limits_w=limits
)

# %% Hours and megajoules; the published run at the defaults (batch 192, 250 W: 16.5 h, 9.5 MJ) is the unit.
default = (runs.batch_size == 192) & (runs.power_limit_w == 250)
hours = 16.5 * runs.rate[default] / runs.rate
megajoules = 9.5 * (runs.power_w / runs.rate) / (runs.power_w / runs.rate)[default]

# %% The published optima, and ours: the least energy and the shortest time.
for what, published, at in (
    ("least energy", "batch 32, 100 W, 5.5 MJ", megajoules.argmin()),
    ("shortest time", "batch 48, 250 W, 11.1 h", hours.argmin()),
):
    setting = f"batch {runs.batch_size[at]}, {runs.power_limit_w[at]:.0f} W"
    print(f"{what}: published {published}; here {setting}: {hours[at]:.1f} h, {megajoules[at]:.1f} MJ")

# %% The figure: only the lower left matters, and the default is far from it.
front = [i for i in np.argsort(hours) if all(megajoules[i] <= megajoules[hours <= hours[i]])]
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
drawn = axes.scatter(hours, megajoules, c=runs.power_limit_w, cmap="viridis", s=18)
axes.plot(hours[front], megajoules[front], color="black", linewidth=1, label="Pareto frontier")
axes.plot(
    hours[default], megajoules[default], "D", color="black", markersize=8, fillstyle="none", label="default"
)
axes.set_xlabel("time to accuracy, h")
axes.set_ylabel("energy to accuracy, MJ")
axes.legend()
figure.colorbar(drawn, label="power limit, W")
save(axes, "zeus.png")
print("Written to zeus.png")
