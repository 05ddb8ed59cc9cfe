"""Tolerances for equality in floating point, for formulations and solvers; the checker has its own.

All are relative to the size of what is compared.
"""

from __future__ import annotations

LAST_DIGITS = 1e-12
"""Two ways to compute a number differ by no more: a time that equals its deadline keeps it."""

CANCELLATION = 1e-14
"""Error of the difference of two sums, relative to these: all that is left where they are equal."""

ROUNDING = 1e-9
"""Rounding of sums over many numbers, and of what a solver calls exact."""

VIOLATION = 1e-9
"""Largest violation of a row, relative to its bound, or of integrality in the points that solvers return."""

OVERDRAFT = 1e-10
"""Part of a row's limit that rules overdraw: well inside `VIOLATION`."""

FRACTIONAL = 1e-6
"""A choice of an LP's point that is farther from 0 and 1 than this is split by branching."""

REDUCED_COST = 1e-8
"""A column is of use to an LP when it improves a typical cost by more."""

FEASIBILITY = 1e-6
"""Part by which a row may be exceeded, as the checker allows for budgets."""
