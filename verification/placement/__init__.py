"""Checking decisions of `placement`, and proving bounds on them."""
