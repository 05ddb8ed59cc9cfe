"""The environment: optional packages, signals, the version."""
