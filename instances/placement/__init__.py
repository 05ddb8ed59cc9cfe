"""Placement: tasks to place on the GPUs of nodes."""
