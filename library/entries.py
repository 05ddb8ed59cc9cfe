"""The instances of the library: their names, digests, recipes and cards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import Field

from wattsched.instances.digest import digest_of
from wattsched.library.recipes import Recipe
from wattsched.reading.inputs import meant
from wattsched.results.problems import problem
from wattsched.topology.fields import Name, Strict

FILE = "instances.json"

Class = Literal["easy", "hard", "open"]


class ChangedInstanceError(ValueError):
    """An instance that was made again is not the one that was frozen."""


class Card(Strict):
    """Facts on an instance that are known before it is solved.

    Attributes
    ----------
    size : dict of str to int
        Jobs or tasks, GPUs, options, and columns, rows and nonzeros of the default formulation's program.
    tags : list of str
        What is in it: budgets, kinds of rows, how it was made.
    binding : list of str
        Rows with a price at the best bound by prices, the kinds of them: such as ``power_w``, ``gpus``.
    lp_gap : float, optional
        Gap between the best bound by prices alone and the best known objective, relative to the latter.
    """

    size: dict[str, int]
    tags: list[str]
    binding: list[str] = Field(default_factory=list)
    lp_gap: float | None = None


class Entry(Strict):
    """An instance of the library with its objective; the same instance may be there with several.

    Attributes
    ----------
    name : str
        Of the entry, and of the instance.
    digest : str
        SHA-256 of the instance (`instances.digest`); its objective is not in it.
    """

    name: Name
    family: Name
    problem: Name
    objective: Name
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    recipe: Recipe
    card: Card

    @property
    def goal(self) -> tuple[str, str]:
        """Sense and name of the objective."""
        return problem(self.problem).objectives[self.objective], self.objective

    def instance(self) -> Any:
        """Make the instance again, with its objective.

        Raises
        ------
        MissingDataError
            Where it is of a public trace that is not there.
        ChangedInstanceError
            If it is not the one that was frozen.
        """
        made = self.recipe.made(self.name).model_copy(update={"objective": self.objective})
        if (found := digest_of(made)) != self.digest:
            told = f"was frozen with the digest {self.digest:.12}, and is made with {found:.12} now"
            raise ChangedInstanceError(f"{self.name}: {told}: another trace, or another generator")
        return made


class Library(Strict):
    """The file of the entries."""

    format: Literal["wattsched-library/1"] = "wattsched-library/1"
    version: str
    instances: list[Entry]


@cache
def library() -> Library:
    """The library that comes with this version."""
    text = files("wattsched.library").joinpath(FILE).read_text(encoding="utf-8")
    return Library.model_validate(json.loads(text))


def entries() -> Mapping[str, Entry]:
    """All entries by name."""
    return {entry.name: entry for entry in library().instances}


def selected(names: Sequence[str] = (), **having: str | None) -> list[Entry]:
    """Entries of some names, or all, that have what is asked for.

    Parameters
    ----------
    names : sequence of str
        Names of entries or of families.
    **having : str, optional
        ``family``, ``problem``, ``objective`` and ``tag``.

    Raises
    ------
    ValueError
        For a name that nothing has.
    """
    known = entries()
    families = {entry.family for entry in known.values()}
    for name in names:
        if name not in known and name not in families:
            near = meant(name, [*known, *families])
            raise ValueError(
                f"'{name}' is no instance of the library{near}; 'wattsched library list' lists them"
            )
    found = [entry for entry in known.values() if not names or {entry.name, entry.family} & {*names}]
    for field, value in having.items():
        choices = {choice for entry in known.values() for choice in _values(entry, field)}
        if value is not None and value not in choices:
            listed = ", ".join(sorted(choices))
            raise ValueError(f"{field}: '{value}' is none of the library's{meant(value, choices)}; {listed}")
        found = [entry for entry in found if value is None or value in _values(entry, field)]
    return found


def _values(entry: Entry, field: str) -> list[str]:
    return entry.card.tags if field == "tag" else [getattr(entry, field)]


def entry_of(digest: str, objective: str) -> Entry | None:
    """Entry of an instance with an objective."""
    return next((e for e in library().instances if (e.digest, e.objective) == (digest, objective)), None)
