"""Replay: streams of tasks and jobs through a cluster under a policy, accounted for at every moment."""
