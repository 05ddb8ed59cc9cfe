"""Every record is proven anew: `verified`; and a result that betters one takes its place: `submit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattsched.instances.errors import InputError
from wattsched.library import OWN
from wattsched.library.entries import ChangedInstanceError, Entry, entries, entry_of
from wattsched.library.recipes import MissingDataError
from wattsched.library.records import (
    Finder,
    Record,
    alone,
    best_known,
    betters,
    document_of,
    merged,
    own_records,
    record_of,
    result_of_record,
    write_own,
)
from wattsched.results.documents import check
from wattsched.results.result import Result
from wattsched.verification.report import ROUNDING
from wattsched.verification.verdict import Verdict


@dataclass(frozen=True)
class Verified:
    """Result of verifying a record: faults, or why it was skipped; proven where there is neither.

    Attributes
    ----------
    gap : float, optional
        Gap that the certificate proves.
    """

    name: str
    faults: list[str]
    skipped: str = ""
    gap: float | None = None


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
    return _proven(entry, instance, record)


def _proven(entry: Entry, instance: Any, record: Record) -> Verified:
    """Check the result that a record has, and whether it proves what the record says."""
    if (record.digest, record.objective_name) != (entry.digest, entry.objective):
        return Verified(entry.name, ["the record is of another instance or objective"])
    try:
        result = result_of_record(record)
    except (InputError, KeyError) as error:
        return Verified(entry.name, [f"its result cannot be read: {'; '.join(str(error).splitlines())}"])
    verdict = check(instance, result)
    faults = list(verdict.faults)
    if record.sense != result.sense:
        faults.append(f"sense: the record says '{record.sense}', the result '{result.sense}'")
    size = max(abs(record.objective), abs(record.bound or 0.0))
    for what, said, found, scale in (
        ("objective", record.objective, verdict.objective, size),
        ("bound", record.bound, None if verdict.proof is None else verdict.proof.bound, size),
        ("gap", record.gap, verdict.proven_gap, 1.0),
    ):
        if (said is None) != (found is None):
            faults.append(f"{what}: the record says {said}, the result {found}")
        elif said is not None and found is not None and abs(said - found) > ROUNDING * scale:
            faults.append(f"{what}: the record says {said:.10g}, the result proves {found:.10g}")
    if verdict.claimed:
        faults.append("the result claims more than it proves")
    return Verified(entry.name, faults, gap=verdict.proven_gap)


class RefusedResultError(InputError):
    """A result that does not hold, or is of no instance of the library."""


@dataclass(frozen=True)
class Submitted:
    """Result of a submission: entry, record, and its improvements in words, none where it stays as it was."""

    entry: Entry
    record: Record
    better: list[str]


def submit(result: Result, file: str | Path = OWN, source: str = "") -> Submitted:
    """Check a result, and put it in place of what is known in a user's file where it is better.

    The better decision and the better bound are kept, whichever result has them: what the checker computes
    of the one, and what the certificate of the other proves, whatever the result says. The record before is
    proven, too. Others who submit to the same file at the same time wait.

    Raises
    ------
    RefusedResultError
        With the faults of the result, where it has any.
    MissingDataError
        Where the instance is of a public trace that is not there.
    InputError
        For a file that is none of records, and where the record before does not hold.
    OSError
        Where the file cannot be written.
    """
    entry = _entry_for(result, source)
    instance = entry.instance()
    verdict = check(instance, result)
    if verdict.faults:
        raise RefusedResultError(verdict.faults, source)
    if verdict.objective is None:
        raise RefusedResultError(["has no decision"], source)
    result = _as_checked(result, verdict)
    with alone(file):
        own, before = own_records(file), best_known(file).get(entry.name)
        if before is None:
            kept, better = result.as_proven(), ["nothing was known of it"]
        else:
            if faults := _proven(entry, instance, before).faults:
                told = f"the record of '{entry.name}' does not hold"
                raise InputError([f"{told}: {fault}" for fault in faults], str(file))
            better = list(betters(result, before))
            if not better:
                return Submitted(entry, before, [])
            kept = merged(result, result_of_record(before))
        record = record_of(entry, kept, Finder.of(result), before)
        record = record.model_copy(update={"result": document_of(kept)})
        write_own({**own, entry.name: record}, file)
    return Submitted(entry, record, better)


def _entry_for(result: Result, source: str) -> Entry:
    """The entry that a result is of; a RefusedResultError, with the source, says why it is of none."""
    entry = entry_of(result.digest, result.objective_name)
    if entry is not None:
        return entry
    named = entries().get(result.instance)
    if named is None:
        told = f"'{result.instance}' is no instance of the library"
    elif named.digest != result.digest:
        told = (
            f"digest: the result is of another instance than the library's '{named.name}', or it was changed "
            f"since: '{result.digest:.12}' is not {named.digest:.12}"
        )
    else:
        told = (
            f"objective_name: '{named.name}' is in the library with the objective {named.objective}, "
            f"the result is for {result.objective_name}"
        )
    raise RefusedResultError([told], source)


def _as_checked(result: Result, verdict: Verdict) -> Result:
    """The result with the objective as it is recomputed, and its certificate with the bound that it proves.

    The checker allows both to be off by rounding, which would add up from record to record.
    """
    stated: dict[str, Any] = {"objective": verdict.objective, "proven_gap": verdict.proven_gap}
    if result.certificate is not None and verdict.proof is not None:
        proven = {"bound": verdict.proof.bound}
        stated["certificate"] = result.certificate.model_copy(update=proven)
    return result.model_copy(update=stated)
