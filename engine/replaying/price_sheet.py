"""A price sheet says what nodes, energy, a power cap and the time of jobs cost."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from wattsched.instances.errors import refuse, validated
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.results.documents import read_document
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Strict


class NodePrice(Strict):
    """Money for a node of a pool, in a year.

    Attributes
    ----------
    owned_year : float
        To keep a node that is there today: rent, service, or what it could be sold for.
    bought_year : float, optional
        For one more; None where none can be had.
    gpus : int
        GPUs of a node of a type that the cluster does not have today.
    """

    owned_year: NonNegative = 0.0
    bought_year: NonNegative | None = None
    gpus: Count = 8


class PriceSheet(Strict):
    """Prices of a site, which are its own: none is assumed.

    Attributes
    ----------
    nodes : dict of str to NodePrice
        By pool of the cluster, and by GPU type that can be bought.
    kwh, cap_kw_year : float
        Money for a kilowatt hour, and for a kilowatt of the power cap in a year.
    job_h : float, optional
        Money that an hour of the completion time of a job is worth, from its arrival on.
    most_mean_h : float, optional
        Instead of that, hours that the mean completion time may be at most.
    currency : str
    """

    nodes: dict[Name, NodePrice] = Field(min_length=1)
    kwh: NonNegative = 0.0
    cap_kw_year: NonNegative = 0.0
    job_h: Positive | None = None
    most_mean_h: Positive | None = None
    currency: str = Field(default="", max_length=16)

    @model_validator(mode="after")
    def _one_value_of_time(self) -> Self:
        if (self.job_h is None) == (self.most_mean_h is None):
            found = "neither" if self.job_h is None else "both"
            refuse([f"job_h: give job_h or most_mean_h, one of the two, found {found}"])
        return self

    @property
    def job_s(self) -> float:
        """Money for a second of a job's completion time; 0 where only the mean is limited."""
        return (self.job_h or 0.0) / S_PER_H

    @property
    def joule(self) -> float:
        """Money for a joule."""
        return self.kwh / J_PER_KWH

    @property
    def joule_s(self) -> float:
        """Seconds of completion time that cost as much as a joule; 0 where only the mean is limited."""
        return self.joule / self.job_s if self.job_s else 0.0


def read_prices(path: str | Path) -> PriceSheet:
    """Read a price sheet (JSON); an `InputError` has one line per fault."""
    return validated(PriceSheet, read_document(path), str(path))
