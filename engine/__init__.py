"""wattsched: scheduling decisions for GPU clusters, with a bound and the price of every budget.

>>> import wattsched
>>> result = wattsched.solve("round.json", solver="highs", time_limit=10)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wattsched.version import __version__

if TYPE_CHECKING:
    from wattsched.comparisons.compare import compare as compare
    from wattsched.documents import check as check
    from wattsched.documents import read_instance as read_instance
    from wattsched.documents import read_result as read_result
    from wattsched.engine import solve as solve
    from wattsched.instances.errors import InputError as InputError
    from wattsched.instances.generators import generate as generate
    from wattsched.instances.sizing.decision import Decision as Decision
    from wattsched.instances.sizing.instance import Instance as Instance
    from wattsched.result import Result as Result
    from wattsched.tradeoffs import pareto as pareto


# Loaded on first use, so that `import wattsched` stays quick and quiet.
_HOMES = {
    "Decision": "wattsched.instances.sizing.decision",
    "InputError": "wattsched.instances.errors",
    "Instance": "wattsched.instances.sizing.instance",
    "Result": "wattsched.result",
    "check": "wattsched.documents",
    "compare": "wattsched.comparisons.compare",
    "generate": "wattsched.instances.generators",
    "pareto": "wattsched.tradeoffs",
    "read_instance": "wattsched.documents",
    "read_result": "wattsched.documents",
    "solve": "wattsched.engine",
}

__all__ = ["__version__", *_HOMES]  # the names of the table


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wattsched' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
