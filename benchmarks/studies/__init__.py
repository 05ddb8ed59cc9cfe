"""Comparisons with what others have published, and with their simulators."""
