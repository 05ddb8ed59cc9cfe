"""Defaults in the reference are those of the signatures.

Of parameters that a docstring describes together, ``threads, seed : int``, griffe takes the default of the
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from griffe import Class, DocstringSectionKind, Extension, Function, Module, Object


class Defaults(Extension):
    """Extension of griffe, which mkdocstrings reads the package with."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Look up the default of every described parameter in the signature."""
        for function in _functions(pkg):
            # The parameters of a class are described in its own docstring.
            described = function.parent if function.name == "__init__" else function
            docstring = described.docstring if described else None
            for section in docstring.parsed if docstring else ():
                if section.kind is DocstringSectionKind.parameters:
                    for parameter in section.value:
                        if (name := parameter.name.lstrip("*")) in function.parameters:
                            parameter.value = function.parameters[name].default


def _functions(holder: Object) -> Iterator[Function]:
    """Functions and methods of a module or class, and of what is in it."""
    for member in holder.members.values():
        if isinstance(member, Function):
            yield member
        elif isinstance(member, (Class, Module)):
            yield from _functions(member)
