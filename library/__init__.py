"""The library: instances by which solvers are compared, and the best that is known of each, with proofs."""
