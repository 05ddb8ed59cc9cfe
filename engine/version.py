"""The version of the package, which files and caches name."""

__version__ = "0.1.0"
