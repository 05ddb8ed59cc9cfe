"""Samples, the common form of all GPU logs: each is what one GPU did at a moment or over a window."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from sys import intern
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattsched.reading.clocks import LOCAL, TWICE, in_order_s, moment_s, moments_s
from wattsched.reading.inputs import (
    ROWS_PER_MB,
    UNKNOWN,
    TooLargeError,
    echo,
    listed,
    most_mb,
    notice,
    number_in,
)
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Table

Texts = NDArray[np.object_]
"""Array of few different texts, each of which is stored once."""

MOST = {"power_w": 1e5, "utilisation": 100.0, "frequency_mhz": 1e5, "power_limit_w": 1e5}
"""Largest value of each column of a sample."""
LONGEST_STEP_S, _BACK = 60.0, "doubtful: the clock steps back"
"""Seconds by which clocks are set right, and what is said where they step back by more."""
BLANK = ("", "-", "n/a", "nan", "+nan", "-nan", "err!", "unknown", "unknown error", "not supported")
"""Words for a value that could not be read; nvidia-smi also puts the reason in brackets."""
UUID = "GPU-"
CLUSTERS, HOSTS = (
    ("cluster", "cluster_name"),
    ("Hostname", "hostname", "host", "node", "node_name", "nodename"),
)
"""Columns and labels of the cluster and the node of a GPU; columns in any case."""
SAME_GPU = "in a log of several nodes their GPUs count as the same"
IN_MIG = "assumed: boards in MIG mode count whole, as the log does not tell the watts of their slices"
TURNS, LEAST_TURNS, DIFFERS, ALIKE = (2, 3, 4), 20, 0.1, 0.2
"""So many GPUs take turns in the samples of one where draws in a row differ by `DIFFERS` of their mean, and
those of each turn by less than `ALIKE` of that."""
ROWS_PER_ODD = 100
"""Rows for each of which one may be odd: a line that is no row, or a moment of a clock that is set."""


class Sample(NamedTuple):
    """A sample, as readers give them; nan where a log does not tell.

    Attributes
    ----------
    job : str
        A Slurm job's number, a pod as NAMESPACE/POD, or a window of Zeus; empty where the log has none.
    gpu : str
        Which GPU; empty where the watts are those of all GPUs together.
    time_s, duration_s : float
        Seconds since 1970 on the log's clock, and of a window, over which the watts are the mean; nan for
        what was read at a moment.
    power_w, utilisation : float
        Watts of the whole GPU, and per cent of the time with a kernel on it.
    jobs, local_line : float
        Jobs that the log shows on the GPU then, and the line of a time without a zone, in UTC; 0 for others.
    model : str
        Name of the board.
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
    local_line: float = 0.0
    model: str = ""


@dataclass(frozen=True, eq=False)
class Samples(Table):
    """Samples by column, as of `Sample`, those of a log in the order of their times; limits in whole watts.

    `log` is the name of the file without its endings. Watts are divided evenly among the jobs on a GPU.
    Utilisation is from 0 to 1.
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
    local_line: FloatArray
    model: Texts

    @classmethod
    def of(cls, path: str | Path, read: Iterable[Sample], time_zone: tzinfo | None = None) -> Samples:
        """Collect the samples of a file; a ValueError if none tells watts.

        GPUs of different files are different ones, unless they are named by their UUIDs.
        """
        jobs, gpus, models = list[str](), list[str](), list[str]()
        numbers, most = array("d"), ROWS_PER_MB * most_mb()
        for sample in read:
            if len(jobs) == most:
                raise TooLargeError(f"{path} has more than {most:,} samples")
            jobs.append(intern(sample.job))
            gpus.append(intern(sample.gpu))
            models.append(intern(sample.model))
            numbers.extend(sample[2:-1])  # all but the job, the GPU and its model
        names = Sample._fields[2:-1]
        columns = dict(zip(names, np.array(numbers).reshape(-1, len(names)).T, strict=True))
        if np.isnan(columns["power_w"]).all():
            raise ValueError(f"{path} has no watts of a GPU")
        known = {gpu: gpu if gpu.startswith(UUID) or not gpu else f"{path}:{gpu}" for gpu in {*gpus}}
        gpus, logs = [known[gpu] for gpu in gpus], [stem_of(path)] * len(jobs)
        texts = {"log": logs, "job": jobs, "gpu": gpus, "model": models}
        columns["power_limit_w"] = np.round(columns["power_limit_w"])
        columns["power_w"] /= columns["jobs"]
        columns["utilisation"] /= 100.0
        samples = cls(**columns, **{name: np.array(cells, dtype=object) for name, cells in texts.items()})
        if told := samples._read_clock(time_zone) or samples._told_twice():
            notice(f"{path}: {told}")
        return samples.take(np.argsort(samples.time_s, kind="stable"))

    def _read_clock(self, zone: tzinfo | None) -> str:
        """Read each GPU's dates by their order, where their zone is known; return what to tell of them."""
        order, told = np.flatnonzero(self.local_line), ""
        order = order[np.argsort(self.gpu[order], kind="stable")]
        gpu, line, hours = self.gpu[order], self.local_line[order], self.time_s[order] / 3600
        if zone is not None:
            self.time_s[order], doubtful = in_order_s(self.time_s[order], gpu, zone)
            self.local_line[:] = 0
            told = TWICE if doubtful else ""
        gap_s = np.diff(self.time_s[order], prepend=np.nan)
        back = (gpu == np.roll(gpu, 1)) & (gap_s < -LONGEST_STEP_S)
        # Clocks are changed from Saturday at 23:00 on, in five hours; 1970 began on a Thursday.
        autumn = back & ((hours + 97) % 168 <= 5) & (np.abs(gap_s + 3600) <= 600)
        if autumn.any():
            told = f"{_BACK} by 1 h on line {line[autumn][0]:.0f}; --time-zone reads both hours"
        if (other := line[back & ~autumn]).size:
            told = f"{_BACK} on line {other[0]:.0f}; {SAME_GPU}"
        return told

    def _told_twice(self) -> str:
        """Return what to tell of a GPU that has two different draws at one moment; empty where none has."""
        numbers = {gpu: number for number, gpu in enumerate(dict.fromkeys(self.gpu.tolist()))}
        gpu = np.array([numbers[name] for name in self.gpu.tolist()])
        order = np.lexsort((self.time_s, gpu))
        alike = (np.diff(gpu[order]) == 0) & (np.diff(self.time_s[order]) == 0)
        differ = np.flatnonzero(alike & (np.abs(np.diff(self.power_w[order])) > 0))
        # A clock that is set back by seconds shows some moments twice.
        often = differ.size * ROWS_PER_ODD > len(self)
        if often:
            return several_draws(self.gpu[order[differ[0]]])
        for of_gpu in np.split(order, np.flatnonzero(np.diff(gpu[order])) + 1):
            name, power_w = self.gpu[of_gpu[0]], self.power_w[of_gpu]
            read_w = power_w[~np.isnan(power_w) & np.isnan(self.duration_s[of_gpu])]
            if not name.startswith(UUID) and (turns := _turns(read_w)) > 1:
                told = f"{listed((f'{w:.0f}' for w in read_w[:turns]), quote='')} W"
                return f"doubtful: draws of GPU {echo(name)} take turns, as in {told}; {SAME_GPU}"
        return ""

    def __len__(self) -> int:
        return len(self.job)

    @property
    def untold(self) -> BoolArray:
        """Mask of samples that tell neither watts nor utilisation, nor are windows, in which a GPU works."""
        return np.isnan(self.power_w) & np.isnan(self.utilisation) & np.isnan(self.duration_s)

    def telling(self) -> IntArray:
        """Place of the last sample of each one's GPU that is not `untold`, else of the next, else its own."""
        found, told = np.arange(len(self)), ~self.untold
        for gpu in np.unique(self.gpu[~told]):
            of_gpu = np.flatnonzero(self.gpu == gpu)
            of_gpu = of_gpu[np.argsort(self.time_s[of_gpu], kind="stable")]
            if told[of_gpu].any():
                last = np.cumsum(told[of_gpu]) - 1
                found[of_gpu] = of_gpu[told[of_gpu]][np.maximum(last, 0)]
        return found


def _turns(power_w: FloatArray) -> int:
    """Return the number of GPUs whose draws take turns in the samples of one, as far as that can be seen."""
    if len(power_w) < LEAST_TURNS:
        return 1
    apart_w = {k: float(np.abs(power_w[k:] - power_w[:-k]).mean()) for k in (1, *TURNS)}
    found = [k for k in TURNS if apart_w[k] < ALIKE * apart_w[1]]
    return found[0] if found and apart_w[1] > DIFFERS * power_w.mean() else 1


def several_draws(gpu: str) -> str:
    """Say that a GPU has two different draws at one moment."""
    return f"doubtful: GPU {echo(gpu)} has several draws at one moment; {SAME_GPU}"


def stem_of(path: str | Path) -> str:
    """Name of a file without its folder and its ending, ``.gz`` included."""
    return Path(Path(str(path)).name.removesuffix(".gz")).stem


def lines_of(text: str) -> Iterator[str]:
    """Lines of a text, one at a time: a list of all would take several times as much memory as the text."""
    return (found[0].removesuffix("\r") for found in re.finditer("(?m)^.*$", text))


def cells_of(line: str) -> list[str]:
    """Cells of a line, which commas separate, without blanks around them."""
    return [cell.strip() for cell in line.split(",")]


Line = tuple[list[str], int, list[str]]
"""Names of the columns of a log, the number of a line, and its cells; the names themselves in a header."""


class OddLines:
    """Lines of a log that are no rows, as a restart cuts them: few are left out, more are refused."""

    def __init__(self, name: str):
        self._name, self._faults = name, list[str]()

    def leave_out(self, line: int, fault: str) -> None:
        """Take a line; a ValueError if they are too many."""
        self._faults.append(f"line {line}: {fault}")
        if len(self._faults) > 1 + line // ROWS_PER_ODD:
            raise ValueError(f"{self._name}, {self._faults[0]}")

    def tell(self) -> None:
        """Say which were left out."""
        if self._faults:
            more = f" and {len(self._faults) - 1:,} more" if self._faults[1:] else ""
            notice(f"{self._name}: left out: {self._faults[0]}{more}")


def table_lines(
    text: str, name: str, is_header: Callable[[list[str]], bool], free: int | None = None
) -> Iterator[Line]:
    """Lines of a CSV log, its first a header, without a line in which its writer was ended.

    Rows have as many cells as their header, or they are odd ones; commas in the cell `free` are its own.
    """
    names, odd = list[str](), OddLines(name)
    for line, row in enumerate(lines_of(text), start=1):
        cells = cells_of(row)
        if not any(cells):
            continue
        names = cells if not names or is_header(cells) else names
        if free is not None and (more := len(cells) - len(names)) > 0:
            cells[free : free + more + 1] = [",".join(cells[free : free + more + 1])]
        if len(cells) == len(names):
            yield names, line, cells
        elif text.endswith("\n") or line <= text.count("\n"):
            told = f"{len(cells)} cells, the header has {len(names)} columns"
            odd.leave_out(
                line, told + "; commas in quotes count, too: write decimals with points" * ('"' in row)
            )
    odd.tell()


def reading(text: str, most: float, unit: str = "", read: Callable[[str], float] | None = None) -> float:
    """Number of a cell, with or without its unit, 0 to `most`; nan where it says that there is none.

    Of watts, `read` converts what is in another unit. Anything else is a ValueError.
    """
    told = text.strip()
    if told.lower() in BLANK or (told.startswith("[") and told.endswith("]")):
        return math.nan
    value, _, found = told.partition(" ")
    if read is None and found.strip() not in ("", unit):
        raise ValueError(f"{echo(told)} is not {f'in {unit}' if unit else 'a number'}")
    number = number_in(value) if read is None else read(told)
    if math.isnan(number) or number in UNKNOWN:
        return math.nan
    if not 0 <= number <= most:
        raise ValueError(f"{echo(told, quote='')} must be between 0 and {most:,.0f}")
    return number


def seconds_of(text: str, time_zone: tzinfo | None = None) -> tuple[list[float], bool]:
    """Seconds since 1970 of a date, of nvidia-smi or ISO 8601, or of a number of them; if its zone is known.

    A date without a zone is of `time_zone`, which may show it twice, or else read as in UTC. Anything else is
    a ValueError.
    """
    found_s, form = moment_s(text)
    if form == LOCAL and time_zone is not None:
        return moments_s(found_s, time_zone), True
    return [found_s], form != LOCAL
