"""Samples, the common form of all GPU logs: each is what one GPU did at a moment or over a window."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattsched.reading.clocks import LOCAL, in_zone_s, moment_s
from wattsched.reading.inputs import ROWS_PER_MB, TooLargeError, echo, most_mb, number_in
from wattsched.topology.arrays import FloatArray, Table

Texts = NDArray[np.object_]
"""Array of few different texts, each of which is stored once."""

MOST_W, MOST_MHZ, MOST_PERCENT = 1e5, 1e5, 100.0
BLANK = ("", "-", "n/a", "nan", "+nan", "-nan", "err!", "unknown", "unknown error", "not supported")
"""Words for a value that could not be read; nvidia-smi also puts the reason in brackets."""
UUID = "GPU-"


class Sample(NamedTuple):
    """A sample, as readers give them; nan where a log does not tell.

    Attributes
    ----------
    job : str
        A Slurm job's number, a pod as NAMESPACE/POD, or a window of Zeus; empty where the log has none.
    gpu : str
        Which GPU; empty where the watts are those of all GPUs together.
    time_s : float
        Seconds since 1970 on the log's clock.
    duration_s : float
        Seconds of a window, over which the watts are the mean; nan for what was read at a moment.
    power_w : float
        Watts of the whole GPU.
    utilisation : float
        Share of the time with a kernel on the GPU, 0 to 1.
    jobs : float
        Jobs that the log shows on the GPU at that moment.
    zoned : float
        1 where the log tells the zone of its times, 0 where it does not and they count as UTC.
    """

    job: str
    gpu: str
    time_s: float = math.nan
    duration_s: float = math.nan
    power_w: float = math.nan
    utilisation: float = math.nan
    frequency_mhz: float = math.nan
    power_limit_w: float = math.nan
    jobs: float = 1.0
    zoned: float = 1.0


@dataclass(frozen=True, eq=False)
class Samples(Table):
    """Samples by column, as of `Sample`, those of a log in the order of their times; limits in whole watts.

    `log` is the name of the file without its endings. Watts are divided evenly among the jobs on a GPU.
    """

    log: Texts
    job: Texts
    gpu: Texts
    time_s: FloatArray
    duration_s: FloatArray
    power_w: FloatArray
    utilisation: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    jobs: FloatArray
    zoned: FloatArray

    @classmethod
    def of(cls, path: str | Path, read: Iterable[Sample], time_zone: tzinfo | None = None) -> Samples:
        """Collect the samples of a file that tell watts; none is a ValueError.

        GPUs of different files are different ones, unless they are named by their UUIDs.
        """
        texts: dict[str, list[str]] = {"job": [], "gpu": []}
        numbers = {name: array("d") for name in Sample._fields if name not in texts}
        most, once = ROWS_PER_MB * most_mb(), {"": ""}
        for sample in read:
            if math.isnan(sample.power_w):
                continue
            if len(texts["job"]) == most:
                raise TooLargeError(f"{path} has more than {most:,} samples")
            values = sample._asdict()
            if time_zone is not None and not sample.zoned:
                values |= {"time_s": in_zone_s(sample.time_s, time_zone), "zoned": 1.0}
            for name, cells in texts.items():
                cells.append(once.setdefault(values[name], values[name]))
            for name, column in numbers.items():
                column.append(values[name])
        if not texts["job"]:
            raise ValueError(f"{path} has no watts of a GPU")
        known = {gpu: gpu if gpu.startswith(UUID) or not gpu else f"{path}:{gpu}" for gpu in {*texts["gpu"]}}
        texts |= {"gpu": [known[gpu] for gpu in texts["gpu"]], "log": [stem_of(path)] * len(texts["job"])}
        order = np.argsort(np.array(numbers["time_s"]), kind="stable")
        columns = {name: np.array(column)[order] for name, column in numbers.items()}
        columns["power_limit_w"] = np.round(columns["power_limit_w"])
        columns["power_w"] /= columns["jobs"]
        return cls(**columns, **{name: np.array(cells, dtype=object)[order] for name, cells in texts.items()})

    def __len__(self) -> int:
        return len(self.job)


def stem_of(path: str | Path) -> str:
    """Name of a file without its folder and its ending, ``.gz`` included."""
    return Path(Path(str(path)).name.removesuffix(".gz")).stem


def lines_of(text: str) -> Iterator[str]:
    """Lines of a text, one at a time: a list of all would take several times as much memory as the text."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        yield text[begin:end].removesuffix("\r")
        begin = end + 1


def cells_of(line: str) -> list[str]:
    """Cells of a line, which commas separate, without blanks around them."""
    return [cell.strip() for cell in line.split(",")]


def csv_rows(text: str, name: str, *, commas: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Lines and cells of a CSV log, its header first, without a line in which its writer was ended.

    Rows have as many cells as the header, or a ValueError tells of it; with `commas` they may have more.
    """
    header: list[str] = []
    for line, row in enumerate(lines_of(text), start=1):
        cells = cells_of(row)
        if not any(cells) or cells == header:
            continue
        header = header or cells
        if len(cells) < len(header) or (len(cells) > len(header) and not commas):
            if not text.endswith("\n") and line > text.count("\n"):
                return
            raise ValueError(f"{name}, line {line}: {len(cells)} cells, the header has {len(header)} columns")
        yield line, cells


def reading(
    text: str, place: str, most: float, unit: str = "", read: Callable[[str], float] | None = None
) -> float:
    """Number of a cell, with or without its unit, 0 to `most`; nan where it says that there is none.

    Of watts, `read` converts what is in another unit. Anything else is a ValueError that names the place.
    """
    told = text.strip()
    if told.lower() in BLANK or (told.startswith("[") and told.endswith("]")):
        return math.nan
    value, _, found = told.partition(" ")
    if read is None and found.strip() not in ("", unit):
        raise ValueError(f"{place}: {echo(told)} is not in {unit}")
    try:
        number = number_in(value) if read is None else read(told)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    if not 0 <= number <= most:
        raise ValueError(f"{place}: {echo(told, '')} must be between 0 and {most:,.0f}")
    return number


def seconds_of(text: str, place: str, time_zone: tzinfo | None = None) -> tuple[float, bool]:
    """Seconds since 1970 of a date, of nvidia-smi or ISO 8601, or of a number of them; if its zone is known.

    A date without a zone is of `time_zone`, or else read as in UTC. Anything else is a ValueError that names
    the place.
    """
    try:
        found_s, form = moment_s(text)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    if form == LOCAL and time_zone is not None:
        return in_zone_s(found_s, time_zone), True
    return found_s, form != LOCAL
