"""wattsched: scheduling decisions for GPU clusters, with a bound and the price of every budget.

>>> import wattsched
>>> result = wattsched.solve("round.json", solver="highs", time_limit=10)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattsched.engine import solve as solve
    from wattsched.instances.checker import check as check
    from wattsched.instances.decision import Decision as Decision
    from wattsched.instances.files import InputError as InputError
    from wattsched.instances.files import read_instance as read_instance
    from wattsched.instances.generators import generate as generate
    from wattsched.instances.instance import Instance as Instance
    from wattsched.plan_result import PlanResult as PlanResult
    from wattsched.planning import plan as plan
    from wattsched.result import Result as Result

__version__ = "0.1.0"

# In a checkout the sub-packages lie beside this folder. Python puts the current folder first on its path,
# so without this an interpreter started in the checkout would find a package without its parts.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))

# Loaded on first use, so that `import wattsched` stays quick and quiet.
_HOMES = {
    "Decision": "wattsched.instances.decision",
    "InputError": "wattsched.instances.files",
    "Instance": "wattsched.instances.instance",
    "PlanResult": "wattsched.plan_result",
    "Result": "wattsched.result",
    "check": "wattsched.instances.checker",
    "generate": "wattsched.instances.generators",
    "plan": "wattsched.planning",
    "read_instance": "wattsched.instances.files",
    "solve": "wattsched.engine",
}

__all__ = ["__version__", *_HOMES]  # the names of the table


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wattsched' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
