"""Kubernetes as the scheduler that acts: pods wait until a round says on which node each runs."""
