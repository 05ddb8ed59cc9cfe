"""Shifting: configurations over the slots of a horizon, as carbon intensity and price change."""
