"""Kubernetes as the scheduler that acts: pods wait for a decision; each round says which runs on which node."""
