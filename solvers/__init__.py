"""Solvers: a Program and Limits in, a Solution with bound and prices out."""
