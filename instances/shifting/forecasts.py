"""Numbers by slot, and scenarios: forecasts of which one comes true, each with its probability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np
from pydantic import Discriminator, Field, Tag

from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import ALL, EACH, Name, NonNegative, Positive, Price, Strict

BySlot = Annotated[
    Annotated[Positive, Tag(ALL)] | Annotated[list[Positive], Field(min_length=1), Tag(EACH)],
    Discriminator(lambda value: EACH if isinstance(value, list) else ALL),
]
"""One number for all slots, or one per slot; more of them are left unread."""

_ROUNDING = 1e-9


def by_slot(values: BySlot, slots: int) -> FloatArray:
    """Return the number of each slot."""
    return np.array(values[:slots]) if isinstance(values, list) else np.full(slots, values)


class Scenario(Strict):
    """What may come true, and how likely; a field that is not given is as in the instance.

    Attributes
    ----------
    probability : float
        Those of all scenarios add up to 1.
    carbon_g_per_kwh, price_per_kwh, power_w
        As in `ShiftingInstance`.
    """

    probability: Annotated[float, Field(gt=0, le=1)]
    carbon_g_per_kwh: list[NonNegative] | None = None
    price_per_kwh: list[Price] | None = None
    power_w: BySlot | None = None


SCENARIO_FIELDS = ("carbon_g_per_kwh", "price_per_kwh", "power_w")
"""Fields of an instance that scenarios may replace."""


def scenario_faults(
    scenarios: Mapping[Name, Scenario] | None, decided_slots: int | None, slots: int
) -> Iterator[str]:
    """Yield a fault for what scenarios and the decided slots of an instance lack, or contradict."""
    if scenarios is None or decided_slots is None:
        if scenarios is not None or decided_slots is not None:
            yield "'scenarios' and 'decided_slots' are given together, or neither of them"
        return
    if decided_slots > slots:
        yield f"decided_slots {decided_slots} is more than the {slots} slots of the horizon"
    total = math.fsum(one.probability for one in scenarios.values())
    if abs(total - 1.0) > _ROUNDING:
        yield f"scenarios: the probabilities add up to {total:.10g}, not to 1"
    for field in SCENARIO_FIELDS:
        for name, one in scenarios.items():
            values = getattr(one, field)
            if isinstance(values, list) and len(values) < slots:
                yield f"scenarios.{name}.{field} has {len(values)} numbers but the horizon has {slots} slots"
