"""Your own formulation against ours: the same optima, and how large and how quick the programs are.

    python own_formulation.py

Its cells begin with `# %%`: editors, and Jupyter by jupytext, open it as a notebook.
"""

# %% A formulation is one function: a Pyomo model of the round and its choice variables. This one states how
# blocks are split, where `mckp` states which sizes fit.
from pathlib import Path

import wattsched
from wattsched.comparisons.run import Settings

Path("splitting.py").write_text("""
import pyomo.environ as pyo


def splitting(round):
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(len(round.choices)), domain=pyo.Binary)
    m.one = pyo.Constraint(round.jobs, rule=lambda m, j: sum(m.x[c] for c in round.of_job(j)) == 1)

    levels = [(p, k) for p in round.pools for k in range(len(round.free_blocks[p]))]
    m.split = pyo.Var(levels, domain=pyo.NonNegativeIntegers, bounds=(0, 10_000))

    @m.Constraint(levels)
    def blocks(m, p, k):
        here = [c for c, o in enumerate(round.choices) if o.needs_room and (o.pool, o.block) == (p, 2**k)]
        halves = 2 * m.split[p, k + 1] if (p, k + 1) in m.split else 0
        return sum(m.x[c] for c in here) + m.split[p, k] <= round.free_blocks[p][k] + halves

    m.budgets = pyo.ConstraintList()
    for limit in round.budgets:
        m.budgets.add(sum(use * m.x[c] for c, use in limit.use.items()) <= limit.capacity)
    return m, m.x
""")

# %% Many small rounds first, to the optimum: `compare` checks every answer and reports every contradiction.
Path("rounds").mkdir(exist_ok=True)
files = [Path("rounds") / f"round-{seed}.json" for seed in range(5)]
for seed, file in enumerate(files):
    wattsched.write_document(file, wattsched.generate("uniform", jobs=12, seed=seed, budget="power"))
found = wattsched.compare(
    files, formulations=["mckp", "splitting.py:splitting"], solvers=["highs"], settings=Settings(gap=0.0)
)
print("contradictions:", found.disagreements, "failures:", found.failures)
assert not found.disagreements
assert not found.failures

# %% Both reach the same objective; what differs is the program.
for run in found.runs:
    print(f"{run.instance}  {run.pair:<32} {run.objective:12,.1f}  {run.columns:4} x {run.rows:3}")
