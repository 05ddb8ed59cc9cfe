"""Fields of a session's round besides jobs and cluster, and what becomes of it when they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from wattsched.instances.errors import InputError, validated
from wattsched.instances.sizing.instance import PER_KWH, Instance

FIELDS = ("round_s", "change_cost", *PER_KWH.values(), "tenants", "objective")
"""Fields of a round, beside its budgets."""

# A round by which fields are validated that do not depend on jobs and cluster.
_SMALLEST = {
    "cluster": {
        "gpu_types": {"A": {"idle_power_w": 0.0}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 1}],
    },
    "jobs": [],
}


class _Same:
    """Default of an argument that leaves a value as it is; None takes a limit away."""


SAME: Final = _Same()
Limit = float | None | _Same


def changed_fields(now: Instance, told: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a round, its budgets among them, of which some are told.

    Raises
    ------
    InputError
        With every fault.
    """
    budgets = {name: told.get(name, value) for name, value in now.budgets}
    fields = {name: told.get(name, getattr(now, name)) for name in FIELDS}
    sound = validated(Instance, {**_SMALLEST, **fields, "budgets": budgets})
    return {name: getattr(sound, name) for name in ("budgets", *FIELDS)}


@contextmanager
def gathered(faults: list[str]) -> Iterator[None]:
    """Gather what is wrong, to tell all of it."""
    try:
        yield
    except InputError as error:
        faults += error.faults
    except ValueError as error:
        faults.append(str(error))
