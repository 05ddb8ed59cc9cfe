"""Faults of an input, in readable lines that name the field and the value."""

from __future__ import annotations

import math
import reprlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from wattsched.reading.inputs import CONTROL, LONGEST_LINE, echo, meant
from wattsched.reading.inputs import NoticeWarning as NoticeWarning
from wattsched.reading.inputs import naming as naming
from wattsched.topology.columns import COLUMNS, ROWS
from wattsched.topology.fields import ALL, EACH, FaultCount, TooManyFaultsError

ModelT = TypeVar("ModelT", bound=BaseModel)

LARGEST_WHOLE = 2.0**63
MOST_LINES = 20
MOST_FAULTS = 1_000
"""Faults that are told apart: each takes a kilobyte, and a file may have millions."""


class _Shown(reprlib.Repr):
    """Short text of a value as JSON spells it."""

    def repr_bool(self, value: bool, level: int) -> str:
        return str(value).lower()

    def repr1(self, value: Any, level: int) -> str:
        return "null" if value is None else super().repr1(value, level)

    def repr_float(self, value: float, level: int) -> str:
        if math.isinf(value):
            # Whatever it was that Python reads so: Infinity, 1e999, or hundreds of digits.
            return f"a number {'below -' if value < 0 else 'beyond '}{sys.float_info.max:.1e}"
        return "NaN" if math.isnan(value) else repr(value)


_shown = _Shown()
_shown.maxstring = _shown.maxother = _shown.maxlong = 60


def shown(value: object) -> str:
    """Value of a document in a message, as JSON spells it, and not all of it where it is long."""
    return _shown.repr(value)


# pydantic's type of a fault -> the sentence, filled from its context.
_SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "finite_number": "must be a finite number, got {got}",
    "literal_error": "must be {expected}, got {got}",
    "model_type": "must be an object, got {got}",
    "dict_type": "must be an object, got {got}",
    "list_type": "must be a list, got {got}",
    "int_type": "must be a whole number, got {got}",
    "int_from_float": "must be a whole number, got {got}",
    "string_too_long": "must have at most {max_length} characters, got {got}",
    "too_long": "must have at most {max_length} entries, it has {actual_length}",
    "too_short": "must have at least {min_length} entries, it has {actual_length}",
    "string_unicode": "holds a character that is not valid Unicode",
}


def lines_of(error: ValidationError, document: Any) -> list[str]:
    """One line per fault, with its path in the document: ``jobs[3].weight: must be ...``.

    The parsed document tells the keys of a path from the names of union branches; None where there is none.
    """
    return _lines(error.errors(include_url=False), document)


def _lines(faults: Iterable[Any], document: Any) -> list[str]:
    """Lines with path and sentence for the faults of a document that pydantic lists, each once."""
    lines: list[str] = []
    for fault in faults:
        missing, loc = fault["type"] == "missing", fault["loc"]
        steps = (echo(step, quote="") for step in loc)
        path = ".".join(steps) if document is None else _path(loc, document, missing)
        lines += [f"{path}: {sentence}" if path else sentence for sentence in sentences_of(fault)]
    return list(dict.fromkeys(lines))


def require(name: str, value: object, kinds: tuple[type, ...], expected: str) -> None:
    """Refuse an argument of the wrong type before it fails far from the call; `expected` is in words.

    Raises
    ------
    TypeError
        That names the argument, and the type found, and the value where that is short.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        short = isinstance(value, str | float) or (isinstance(value, int) and abs(value) < LARGEST_WHOLE)
        told = f" {value!r:.60}" if short else ""
        raise TypeError(f"{name} must be {expected}, got {type(value).__name__}{told}")


def require_range(holds: bool, name: str, expected: str, value: object) -> None:
    """Refuse an argument out of its range by a ValueError: ``name: must be expected, got value``."""
    if not holds:
        raise ValueError(f"{name}: must be {expected}, got {value}")


def require_known(name: str, value: object, known: Collection[str]) -> None:
    """Refuse an argument that is none of the known names: a ValueError lists them."""
    if not isinstance(value, str) or value not in known:
        told = f"{name}: {value!r:.80} is not known{meant(value, known)}"
        raise ValueError(f"{told}, {'choose one of ' if known else 'there is none'}{', '.join(known)}")


def refuse(faults: Iterable[str]) -> None:
    """Refuse a model, in its own validator, by a ValueError; `lines_of` tells each fault alone."""
    if told := list(dict.fromkeys(faults)):
        raise ValueError("; ".join(told))


def duplicates(what: str, items: Iterable[Any]) -> Iterator[str]:
    """Report each name that more than one item has."""
    yield from repeated(what, [item.name for item in items])


def repeated(what: str, names: Collection[str]) -> Iterator[str]:
    """Report each name of such a thing that occurs more than once."""
    if len(set(names)) == len(names):
        return
    counts = Counter(names)
    yield from (f"duplicate {what} '{name}'" for name, count in counts.items() if count > 1)


def unknown(user: str, what: str, names: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """Report each name that a part of a document uses although nothing has that name."""
    yield from (f"{user} names the unknown {what} '{name}'" for name in names if name not in known)


def unknown_objective(name: str, known: Collection[str], field: str = "objective") -> Iterator[str]:
    """Report an objective that does not exist."""
    if name not in known:
        yield f"{field}: '{name}' is not known{meant(name, known)}, choose one of {', '.join(known)}"


def capped(lines: list[str], most: int = MOST_LINES) -> list[str]:
    """At most `most` lines, none too long, and one that counts the others."""
    told = [echo(line, quote="", most=LONGEST_LINE) for line in lines[:most]]
    rest = "" if len(lines) >= MOST_FAULTS else f"{len(lines) - most:,} "
    return told if len(lines) <= most else [*told, f"and {rest}more"]


class InputError(Exception):
    """A file that cannot be used.

    Attributes
    ----------
    faults : list of str
        One readable line per fault, the first ones and a count when there are many.
    """

    def __init__(self, faults: list[str], source: str = ""):
        self.faults = capped(faults)
        self.source = source
        super().__init__("\n".join(f"{source}: {fault}" if source else fault for fault in self.faults))


class UnreadableError(InputError, OSError):
    """A file that cannot be read, for those who expect an OSError, too."""

    def __init__(self, error: OSError, source: str):
        super().__init__([(error.strerror or str(error)).lower()], source)
        self.errno, self.strerror, self.filename = error.errno, error.strerror, source

    def __str__(self) -> str:
        return f"{self.source}: {self.faults[0]}"


class FormerNameWarning(FutureWarning):
    """A name that is still read is called otherwise now."""


@contextmanager
def sourced(file: str) -> Iterator[None]:
    """Name the file in an `InputError` that names none: what is found out only where it is expanded."""
    try:
        yield
    except InputError as error:
        if error.source:
            raise
        raise InputError(error.faults, file) from None


def validated(model: type[ModelT], document: Any, source: str = "") -> ModelT:
    """Validate a parsed document, which messages call by its source.

    Raises
    ------
    InputError
        With one line per fault.
    """
    try:
        return model.model_validate(document, context=FaultCount(10 * MOST_FAULTS))
    except ValidationError as error:
        few = error.error_count() <= 10 * MOST_FAULTS
        raise InputError(
            lines_of(error, document) if few else _first_faults(model, document), source
        ) from None
    except TooManyFaultsError:
        raise InputError(_first_faults(model, document), source) from None


def _first_faults(model: type[BaseModel], document: Any) -> list[str]:
    """Return the faults of the first entries of each list, for a document with too many faults to list."""
    told: list[str] = []
    try:
        model.model_validate(_beginning(document))
    except ValidationError as error:
        own = [fault for fault in error.errors(include_url=False) if fault["type"] != "value_error"]
        told = _lines(own, document)[:MOST_LINES]
    return [f"has more than {MOST_FAULTS:,} faults{', such as:' * bool(told)}", *told]


def _beginning(value: Any, depth: int = 12) -> Any:
    """The first entries of a document's lists and objects, down to a depth that documents have."""
    if depth and isinstance(value, dict):
        return {key: _beginning(value[key], depth - 1) for key in list(value)[:MOST_FAULTS]}
    if depth and isinstance(value, list):
        return [_beginning(entry, depth - 1) for entry in value[:MOST_LINES]]
    return None if isinstance(value, dict | list) else value


def sentences_of(fault: Any) -> list[str]:
    """Return the sentences, in our words and with the value, for one fault that pydantic found."""
    kind, context = fault["type"], dict(fault.get("ctx", {}))
    got = shown(fault["input"])
    if kind in ("too_short", "string_too_short") and context["min_length"] == 1:
        return ["must not be empty"]
    if kind in ("value_error", "assertion_error"):
        # Our own validators join what they found.
        return str(context.get("error", fault["msg"])).split("; ")
    if kind.startswith("int_") and isinstance(fault["input"], float) and abs(fault["input"]) >= LARGEST_WHOLE:
        return [f"is too large for a whole number, got {got}"]
    if kind == "string_pattern_mismatch" and CONTROL in context["pattern"]:
        return [f"must have no control characters, got {got}"]
    if kind in _SENTENCES:
        return [_SENTENCES[kind].format(**context, got=got)]
    message = fault["msg"].replace("Input should", "must", 1).replace("String should", "must", 1)
    return [f"{message}, got {got}"]


def _path(location: tuple[int | str, ...], document: Any, missing: bool) -> str:
    """Path as one would write it in Python, without pydantic's names of union branches.

    Steps that the document does not have are such names, but for the last step to a field that is missing.
    """
    path, here, steps = "", document, list(location)
    while steps:
        step = steps.pop(0)
        told_last = missing and not steps
        if step in (ROWS, COLUMNS, ALL, EACH):
            continue
        if isinstance(here, list) and isinstance(step, str) and steps and isinstance(steps[0], int):
            # A list of row objects, validated as columns: name the row first.
            path, here = f"{path}[{steps.pop(0)}].{step}", None
        elif isinstance(here, list) and told_last:
            # A column that no row object has.
            path += f"[0].{step}"
        elif isinstance(step, int) and _is_column(here) and step < len(here):
            path, here = f"{path}[{step}]", here[step]
        elif isinstance(here, dict) and (step in here or told_last):
            name = echo(step, quote="")
            path, here = f"{path}.{name}" if path else name, here.get(step)
    return path


def _is_column(value: Any) -> bool:
    """True if a value is a list, or an array of a document in columns."""
    return hasattr(value, "__len__") and not isinstance(value, dict | str)
