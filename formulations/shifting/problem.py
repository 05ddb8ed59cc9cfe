"""The problem `shifting`, as the engine knows it."""

from __future__ import annotations

from wattsched.formulations.problem import Problem
from wattsched.formulations.shifting import schedules, time_indexed
from wattsched.formulations.shifting.heuristics import carbon_blind, greedy
from wattsched.formulations.shifting.infeasibility import impossible, shortage
from wattsched.verification.shifting.bound import prove
from wattsched.verification.shifting.checker import check

PROBLEM = Problem(
    name="shifting",
    formulations={"schedules": schedules.build, "time-indexed": time_indexed.build},
    objectives={"completion": "min", "carbon": "min", "energy": "min", "money": "min"},
    rules={"greedy": greedy, "carbon-blind": carbon_blind},
    check=check,
    prove=prove,
    shortage=shortage,
    impossible=impossible,
)
