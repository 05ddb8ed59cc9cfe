"""The library: instances by which solvers are compared, and the best that is known of each, with proofs."""

OWN = "best_known.json"
"""Default name of the file with a user's records."""
