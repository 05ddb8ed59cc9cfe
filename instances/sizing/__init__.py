"""Rounds: jobs that may run in many configurations, now."""
