"""Imports that are late or may fail: functions of rooms, and the extras of `pyproject.toml`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

EXTRAS = {
    "cluster": ("distributed",),
    "kubernetes": ("kubernetes",),
    "parquet": ("pyarrow",),
    "plot": ("matplotlib",),
    "report": ("jinja2", "matplotlib"),
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


def late(place: str) -> Callable[..., Any]:
    """Function of a room, which is imported when it is called first: ``formulations.sizing.mckp:build``."""
    found = cache(resolve_name)

    def call(*arguments: Any, **named: Any) -> Any:
        return found(f"wattsched.{place}")(*arguments, **named)

    return call
