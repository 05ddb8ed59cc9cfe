"""Replays of traces, their bounds and savings."""
