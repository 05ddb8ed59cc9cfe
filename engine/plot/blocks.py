"""Blocks of GPUs that jobs hold, as coloured and named rectangles: of schedules and cluster maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.plot.style import FILLS, HATCHES, NEUTRAL, Axes, Fill, literal, size_in
from wattsched.topology.arrays import FloatArray, IntArray

TITLES = {
    "gpus": "GPUs of the job",
    "frequency_mhz": "clock, MHz",
    "power_limit_w": "power limit, W",
    "batch_size": "batch size",
    "job": "job",
}
"""Titles of legends by what blocks can be coloured by."""
NONE = "not stated"
MOST_NAMED = len(FILLS) * len(HATCHES)
"""Names that fills tell apart; of more, they repeat, and no legend tells them."""
MOST_LABELS = 600
TEXT_PT, LEAST_PT = 7.0, 5.0
LEAST_CHARACTERS = 6
"""Fewest characters of a name that is shortened."""
POINTS_PER_IN = 72.0
WIDTH_OF_CHARACTER = 0.62
"""Width of a character as a part of the font's size, rather too much than too little."""


@dataclass(frozen=True)
class Colouring:
    """Fill of every block, and the meaning of each fill.

    Attributes
    ----------
    title : str
        Of the legend.
    names : list of str
        What the fills stand for, in their order.
    code : int array, shape (n_blocks,)
        Number of the name of each.
    """

    title: str
    names: list[str]
    code: IntArray

    @classmethod
    def of(
        cls, jobs: Sequence[str], values: Mapping[str, FloatArray], by: str | Mapping[str, str]
    ) -> Colouring:
        """Colour blocks by a quantity, by their jobs, or by what a mapping says of these, such as users.

        Parameters
        ----------
        jobs : sequence of str
            Of each block.
        values : mapping of str to float array, shape (n_blocks,)
            Quantities by name; nan where it is not stated.
        """
        if isinstance(by, Mapping):
            return cls._named("", [by.get(job, NONE) for job in jobs])
        return cls._named(TITLES[by], jobs) if by == "job" else cls._ranges(TITLES[by], values[by])

    @classmethod
    def _named(cls, title: str, values: Sequence[str]) -> Colouring:
        names = {name: number for number, name in enumerate(dict.fromkeys(values))}
        return cls(title, list(names), np.array([names[value] for value in values], dtype=np.int64))

    @classmethod
    def _ranges(cls, title: str, values: FloatArray) -> Colouring:
        """Each number alone where a fill of its own is left for it, else neighbours together."""
        known = np.unique(values[~np.isnan(values)])
        parts = [part for part in np.array_split(known, len(FILLS)) if len(part)]
        names = [f"{part[0]:g}" if len(part) == 1 else f"{part[0]:g}\u2013{part[-1]:g}" for part in parts]
        code = np.searchsorted([part[-1] for part in parts], values) if parts else np.zeros(len(values), int)
        code[np.isnan(values)] = len(parts)
        return cls(title, names + [NONE] * bool(np.isnan(values).any()), code.astype(np.int64))

    def fill(self, number: int) -> Fill:
        """Fill of a name."""
        return Fill(NEUTRAL, "") if self.names[number] == NONE else Fill.of(number)

    def handles(self) -> list[Any]:
        """Entries of a legend; none where fills repeat, or there is nothing to tell apart."""
        from matplotlib.patches import Patch

        if len(self.names) > MOST_NAMED or self.names == [NONE]:
            return []
        return [
            Patch(**self.fill(number)._asdict(), edgecolor="white", label=name)
            for number, name in enumerate(self.names)
        ]


@dataclass(frozen=True)
class Blocks:
    """Rectangles, in units of the axes.

    Attributes
    ----------
    job : list of str
        The name that stands on each.
    left, right, top, bottom : float arrays, shape (n_blocks,)
        The vertical axis counts GPUs from the top.
    """

    job: list[str]
    left: FloatArray
    right: FloatArray
    top: FloatArray
    bottom: FloatArray

    def draw(self, axes: Axes, colouring: Colouring) -> None:
        """Draw them into axes whose limits are set."""
        from matplotlib.collections import PolyCollection

        pt_per_x, pt_per_y = points_per_unit(axes)
        x, y = [self.left, self.left, self.right, self.right], [self.bottom, self.top, self.top, self.bottom]
        corners = np.stack([x, y]).transpose(2, 1, 0)
        sides_pt = np.minimum((self.right - self.left) * pt_per_x, (self.bottom - self.top) * pt_per_y)
        for number in range(len(colouring.names)):
            mine = colouring.code == number
            # White edges tell neighbours apart, as far as they leave something between them.
            width_pt = float(np.clip(0.2 * np.median(sides_pt[mine]), 0.0, 0.8)) if mine.any() else 0.0
            edge: dict[str, Any] = {"edgecolor": "white", "linewidth": width_pt}
            fill = colouring.fill(number)._asdict()
            axes.add_collection(PolyCollection([*corners[mine]], **fill, **edge), autolim=False)

    def name(self, axes: Axes, colouring: Colouring) -> None:
        """Write the names that fit, short of their ends where that helps, once all else is drawn."""
        pt_per_x, pt_per_y = points_per_unit(axes, settled=True)
        wide_pt = (self.right - self.left) * pt_per_x
        size_pt = np.minimum(0.8 * (self.bottom - self.top) * pt_per_y, TEXT_PT)
        # Characters that fit.
        room = np.floor(wide_pt / (WIDTH_OF_CHARACTER * size_pt) - 0.5)
        length = np.array([len(job) for job in self.job])
        fits = np.flatnonzero(
            (size_pt >= LEAST_PT) & (room >= np.minimum(length, LEAST_CHARACTERS)) & (length > 0)
        )
        for i in fits[np.argsort(-wide_pt[fits], kind="stable")][:MOST_LABELS].tolist():
            fill = colouring.fill(int(colouring.code[i]))
            behind = {"boxstyle": "square,pad=0.1", "facecolor": fill.facecolor, "linewidth": 0.0}
            axes.text(
                (self.left[i] + self.right[i]) / 2,
                (self.top[i] + self.bottom[i]) / 2,
                literal(shortened(self.job[i], int(room[i]))),
                color=fill.ink,
                fontsize=float(size_pt[i]),
                ha="center",
                va="center_baseline",
                clip_on=True,
                bbox=behind if fill.hatch else None,
            )


def points_per_unit(axes: Axes, *, settled: bool = False) -> tuple[float, float]:
    """Points of print for one unit of either axis; `settled` is true where everything else is drawn."""
    if settled and (figure := axes.get_figure(root=True)) is not None:
        # Has the layout done, which makes room for labels and legends.
        figure.draw_without_rendering()
    wide_in, high_in = size_in(axes)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    return POINTS_PER_IN * wide_in / abs(right - left), POINTS_PER_IN * high_in / abs(top - bottom)


def shortened(name: str, most: int) -> str:
    """Name of at most so many characters."""
    return name if len(name) <= most else name[: most - 1] + "\u2026"


def name_rows(axes: Axes, middles: FloatArray, names: Sequence[str]) -> None:
    """Name rows at their middles, in a fifth of the axes' width, and not all where letters are too high."""
    pt_per_x, pt_per_y = points_per_unit(axes)
    apart_pt = float(np.median(np.diff(middles))) * pt_per_y if len(middles) > 1 else math.inf
    every = max(1, math.ceil(9.0 / apart_pt))  # a name takes nine points
    size_pt = TEXT_PT + 1 if every == 1 else TEXT_PT
    left, right = axes.get_xlim()
    most = max(4, int(0.2 * pt_per_x * (right - left) / (WIDTH_OF_CHARACTER * size_pt)))
    shown = [literal(shortened(name, most)) for name in names]
    axes.set_yticks(middles[::every], shown[::every], fontsize=size_pt)
    axes.tick_params(axis="y", length=0)
