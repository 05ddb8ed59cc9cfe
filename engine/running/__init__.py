"""Executors, which run many calls side by side."""
