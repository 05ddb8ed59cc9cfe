"""The shipped agent, as a module."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

AGENT = Path(__file__).resolve().parents[3] / "deploy" / "wattsched-agent"


def agent_module() -> ModuleType:
    """A module of its own with the code of the agent."""
    spec = spec_from_loader("wattsched_agent", SourceFileLoader("wattsched_agent", str(AGENT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
