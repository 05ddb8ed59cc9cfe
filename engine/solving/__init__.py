"""One call: read, build, solve, check, certify."""
