"""The library: instances by which solvers are compared, and the best that is known of each, with proofs."""

OWN = "best_known.json"
"""Where a user's records are, unless something else is said."""
