"""Measurements: each module makes tables of docs/tables."""
