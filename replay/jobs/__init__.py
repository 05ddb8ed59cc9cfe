"""Event-driven replay of a trace of jobs on a cluster under scheduling policies."""
