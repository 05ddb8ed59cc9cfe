"""JSON of a service's answers: sessions, decisions, and the changes that shadow mode would have made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pydantic_core

from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.serve.recorded import RecordedSession
from wattsched.serve.rounds import Round

_OF_ROUND = {"objective", "round_s", "change_cost", "budgets", "carbon_g_per_kwh", "price_per_kwh"}
_OF_RESULT = ("objective_name", "objective", "bound", "gap", "proven_gap", "prices", "totals")


def json_bytes(document: Any) -> bytes:
    """A document as JSON; what is no text in Unicode is escaped, and does not fail."""
    try:
        return pydantic_core.to_json(document)
    except ValueError:
        return json.dumps(document).encode()


def session_document(session: RecordedSession, every_s: float | None) -> dict[str, Any]:
    """A session as it is now, without its jobs one by one."""
    now, last = session.session.to_instance(), session.last
    jobs = now.by_column()
    nodes = now.cluster.node_columns()
    gpus = nodes.available
    return {
        "name": session.name,
        **now.model_dump(include=_OF_ROUND),
        **session.session.following.model_dump(mode="json", by_alias=True, exclude_none=True),
        "every_s": every_s,
        "tenants": {name: tenant.model_dump(exclude_defaults=True) for name, tenant in now.tenants.items()},
        "nodes": len(gpus),
        "gpus": int(gpus.sum()),
        "without_gpus": [name for name, some in zip(nodes.names, gpus.tolist(), strict=True) if not some],
        "jobs": len(jobs),
        "running": len(jobs.running),
        "last_round": None if last is None else last.number,
        "prices": {} if last is None else last.decision.prices,
    }


def jobs_document(session: RecordedSession, first: int, most: int) -> dict[str, Any]:
    """Some of the jobs as files have them, and how many there are."""
    jobs = session.session.to_instance().by_column()
    chosen = jobs[first : first + most]
    return {
        "count": len(jobs),
        "jobs": [job.model_dump(mode="json", exclude_defaults=True) for job in chosen],
    }


def decision_document(made: Round) -> dict[str, Any]:
    """A decision: what every job does, what that is worth, and what changes by it."""
    decision, result = made.decision, made.decision.brief
    running = _running(decision.assignments)
    return {
        "round": made.number,
        "time": made.time,
        "termination": result.termination.model_dump(),
        **{name: getattr(result, name) for name in _OF_RESULT},
        "solve_s": result.time_s.get("total"),
        "jobs": running,
        "waiting": [name for name in decision.ids if name not in running] if decision.solved else [],
        "options": dict(zip(decision.ids, decision.option.tolist(), strict=True)),
        "reasons": decision.reasons,
        "changes": decision.changes,
    }


def _running(assignments: AssignmentColumns) -> dict[str, dict[str, Any]]:
    """Return the settings of every running job, by job, without those that it has not."""
    fields = assignments.fields()
    rows = (dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True))
    return {row.pop("job"): {name: value for name, value in row.items() if value is not None} for row in rows}


def report_document(rounds: Iterable[Round]) -> dict[str, Any]:
    """Return the changes that decisions would have made to what ran, where they were only recorded."""
    lines: list[dict[str, Any]] = [
        {
            "round": made.number,
            "time": made.time,
            "power_w": made.decision.brief.totals.get("power_w"),
            "changes": made.decision.changes,
            "counts": dict(Counter(made.decision.changes.values())),
        }
        for made in rounds
    ]
    in_all = Counter(change for line in lines for change in line["changes"].values())
    return {"rounds": lines, "counts": dict(in_all)}
