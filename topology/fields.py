"""Types of fields in file models, and the base class of these models."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from wattsched.reading.inputs import CONTROL, without_control

LONGEST_NAME = 200
"""Characters of a name in a document, as of a cell that is read of a table."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=rf"^[^{CONTROL}]*$")]
# Beyond these ranges solvers take a number for infinite, or lose it in rounding.
LARGEST = 1e12
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
"""Money per unit, which is below 0 in hours when a market pays for draw."""
Standing = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Watts that are drawn without work; beside more of them the last digits of budgets are lost."""
ALL, EACH = "[all]", "[each]"
"""Forms of a field that has one value for all or one for each, of which one is validated."""
MOST = 1_000_000
Count = Annotated[int, Field(ge=1, le=MOST)]
GpuNumber = Annotated[int, Field(ge=0, le=MOST)]
"""Number of a GPU on its node, from 0."""


def shortened(name: str) -> str:
    """A name as files take it, and different from others: if it is not, escaped, cut and with a digest."""
    kept = without_control(name)
    if kept == name and len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{kept[: LONGEST_NAME - len(digest) - 1]}~{digest}"


class TooManyFaultsError(Exception):
    """A document is wrong in so many places that they would fill the memory."""


class FaultCount:
    """Faults that a document may still have, as the context of its validation."""

    def __init__(self, most: int):
        self.left = most

    def add(self, faults: int) -> None:
        """Count some; a `TooManyFaultsError` when there are too many."""
        self.left -= faults
        if self.left < 0:
            raise TooManyFaultsError


class Strict(BaseModel):
    """Base of every file model: unknown fields and silent conversions are errors."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        ser_json_inf_nan="constants",
        # Of a text without limits pydantic does not see that it is no Unicode, and cannot write it.
        str_min_length=0,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _counted(cls, value: Any, read: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Count the faults of a value, if the validation has a `FaultCount` as its context."""
        try:
            return read(value)
        except ValidationError as error:
            if isinstance(info.context, FaultCount):
                info.context.add(error.error_count())
            raise
