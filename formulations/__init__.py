"""Formulations: an instance as a Program, and a solution as a decision; heuristics of every problem."""
