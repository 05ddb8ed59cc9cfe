"""Placement policies: one scoring rule per file."""
