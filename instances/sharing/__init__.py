"""Sharing: which jobs share a set of GPUs."""
