"""Your cluster's savings: from Slurm's own output to kWh, with an interval and with those who pay for it.

    python cluster_savings.py [FOLDER]

FOLDER has files of what `sacct`, `scontrol show node` and `scontrol show topology` say; `site` beside this
file is one. Cells begin with `# %%`: editors, and Jupyter by jupytext, open the file as a notebook.
"""

# %% Slurm's words become a list of jobs and a cluster.
import subprocess
import sys
import warnings
from pathlib import Path

import wattsched
from wattsched import plot
from wattsched.replaying.savings import savings

# What is assumed comes as warnings: one line each.
warnings.formatwarning = lambda message, *_, **__: f"{message}\n"
site = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "site")
files = sorted(map(str, site.iterdir()))
imported = ["import", "slurm", *files, "--time-zone", "Europe/Berlin", "-o", "mysite"]
subprocess.run([sys.executable, "-m", "wattsched", *imported], check=True)

# %% Every job keeps the GPUs that it had (`elasticity=1`); clocks and batch sizes are free.
jobs = wattsched.JobSource("mysite/jobs.csv", elasticity=1)
cluster = wattsched.read_cluster("mysite/cluster.json")
settings = wattsched.ReplaySettings(gap=1e-2, carbon=380.0)
found = savings(
    jobs, cluster, policies=["powerflow", "sizing"], levels=(1.0, 0.5), settings=settings, inputs=()
)

# %% What would be saved at the same mean completion time, and who would be served later.
for one in found.policies:
    if one.energy is None:
        print(f"{one.policy}: none of these budgets keeps the mean completion time")
        continue
    low, high = one.energy.low or one.energy.mean, one.energy.high or one.energy.mean
    print(
        f"{one.policy}: {100 * one.energy.mean:.0f} % ({100 * low:.0f} to {100 * high:.0f} %) of the energy,"
    )
    print(
        f"  {one.energy_j.mean / 3.6e6:.0f} kWh and {one.carbon_g.mean / 1000:.0f} kg of CO2",
        f"in {found.days:.1f} days;",
    )
    print(f"  the 99th percentile would be {one.losers.p99:.2f} times as late,")
    later = {user: ratio for user, ratio in one.losers.users.items() if ratio > 1.1}
    for user, ratio in sorted(later.items(), key=lambda pair: -pair[1]):
        print(f"  jobs of {user} would take {ratio:.2f} times as long")

# %% The frontier, and the assumptions that no figure should travel without.
plot.save(plot.frontier(found), "savings.png")
print("\n".join(["Written to savings.png", "Assumed:", *(f"- {line}" for line in found.assumptions)]))
