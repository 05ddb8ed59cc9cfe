"""Optional dependencies, the extras of `pyproject.toml`, and how to say that one is missing."""

from __future__ import annotations

from importlib.util import find_spec

EXTRAS = {
    "cluster": ("distributed",),
    "kubernetes": ("kubernetes",),
    "parquet": ("pyarrow",),
    "plot": ("matplotlib",),
    "report": ("jinja2",),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
}
"""Extra -> the modules without which nothing works that needs it."""


def missing(extra: str) -> str:
    """Name what is not installed of an extra, to follow ``--plot needs``; empty where all is there."""
    absent = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if not absent:
        return ""
    verb = "is" if len(absent) == 1 else "are"
    return f"{', '.join(absent)}, which {verb} not installed (pip install 'wattsched[{extra}]')"
