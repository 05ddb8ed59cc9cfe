"""Which options the splits of a certificate tree leave to the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray
from wattsched.verification.sizing.configurations import Configuration, JobConfigurations
from wattsched.verification.tree import Taken

WAIT = "wait"


class Allowed:
    """What jobs may do on the sides of splits that were taken.

    Parameters
    ----------
    taken : sequence of Taken
        As `bound.Prover` takes them; a ValueError says what is wrong with one.

    Attributes
    ----------
    of_job : dict of int to bool array, shape (n_configurations + 1,)
        By number of a job that was split: which configurations, alone before those in sets, it may run as;
        at last whether it may wait.
    """

    def __init__(self, instance: Instance, configurations: JobConfigurations, taken: Sequence[Taken]):
        self.of_job: dict[int, BoolArray] = {}
        numbers = {job.name: j for j, job in enumerate(instance.jobs)} if taken else {}
        for split, inside, _ in taken:
            if not isinstance(name := split.get("job"), str) or name not in numbers:
                raise ValueError(f"split.job: {name!r:.80} is not a job of the instance")
            j = numbers[name]
            rows = [*configurations.of(instance.jobs[j]).listed, *configurations.in_sets(name)]
            named = _named(rows, split.get("options"), name)
            allowed = self.of_job.setdefault(j, np.ones(len(rows) + 1, dtype=bool))
            allowed &= named if inside else ~named


def _named(rows: list[Configuration], options: Any, job: str) -> BoolArray:
    """Which rows, and at last waiting, a split names; a ValueError for what is none of them."""
    if not isinstance(options, list):
        raise ValueError(f"split.options: must be a list of options of job '{job}', not {options!r:.80}")
    keys = [_key(row) for row in rows]
    found = np.zeros(len(rows) + 1, dtype=bool)
    begun: dict[int, dict[Any, list[int]]] = {}
    for option in options:
        begin = tuple(option) if isinstance(option, list) and option else None
        if option != WAIT and (begin is None or any(isinstance(part, list | dict) for part in begin)):
            raise ValueError(f"split.options: {option!r:.80} is no option of job '{job}'")
        if begin is None:
            found[-1] = True
            continue
        if len(begin) not in begun:
            begun[len(begin)] = _by_beginning(keys, len(begin))
        places = begun[len(begin)].get(begin)
        if places is None:
            raise ValueError(f"split.options: {option!r:.80} is no option of job '{job}'")
        found[places] = True
    return found


def _key(row: Configuration) -> tuple[Any, ...]:
    pool, gpus, mhz, limit_w, batch = row.setting
    return (pool, gpus, batch, mhz, limit_w) if row.set is None else (pool, row.set)


def _by_beginning(keys: list[tuple[Any, ...]], length: int) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        if len(key) >= length:
            found.setdefault(key[:length], []).append(place)
    return found
