"""The version of the package, which files and caches name: the one that `pyproject.toml` tells.

Nothing that is quick imports this: reading the metadata takes as long as all else of ``wattsched --help``.
"""

from importlib.metadata import version

__version__ = version("wattsched")
