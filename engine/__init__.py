"""wattsched: scheduling decisions for GPU clusters, with a bound and the price of every budget.

>>> import wattsched
>>> result = wattsched.solve("round.json", solver="highs", time_limit=10)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattsched import plot as plot
    from wattsched.comparisons.compare import compare as compare
    from wattsched.environment.version import __version__ as __version__
    from wattsched.explaining.explain import explain as explain
    from wattsched.files.exchange import export_program as export_program
    from wattsched.files.exchange import export_topology as export_topology
    from wattsched.files.exchange import import_trace as import_trace
    from wattsched.files.exchange import json_schema as json_schema
    from wattsched.files.exchange import read_cluster as read_cluster
    from wattsched.files.solutions import export_solution as export_solution
    from wattsched.files.solutions import import_solution as import_solution
    from wattsched.instances.errors import InputError as InputError
    from wattsched.instances.generators import generate as generate
    from wattsched.instances.sizing.decision import AssignmentColumns as AssignmentColumns
    from wattsched.instances.sizing.decision import Decision as Decision
    from wattsched.instances.sizing.instance import Instance as Instance
    from wattsched.instances.sizing.job_columns import JobColumns as JobColumns
    from wattsched.perfmodels.fit import fit_profile as fit_profile
    from wattsched.replaying.job_sources import JobSource as JobSource
    from wattsched.replaying.placements import place_tasks as place_tasks
    from wattsched.replaying.placements import read_experiment as read_experiment
    from wattsched.replaying.replay_bounds import read_replay_bound as read_replay_bound
    from wattsched.replaying.replay_bounds import replay_bound as replay_bound
    from wattsched.replaying.replay_settings import ReplaySettings as ReplaySettings
    from wattsched.replaying.replays import Journal as Journal
    from wattsched.replaying.replays import replay_jobs as replay_jobs
    from wattsched.results.documents import check as check
    from wattsched.results.documents import read_instance as read_instance
    from wattsched.results.documents import read_result as read_result
    from wattsched.results.documents import write_document as write_document
    from wattsched.results.result import Result as Result
    from wattsched.running.dask_clusters import dask_executor as dask_executor
    from wattsched.sessions.session import Session as Session
    from wattsched.sessions.session_decision import SessionDecision as SessionDecision
    from wattsched.solving.defragment import defragment as defragment
    from wattsched.solving.engine import solve as solve
    from wattsched.solving.k_best import k_best as k_best
    from wattsched.solving.marginal import marginal_prices as marginal_prices
    from wattsched.solving.offers import offer as offer
    from wattsched.solving.shares import TimeShares as TimeShares
    from wattsched.solving.shares import time_shares as time_shares
    from wattsched.solving.tradeoffs import pareto as pareto
    from wattsched.solving.what_if import sweep as sweep
    from wattsched.solving.what_if import what_if as what_if
    from wattsched.topology.column import Coded as Coded


# Loaded on first use, so that `import wattsched` stays quick and quiet.
_NAMES = {
    "comparisons.compare": ("compare",),
    "running.dask_clusters": ("dask_executor",),
    "results.documents": ("check", "read_instance", "read_result", "write_document"),
    "solving.defragment": ("defragment",),
    "solving.engine": ("solve",),
    "explaining.explain": ("explain",),
    "files.exchange": ("export_program", "export_topology", "import_trace", "json_schema", "read_cluster"),
    "instances.errors": ("InputError",),
    "instances.generators": ("generate",),
    "instances.sizing.decision": ("AssignmentColumns", "Decision"),
    "instances.sizing.instance": ("Instance",),
    "instances.sizing.job_columns": ("JobColumns",),
    "replaying.job_sources": ("JobSource",),
    "perfmodels.fit": ("fit_profile",),
    "replaying.placements": ("place_tasks", "read_experiment"),
    "replaying.replay_bounds": ("read_replay_bound", "replay_bound"),
    "replaying.replay_settings": ("ReplaySettings",),
    "replaying.replays": ("Journal", "replay_jobs"),
    "results.result": ("Result",),
    "sessions.session": ("Session",),
    "sessions.session_decision": ("SessionDecision",),
    "solving.k_best": ("k_best",),
    "solving.marginal": ("marginal_prices",),
    "solving.offers": ("offer",),
    "solving.shares": ("TimeShares", "time_shares"),
    "files.solutions": ("export_solution", "import_solution"),
    "topology.column": ("Coded",),
    "solving.tradeoffs": ("pareto",),
    "solving.what_if": ("sweep", "what_if"),
    "environment.version": ("__version__",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

_PARTS = ("plot",)

__all__ = [*_PARTS, *_HOMES]  # the names of the table


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"wattsched.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'wattsched' has no attribute '{name}'")
    return getattr(import_module(f"wattsched.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
