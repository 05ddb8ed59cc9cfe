"""A bound on every schedule of a trace, by prices of GPU seconds in slots of time."""
