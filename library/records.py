"""The best that is known of each instance: a decision, a bound, who found them, and a result that proves it.

The records of a version are `best_known.json`, and their results `results.zip`, one for each. A file of a
user has the records that are better than these, each with its result in it; it is read over the others.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal
from zipfile import ZipFile

from pydantic import Field

from wattsched.comparisons.run import versions
from wattsched.instances.errors import InputError, shown, validated
from wattsched.instances.io import parse_json, read_json, write_json
from wattsched.library.entries import Class, Entry, entries, library
from wattsched.results.documents import result_of
from wattsched.results.result import Result
from wattsched.solvers.solution import relative_gap
from wattsched.topology.fields import Name, NonNegative, Strict

FORMAT = "wattsched-best-known/1"
FILE, RESULTS = "best_known.json", "results.zip"
SAME = 1e-9
"""So close, relative to their size, two objectives or bounds are the same."""

PROVEN_GAP = 1e-4
"""Instances whose gap is proven to be no larger are closed."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Finder(Strict):
    """Origin of a decision or a bound: formulation, solver, versions, and seconds of the call.

    `version` names wattsched and the libraries of solvers with their versions where the result was taken in;
    `decided_by` names the maker of the decision where that was not the solver asked for.
    """

    formulation: str
    solver: str
    version: str
    seconds: NonNegative
    decided_by: str = ""

    @classmethod
    def of(cls, result: Result) -> Finder:
        """Finder of what a result has."""
        return cls(
            formulation=result.formulation,
            solver=result.solver,
            version=", ".join(f"{name} {one}" for name, one in versions().items() if one != "none"),
            seconds=round(result.time_s.get("total", 0.0), 3),
            decided_by=result.decided_by,
        )


class Record(Strict):
    """The best that is known of an entry.

    Attributes
    ----------
    objective : float
        Of the best decision, as the checker computes it.
    bound : float, optional
        What no decision is better than, by the certificate of the result.
    gap : float, optional
        Between the two, relative to the objective.
    difficulty : {"easy", "hard", "open"}
        Whether a general solver has solved it within a minute, only wattsched's own has, or nobody has.
    solved_by : dict of str to float
        Solvers that say that they have reached a gap of 1e-4, and their seconds.
    result : dict, optional
        In a user's file: the result itself.
    """

    name: Name
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    objective_name: Name
    sense: Literal["min", "max"]
    objective: Finite
    bound: Finite | None = None
    gap: Finite | None = None
    difficulty: Class = "open"
    solved_by: dict[str, NonNegative] = Field(default_factory=dict)
    decision_by: Finder
    bound_by: Finder | None = None
    result: dict[str, Any] | None = None

    @property
    def closed(self) -> bool:
        """True if the certificate proves the decision to a gap of 1e-4."""
        return self.gap is not None and self.gap <= PROVEN_GAP


class BestKnown(Strict):
    """The file of the records."""

    format: Literal["wattsched-best-known/1"] = "wattsched-best-known/1"
    library: str
    records: list[Record]


@cache
def shipped() -> Mapping[str, Record]:
    """Records that come with this version, by name."""
    text = files("wattsched.library").joinpath(FILE).read_text(encoding="utf-8")
    return {record.name: record for record in BestKnown.model_validate(json.loads(text)).records}


def own_records(file: str | Path) -> dict[str, Record]:
    """Records of a user's file by name, none where there is no file.

    An InputError for a file that is none of records, is of another version of the library, or has records of
    what is not in it, or some twice.
    """
    if not Path(file).exists():
        return {}
    document = read_json(file)
    told = document.get("format") if isinstance(document, dict) else None
    if told != FORMAT:
        raise InputError([f"is no file of records: its format is {shown(told)}, not '{FORMAT}'"], str(file))
    found = validated(BestKnown, document, str(file))
    if faults := list(_faults_in(found)):
        raise InputError(faults, str(file))
    return {record.name: record for record in found.records}


def _faults_in(found: BestKnown) -> Iterator[str]:
    """Yield the faults of a user's records before any is proven."""
    known, named = entries(), Counter(record.name for record in found.records)
    if found.library != (version := library().version):
        yield f"library: the records are of version '{found.library}' of the library, this is '{version}'"
    for i, record in enumerate(found.records):
        if record.name not in known or record.digest != known[record.name].digest:
            yield f"records[{i}]: '{record.name}' is no instance of the library, or not this one"
        elif (told := (record.sense, record.objective_name)) != (own := known[record.name].goal):
            yield f"records[{i}]: '{record.name}' says '{' '.join(told)}', the objective is '{' '.join(own)}'"
        if record.result is None:
            yield f"records[{i}]: '{record.name}' has no result, which proves it"
        elif (found_value := record.result.get("objective")) != record.objective:
            value = shown(found_value)
            yield f"records[{i}]: '{record.name}' is worth {record.objective:.10g}, its result says {value}"
    yield from (f"records: '{name}' is there {times} times" for name, times in named.items() if times > 1)


def best_known(file: str | Path | None = None) -> dict[str, Record]:
    """Records that come with this version, and those of a user's file in their place; it began with them."""
    own = {} if file is None else own_records(file)
    return {**shipped(), **own}


def result_of_record(record: Record) -> Result:
    """The result that proves a record; an InputError if it is damaged."""
    if record.result is not None:
        return result_of(record.result, f"the result of {record.name}")
    with files("wattsched.library").joinpath(RESULTS).open("rb") as shipped_results:
        content = ZipFile(shipped_results).read(f"{record.name}.json")
    return result_of(parse_json(content), f"the result of {record.name}")


def record_of(entry: Entry, result: Result, found: Finder, before: Record | None = None) -> Record:
    """Record of a result that has been checked.

    `found` is the finder of what is better than in the record `before`; what is as good keeps its own.
    """
    assert result.objective is not None
    decision_by, bound_by = found, None if result.certificate is None else found
    if before is not None and _same(before.objective, result.objective):
        decision_by = before.decision_by
    if before is not None and before.bound is not None and _same(before.bound, result.bound):
        bound_by = before.bound_by
    return Record(
        name=entry.name,
        digest=entry.digest,
        objective_name=result.objective_name,
        sense=result.sense,
        objective=result.objective,
        bound=result.bound,
        gap=result.proven_gap,
        difficulty="open" if before is None else before.difficulty,
        solved_by={} if before is None else before.solved_by,
        decision_by=decision_by,
        bound_by=bound_by,
    )


def merged(first: Result, second: Result) -> Result:
    """Result with the better decision and the better certificate of two of the same instance."""
    sign = 1.0 if first.sense == "min" else -1.0
    both = first, second
    decided = min(both, key=lambda r: math.inf if r.objective is None else sign * r.objective)
    proven = min(both, key=lambda r: math.inf if r.certificate is None else -sign * r.certificate.bound)
    if decided is proven or proven.certificate is None:
        return decided.as_proven()
    stated = {"certificate": proven.certificate, "prices": proven.prices}
    if decided.objective is not None:
        stated["proven_gap"] = relative_gap(decided.objective, proven.certificate.bound)
    return decided.model_copy(update=stated).as_proven()


def bettered(result: Result, record: Record) -> tuple[bool, bool]:
    """Return whether the decision, and the proven bound, of a checked result are better than a record's."""
    sign = 1.0 if record.sense == "min" else -1.0
    proven = None if result.certificate is None else result.certificate.bound
    return _better(sign, result.objective, record.objective), _better(-sign, proven, record.bound)


def betters(result: Result, record: Record) -> Iterator[str]:
    """Yield in words what a checked result has better than a record: the decision, the bound."""
    decision, bound = bettered(result, record)
    if decision:
        yield f"the decision is worth {result.objective:.10g}, was {record.objective:.10g}"
    if bound and result.certificate is not None:
        proven = result.certificate.bound
        was = "nothing was" if record.bound is None else f"was {record.bound:.10g}"
        yield f"a bound of {proven:.10g} is proven, {was}"


def disproof(result: Result, record: Record) -> str:
    """Return the reason why a record cannot be true where a result is, in words; empty where both can be.

    Decisions may beat bounds by the tolerance of budgets, so only more than 1e-4 is a contradiction.
    """
    sign = 1.0 if result.sense == "min" else -1.0
    proven = None if result.certificate is None else result.certificate.bound
    if _beats(sign, record.objective, proven):
        return f"it has a decision worth {record.objective:.10g}, a bound of {proven:.10g} is proven"
    if _beats(sign, result.objective, record.bound):
        return f"it has a bound of {record.bound:.10g}, a decision is worth {result.objective:.10g}"
    return ""


def _beats(sign: float, objective: float | None, bound: float | None) -> bool:
    """True if an objective is better than a bound allows; the sign is 1 for least, -1 for most."""
    if objective is None or bound is None:
        return False
    return sign * (bound - objective) > PROVEN_GAP * max(1.0, abs(objective), abs(bound))


def _better(sign: float, value: float | None, known: float | None) -> bool:
    """True if a value, times the sign, is less than the known one by more than rounding."""
    if value is None or known is None:
        return value is not None
    return not _same(value, known) and sign * value < sign * known


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return abs(first - second) <= SAME * max(1.0, abs(first), abs(second))


def document_of(result: Result) -> dict[str, Any]:
    """A result without what has its default."""
    document: dict[str, Any] = result.model_dump(mode="json", exclude_defaults=True, exclude={"decision"})
    decision: Any = result.decision
    kept = {} if decision is None else {"decision": decision.model_dump(mode="json", exclude_defaults=True)}
    return {"format": result.format, **document, **kept}


def write_own(records: Mapping[str, Record], file: str | Path) -> None:
    """Write a user's file of records, in one step."""
    known = BestKnown(library=library().version, records=[records[name] for name in sorted(records)])
    text = json.dumps(known.model_dump(mode="json", exclude_defaults=True) | {"format": FORMAT}, indent=1)
    write_json(file, text + "\n")


@contextmanager
def alone(file: str | Path) -> Iterator[None]:
    """Read and write a user's file of records while no other process does, which waits.

    The system takes the lock on ``FILE-lock`` away from a process that dies.

    Raises
    ------
    OSError
        Where the folder cannot be written to.
    """
    import fcntl

    lock = Path(f"{os.path.realpath(file)}-lock")
    while True:
        try:
            handle = lock.open("w")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Who had it before has taken it away: others may hold a new one.
            if os.fstat(handle.fileno()).st_nlink == 0:
                continue
            try:
                yield
            finally:
                lock.unlink()
            return
