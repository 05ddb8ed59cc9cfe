"""Options that the splits of a certificate tree leave to the jobs, and states that they leave to nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from wattsched.topology.arrays import BoolArray
from wattsched.topology.fields import Strict
from wattsched.verification.sizing.configurations import Configuration, JobConfigurations
from wattsched.verification.sizing.rows import Key, Sleeping, part_sizes
from wattsched.verification.sizing.uncertainty import FIELD
from wattsched.verification.tree import Taken, read_split

WAIT = "wait"

Allowed = Mapping[int, BoolArray]
"""Mask of the options of a job that was split, by its number: configurations, alone before those in sets,
that it may run as, and at last whether it may wait."""


class JobSplit(Strict):
    """A split of a job by some of what it may do.

    An option is ``"wait"``, or pool, GPU count, batch size, frequency and power limit, or the first of these
    for all that begin so; of a set its pool and its name.
    """

    job: str
    options: list[Any]


class NodeSplit(Strict):
    """A split on whether a part of the nodes of a pool, all of the same draw, is awake."""

    awake: str
    each_w: float
    part: Annotated[int, Field(ge=0)]


class Splits:
    """Reads splits of jobs; each is read once, however many leaves it leads to."""

    def __init__(self, configurations: JobConfigurations):
        self._configurations = configurations
        self._begun: dict[tuple[int, int], dict[tuple[Any, ...], list[int]]] = {}
        self._read: dict[int, tuple[Mapping[str, Any], int, BoolArray]] = {}

    def allowed(self, taken: Sequence[Taken]) -> Allowed:
        """Return the options that splits leave to the jobs; a ValueError says what a split lacks."""
        found: dict[int, BoolArray] = {}
        for split, inside, _ in taken:
            if "awake" in split or FIELD in split:  # of nodes, or of thresholds; see `states`, `uncertainty`
                continue
            # The split is kept, so that nothing else can have its identity.
            if id(split) not in self._read:
                self._read[id(split)] = (split, *self._named(split))
            _, job, named = self._read[id(split)]
            side = named if inside else ~named
            found[job] = found[job] & side if job in found else side
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: j for j, name in enumerate(self._configurations.jobs.names)}

    def _named(self, split: Mapping[str, Any]) -> tuple[int, BoolArray]:
        """Job of a split, and which of its configurations, and at last waiting, are named."""
        known = read_split(JobSplit, split)
        if known.job not in self._numbers:
            raise ValueError(f"split.job: {known.job!r:.80} is not a job of the instance")
        j = self._numbers[known.job]
        rows = self._rows(j)
        named = np.zeros(len(rows) + 1, dtype=bool)
        for option in known.options:
            named[[len(rows)] if option == WAIT else self._places(j, rows, option)] = True
        return j, named

    def _rows(self, j: int) -> list[Configuration]:
        """Return the configurations of a job, alone and in sets."""
        name = self._configurations.jobs.names[j]
        return [*self._configurations.of(j), *self._configurations.in_sets(name)]

    def _places(self, j: int, rows: list[Configuration], option: Any) -> list[int]:
        """Return the places among a job's rows of those that begin as an option says."""
        begin = tuple(option) if isinstance(option, list) and option else ([],)
        plain = not any(isinstance(part, list | dict) for part in begin)
        if (j, len(begin)) not in self._begun:
            self._begun[j, len(begin)] = _by_beginning(rows, len(begin))
        places = self._begun[j, len(begin)].get(begin) if plain else None
        if places is None:
            name = self._configurations.jobs.names[j]
            raise ValueError(f"split.options: {option!r:.80} is no option of job '{name}'")
        return places


def key(row: Configuration) -> tuple[Any, ...]:
    """Return the key of a configuration in splits.

    It is pool, GPU count, batch size, frequency and power limit, or pool and set.
    """
    pool, gpus, mhz, limit_w, batch = row.setting
    return (pool, gpus, batch, mhz, limit_w) if row.set is None else (pool, row.set)


def _by_beginning(rows: list[Configuration], length: int) -> dict[tuple[Any, ...], list[int]]:
    """Return the places of rows by the first entries, of that number, of their keys."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        if len(named := key(row)) >= length:
            found.setdefault(named[:length], []).append(place)
    return found


States = Mapping[tuple[Key, int], set[bool]]
"""States of each part that was split: True if it may be awake, False if it may be asleep."""


def states(sleeping: Mapping[Key, Sleeping], taken: Sequence[Taken]) -> States:
    """Return the states that splits leave to parts of nodes; a ValueError says what a split lacks."""
    found: dict[tuple[Key, int], set[bool]] = {}
    for split, inside, _ in taken:
        if "awake" in split:
            part = _part(sleeping, split)
            found[part] = found.get(part, {True, False}) & {inside}
    return found


def _part(sleeping: Mapping[Key, Sleeping], split: Mapping[str, Any]) -> tuple[Key, int]:
    """Read a split of nodes: which of those that sleep, and the number of their part."""
    known = read_split(NodeSplit, split)
    key = known.awake, known.each_w
    if key not in sleeping:
        which = f"{known.awake!r:.80} sleep that draw {known.each_w!r:.40} W awake"
        raise ValueError(f"split.awake: no nodes of a pool {which}")
    if known.part >= (parts := len(part_sizes(sleeping[key].nodes))):
        raise ValueError(f"split.part: must be a whole number below {parts}, not {known.part}")
    return key, known.part
