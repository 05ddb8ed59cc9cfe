"""Placement: which node and which of its GPUs take each task of a window."""
