"""Checking decisions and proving bounds anew, from instances alone; nothing of formulations and solvers."""
