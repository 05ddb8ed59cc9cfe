"""Comparisons of formulations and solvers over instances: runs, agreement, statistics, plots."""
