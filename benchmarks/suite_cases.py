"""The fixed cases of the benchmark suite: which rounds, and who solves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GAP = 1e-4
"""Asked of everybody: HiGHS's default."""

LARGEST_S = 60.0
"""Least limit of the rounds that only our own solvers take on."""

_LABELS = {"racks": "{} racks", "energy_fraction": "energy at {:.0%}"}

FAST = ("price", "greedy")
MEMBERS = ("price", "highs", "cpsat")
"""Solvers that `auto` chooses from."""
OWN = ("price", "auto", "greedy", "powerflow", "highs", "cpsat", "pyomo:highs")
MANY = (*OWN, "linopy", "mathopt", "scip", "pop:4", "pop:16", "lp")
LARGE = ("price", "auto", "greedy", "powerflow", "highs", "pop:16", "lp")


@dataclass(frozen=True)
class Case:
    """A generated round, its solvers, and the gap that `price` is asked for besides the common one."""

    family: str
    jobs: int
    solvers: tuple[str, ...] = MANY
    options: dict[str, Any] = field(default_factory=dict)
    own_gap: float | None = None

    def limit_s(self, common_s: float) -> float:
        """Seconds for each run: where nobody else is kept waiting, `LARGEST_S` at least."""
        return max(common_s, LARGEST_S) if self.solvers == FAST else common_s

    @property
    def name(self) -> str:
        """Name for tables."""
        extra = "".join(f", {_LABELS[option].format(value)}" for option, value in self.options.items())
        return f"{self.family}, {self.jobs:,} jobs{extra}"


CASES = (
    Case("uniform", 200, own_gap=1e-6),
    Case("philly-like", 300),
    Case("sia-like", 500),
    Case("hetero", 60),
    Case("uniform", 1_000, own_gap=1e-6),
    Case("uniform", 5_000, own_gap=1e-6),
    Case("uniform", 20_000, LARGE, own_gap=1e-6),
    Case("sia-like", 4_000),
    Case("hetero", 1_000, LARGE, {"racks": 32}, own_gap=1e-3),
    Case("hetero", 1_000, FAST, {"racks": 32, "energy_fraction": 0.4}, own_gap=1e-3),
    Case("hetero", 1_000, FAST, {"racks": 32, "energy_fraction": 0.8}, own_gap=1e-3),
    Case("hetero", 5_000, FAST, {"racks": 16, "energy_fraction": 0.4}, own_gap=1e-3),
    Case("uniform", 100_000, FAST, own_gap=1e-5),
)
QUICK = (
    Case("uniform", 20, ("price", "greedy", "highs", "pop:4", "lp", "nonsense"), own_gap=1e-6),
    Case("sia-like", 12, ("price", "highs", "pop:4", "lp")),
)

SEED = 1
SMALL = {"jobs": 20, "gpus": 64}
"""A `sia-like` round that is solved whole, many times."""
SMALL_SOLVERS = ("highs", "price", "auto", "greedy")
WHOLE_JOBS = 100_000
"""Jobs of the `uniform` round that the command line solves."""
WHOLE_GAP = 1e-5
