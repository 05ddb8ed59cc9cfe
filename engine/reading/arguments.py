"""Arguments of public functions, held against the types that their signatures tell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_KINDS: dict[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a name"),
    bool: (bool, "True or False"),
    Path: (os.PathLike, "a path"),
    NoneType: (NoneType, "None"),
}
"""Types as annotations name them: what counts as one, numbers of numpy included, and how it is called."""


def require_types(function: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    """Refuse arguments of other types than annotated by a TypeError, before they fail far from the call.

    The first line of a function gives `locals()`, the `__post_init__` of a dataclass `vars(self)`.
    """
    hints = _hints(function)
    for name, value in arguments.items():
        if name not in hints:
            continue
        if not _fits(value, hints[name]):
            words = " or ".join(dict.fromkeys(_words(hints[name])))
            raise TypeError(f"{name} must be {words}, got {_found(value)}")


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


def _fits(value: object, hint: Any) -> bool:
    """True if a value is of the type that an annotation names."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        # Which names there are, the function says.
        return isinstance(value, str)
    if origin is Callable or hint is Callable:
        return callable(value)
    if hint in _KINDS:
        kind, _ = _KINDS[hint]
        return isinstance(value, kind) and (hint is bool or not isinstance(value, bool))
    if not isinstance(value, origin or hint) or (origin is Sequence and isinstance(value, str | bytes)):
        return False
    if origin is Mapping:
        return all(all(map(_fits, pair, inner)) for pair in value.items())
    if origin is tuple:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    return origin is not Sequence or all(_fits(one, inner[0]) for one in value)


def _words(hint: Any) -> Iterable[str]:
    """Words, for a message, for each of the types that an annotation names."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [words for one in inner if one is not NoneType for words in _words(one)]
    if origin is Literal:
        return [f"one of {', '.join(map(str, inner))}"]
    if origin is Callable or hint is Callable:
        return ["a function"]
    if hint in _KINDS:
        _, words = _KINDS[hint]
        return [words]
    if origin is None:
        return [f"of the type {hint.__name__}"]
    parts = " and ".join(words for one in inner for words in _words(one))
    return [f"a {origin.__name__.lower()} of {parts}"]


def _found(value: object) -> str:
    """Type of an argument, and of what is in it, where that may be what is wrong."""
    name = type(value).__name__
    if not isinstance(value, list | tuple | dict) or not value:
        return name
    inside = (part for pair in value.items() for part in pair) if isinstance(value, dict) else value
    return f"{name} of {', '.join(sorted({type(one).__name__ for one in inside}))}"
