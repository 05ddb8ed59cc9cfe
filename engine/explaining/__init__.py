"""Explanations: why a job waits, and the least changes with which it would run."""
