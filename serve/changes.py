"""Changes of a session as documents: job records, updates, and the state that they lead to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from wattsched.instances.errors import InputError, repeated, shown, validated
from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.job import Job
from wattsched.sessions.session import Session
from wattsched.topology.columns import table_of

ARGUMENTS = tuple(signature(Session).parameters)
"""Fields of the document of a session: the arguments of `Session`."""

SERVICE = ("every_s",)
"""Fields of the document that are the service's own: seconds between rounds in the background."""

UPDATES = tuple(signature(Session.update).parameters)[1:]
"""Names of the arguments that `Session.update` takes."""

_LIMITS = ("power_w", "energy_j", "carbon_g", "least_goodput", "carbon_g_per_kwh", "price_per_kwh", "signal")


@contextmanager
def told_of_fields() -> Iterator[None]:
    """Turn what a session refuses of its arguments into an `InputError` on the document they came in."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError([str(error)]) from None


def session_of(document: Mapping[str, Any]) -> Session:
    """A session of its arguments as JSON."""
    if not isinstance(document, Mapping):
        raise InputError([f"the session must be an object, got {shown(document)}"])
    faults = [f"{name}: is not a known field" for name in document if name not in (*ARGUMENTS, *SERVICE)]
    faults += ["cluster: is missing"] if "cluster" not in document else []
    every_s = document.get("every_s")
    number = isinstance(every_s, int | float) and not isinstance(every_s, bool)
    if every_s is not None and not (number and 0.1 <= every_s <= 1e6):
        faults.append(f"every_s: must be a number of seconds from 0.1 to 1e6, got {shown(every_s)}")
    # A request or a journal names a formulation and a solver; it does not choose which file is executed.
    for field in ("formulation", "solver"):
        name = document.get(field)
        if isinstance(name, str) and ".py" in name:
            faults.append(f"{field}: must be one that is installed, no file, got '{name:.80}'")
    if faults:
        raise InputError(faults)
    with told_of_fields():
        return Session(**{name: value for name, value in document.items() if name in ARGUMENTS})


def upsert(session: Session, records: Sequence[Mapping[str, Any]]) -> None:
    """Add jobs, or change the given fields of those that are there; all of it or nothing."""
    _require_records(records)
    if not records:
        return
    names = [record["name"] for record in records]
    try:
        with told_of_fields():
            session.upsert(names, **_columns_of(session, records))
    except InputError as error:
        raise InputError([_placed(fault) for fault in error.faults]) from None


def _placed(fault: str) -> str:
    """A fault of a column as one of its record: ``gpus[3]`` is ``jobs[3].gpus``, ``held`` is ``current``."""
    return re.sub(r"(^|: )held\b", r"\1current", re.sub(r"^(\w+)\[(\d+)\]", r"jobs[\2].\1", fault))


def _require_records(records: Sequence[Any]) -> None:
    """Refuse what is no list of job records, each with a name and known fields."""
    if isinstance(records, str | Mapping) or not isinstance(records, Sequence):
        raise InputError([f"jobs: must be a list, got {shown(records)}"])
    faults = []
    for number, record in enumerate(records):
        if not isinstance(record, Mapping):
            faults.append(f"jobs[{number}]: must be an object, got {shown(record)}")
            continue
        strange = [name for name in record if name not in Job.model_fields]
        faults += [f"jobs[{number}].{name!s:.60}: is not a known field" for name in strange]
        if "name" not in record:
            faults.append(f"jobs[{number}].name: is missing")
        elif not isinstance(record["name"], str):
            faults.append(f"jobs[{number}].name: must be a valid string, got {shown(record['name'])}")
    if faults:
        raise InputError(faults)


def _columns_of(session: Session, records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Arguments of `Session.upsert`; a field that only some of the records give is filled for the others."""
    fields = list(dict.fromkeys(name for record in records for name in record if name != "name"))
    whole = [record for record in records if len(record) == len(fields) + 1]
    if len(whole) < len(records):
        if {"options", "model"} & set(fields):  # a job has one of them: where others change, both are told
            fields = list(dict.fromkeys([*fields, "options", "model"]))
        records = _filled(session, records, fields)
    columns = {name: [record[name] for record in records] for name in fields}
    if "current" in columns:
        columns["held"] = columns.pop("current")
    return columns


def _filled(
    session: Session, records: Sequence[Mapping[str, Any]], fields: Sequence[str]
) -> list[dict[str, Any]]:
    """Records that give all of some fields: as the session has them, or by default."""
    jobs = session.to_instance().by_column()
    default = {name: Job.model_fields[name].get_default(call_default_factory=True) for name in fields}
    filled = []
    for record in records:
        place = jobs.place.get(record["name"])
        known = {} if place is None else _given(jobs[place], fields)
        if record.keys() & {"options", "model"}:  # one takes the place of the other
            known |= {"options": None, "model": None}
        filled.append({**default, **known, **record})
    return filled


def _given(job: Job, fields: Sequence[str]) -> dict[str, Any]:
    """Some fields of a job, as a record has them."""
    found = {name: getattr(job, name) for name in fields}
    if found.get("current") is not None:
        found["current"] = found["current"].model_dump()
    return found


def remove(session: Session, ids: Sequence[str]) -> None:
    """Take jobs out; all of them or none."""
    with told_of_fields():
        session.remove(ids)


def change_jobs(session: Session, records: Sequence[Mapping[str, Any]], gone: Sequence[str]) -> None:
    """Add or change jobs, and take others out; all of it or nothing."""
    _require_records(records)
    both = {record["name"] for record in records}
    faults = [f"remove: must be names, got {shown(name)}" for name in gone if not isinstance(name, str)]
    faults += [] if faults else list(repeated("job to remove", gone))
    if not faults:
        faults += [f"remove: job '{name:.80}' is among the jobs, too" for name in gone if name in both]
        faults += [f"remove: there is no job '{name:.80}'" for name in gone if name not in session]
    if faults:
        raise InputError(faults)
    upsert(session, records)
    if gone:
        remove(session, gone)


def update(session: Session, changes: Mapping[str, Any]) -> None:
    """Change the round."""
    _require_known(changes)
    if isinstance(file := changes.get("signal"), str | Path):
        raise InputError([f"signal: must be an object, got {shown(str(file))}"])  # a file may change
    with told_of_fields():
        session.update(**changes)


def _require_known(changes: Mapping[str, Any]) -> None:
    if faults := [f"{name!s:.60}: is not a known field" for name in changes if name not in UPDATES]:
        raise InputError(faults)


def require_values(changes: Mapping[str, Any]) -> None:
    """Refuse what is no update, and null where there is no limit that it would take away."""
    if not isinstance(changes, Mapping):
        raise InputError([f"the changes must be an object, got {shown(changes)}"])
    _require_known(changes)
    empty = [name for name in UPDATES if name in changes and changes[name] is None and name not in _LIMITS]
    if empty:
        raise InputError([f"{name}: must not be null, which takes limits away only" for name in empty])


def merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """One update that does what an earlier one and then another one do."""
    # None says nothing, but for limits, which it takes away.
    told = {name: value for name, value in changes.items() if value is not None or name in _LIMITS}
    of_nodes = before
    if "cluster" in told:
        # All its nodes are up, and without a capacity of its own it keeps the present one.
        earlier = before.get("cluster", {})
        kept = {"capacity": earlier["capacity"]} if "capacity" in earlier else {}
        told["cluster"], of_nodes = {**kept, **told["cluster"]}, {}
    after = {**before, **told}
    for name in ("reserved_w", "unavailable"):
        after[name] = {**of_nodes.get(name, {}), **told.get(name, {})}
    still = {*of_nodes.get("down", ())} - {*told.get("up", ())}
    after["down"] = sorted(still | {*told.get("down", ())})
    return {name: value for name, value in after.items() if name != "up"}


def state_of(session: Session, updates: Mapping[str, Any]) -> dict[str, Any]:
    """All that makes a session what it is, besides its arguments: `merged` updates, and jobs by column."""
    jobs = session.to_instance().by_column().document()
    return {"updates": updates, "jobs": jobs, "told": sorted(session.told)}


def restore(session: Session, state: Mapping[str, Any]) -> None:
    """Make a new session what the one was whose `state_of` is given."""
    update(session, state["updates"])
    jobs = dict(state["jobs"])
    names, held = jobs.pop("name"), jobs.pop("current", None)
    if isinstance(held, Mapping):
        table = validated(table_of(AssignmentColumns), held)
        held = AssignmentColumns.of({name: column for name, column in table if column is not None})
    if names:
        session.upsert(names, **jobs, **({} if held is None else {"held": held}))
    session.told = frozenset(state.get("told", ()))
