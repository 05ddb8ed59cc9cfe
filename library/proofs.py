"""Every record is proven anew: `verify`; and a result that betters one takes its place: `submit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattsched.documents import check
from wattsched.instances.errors import InputError
from wattsched.library import OWN
from wattsched.library.entries import ChangedInstanceError, Entry, entry_of
from wattsched.library.recipes import MissingDataError
from wattsched.library.records import (
    Finder,
    Record,
    best_known,
    betters,
    document_of,
    merged,
    own_records,
    record_of,
    result_of_record,
    write_own,
)
from wattsched.result import Result
from wattsched.verification.report import ROUNDING


@dataclass(frozen=True)
class Verified:
    """What is found of a record: faults, or why it was skipped; proven where there is neither.

    Attributes
    ----------
    gap : float, optional
        What the certificate proves.
    """

    name: str
    faults: list[str]
    skipped: str = ""
    gap: float | None = None


def verify(chosen: Sequence[Entry], file: str | Path | None = None) -> Iterator[Verified]:
    """Make each instance again, and check the result that proves what is known of it.

    Parameters
    ----------
    chosen : sequence of Entry
    file : path, optional
        A user's records besides those that come with this version.
    """
    known = best_known(file)
    for entry in chosen:
        yield verified(entry, known.get(entry.name))


def verified(entry: Entry, record: Record | None) -> Verified:
    """Check what is known of an entry, trusting nothing but its recipe and the checker."""
    try:
        instance = entry.instance()
    except MissingDataError as error:
        return Verified(entry.name, [], str(error))
    except ChangedInstanceError as error:
        return Verified(entry.name, [str(error)])
    if record is None:
        return Verified(entry.name, ["nothing is known of it"])
    if (record.digest, record.objective_name) != (entry.digest, entry.objective):
        return Verified(entry.name, ["the record is of another instance or objective"])
    try:
        result = result_of_record(record)
    except (InputError, KeyError) as error:
        return Verified(entry.name, [f"its result cannot be read: {error}"])
    verdict = check(instance, result)
    faults = list(verdict.faults)
    for what, said, found in (
        ("objective", record.objective, verdict.objective),
        ("bound", record.bound, None if verdict.proof is None else verdict.proof.bound),
    ):
        if (said is None) != (found is None):
            faults.append(f"{what}: the record says {said}, the result {found}")
        elif said is not None and found is not None and abs(said - found) > ROUNDING * max(1.0, abs(said)):
            faults.append(f"{what}: the record says {said:.10g}, the result proves {found:.10g}")
    if verdict.claimed:
        faults.append("the result claims more than it proves")
    return Verified(entry.name, faults, gap=verdict.proven_gap)


class RefusedResultError(InputError):
    """A result that does not hold, or is of no instance of the library."""


@dataclass(frozen=True)
class Submitted:
    """What became of a result: the entry, and what of its record it betters, nothing where it was left."""

    entry: Entry
    record: Record
    better: list[str]


def submit(result: Result, file: str | Path = OWN, source: str = "") -> Submitted:
    """Check a result, and put it in place of what is known in a user's file where it is better.

    The better decision and the better bound are kept, whichever result has them.

    Raises
    ------
    RefusedResultError
        With the faults of the result, where it has any.
    MissingDataError
        Where the instance is of a public trace that is not there.
    InputError
        For a file that is none of records.
    """
    entry = entry_of(result.digest, result.objective_name)
    if entry is None:
        told = f"'{result.instance}' with the objective {result.objective_name} is no instance of the library"
        raise RefusedResultError([told], source)
    own, known = own_records(file), best_known(file)
    verdict = check(entry.instance(), result)
    if verdict.faults:
        raise RefusedResultError(verdict.faults, source)
    if verdict.objective is None:
        raise RefusedResultError(["has no decision"], source)
    before = known.get(entry.name)
    if before is None:
        kept = result.as_proven()
        record, better = record_of(entry, kept, Finder.of(result)), ["nothing was known of it"]
    else:
        better = list(betters(result, before))
        if not better:
            return Submitted(entry, before, [])
        kept = merged(result, result_of_record(before))
        record = record_of(entry, kept, Finder.of(result), before)
    record = record.model_copy(update={"result": document_of(kept)})
    write_own({**own, entry.name: record}, file)
    return Submitted(entry, record, better)
