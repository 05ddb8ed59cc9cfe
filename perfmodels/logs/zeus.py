"""Logs of Zeus (https://ml.energy/zeus): windows of `ZeusMonitor`, and profiles of its power-limit optimiser.

``ZeusMonitor(log_file=...)`` writes ``start_time,window_name,elapsed_time,gpu0_energy,...``: seconds since
1970, seconds, and joules of each GPU. `GlobalPowerLimitOptimizer` measures a window for each power limit,
whose name ends with the watts, and saves ``{"measurements": [{"power_limit": W, "energy": J, "time": s}]}``,
the energy of all GPUs together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from wattsched.perfmodels.logs.samples import MOST, Sample, cells_of, csv_rows, reading
from wattsched.reading.inputs import echo, json_in, listed

WINDOWS = "Zeus (CSV of windows)"
PROFILE = "Zeus (JSON of power limits)"
HEADER = ("start_time", "window_name", "elapsed_time")
ENERGY = re.compile(r"gpu(\d+)_energy")
OPTIMISER = re.compile(r"(__\w*PowerLimitOptimizer)_(\d+)")
MOST_S, MOST_J = 1e10, 1e12


def recognises_windows(text: str) -> bool:
    """True if a text begins with the header of such a log."""
    return tuple(cells_of(text.lstrip().partition("\n")[0])[: len(HEADER)]) == HEADER


def read_windows(text: str, name: str) -> Iterator[Sample]:
    """Samples of windows: of each, its mean watts on each GPU."""
    rows = csv_rows(text, name, commas=True)  # in names of windows, which Zeus writes as they are
    first, header = next(rows)
    gpus = [found[1] for cell in header[3:] if (found := ENERGY.fullmatch(cell))]
    if not gpus or len(gpus) + len(HEADER) != len(header):
        told = f"no columns of energies such as gpu0_energy, found {listed(header)}"
        raise ValueError(f"{name}, line {first}: {told}")
    for line, cells in rows:
        start, window, elapsed = cells[0], ",".join(cells[1 : -1 - len(gpus)]), cells[-1 - len(gpus)]
        place = f"{name}, line {line}, column"
        start_s = reading(start, f"{place} 'start_time'", MOST_S)
        elapsed_s = reading(elapsed, f"{place} 'elapsed_time'", MOST_S)
        if not elapsed_s > 0:
            raise ValueError(f"{place} 'elapsed_time': {echo(elapsed, quote='')} must be above 0")
        optimiser = OPTIMISER.fullmatch(window)
        job, limit_w = (optimiser[1], float(optimiser[2])) if optimiser else (window, math.nan)
        for gpu, cell in zip(gpus, cells[-len(gpus) :], strict=True):
            power_w = reading(cell, f"{place} 'gpu{gpu}_energy'", MOST_J) / elapsed_s
            yield Sample(job, gpu, start_s, elapsed_s, power_w, power_limit_w=limit_w)


def recognises_profile(text: str) -> bool:
    """True if a text is a profile of power limits."""
    return text.lstrip().startswith("{") and '"measurements"' in text and '"power_limit"' in text


def read_profile(text: str, name: str) -> Iterator[Sample]:
    """Samples of a profile, each of all GPUs together."""
    measured = json_in(text).get("measurements")
    for number, one in enumerate(measured if isinstance(measured, list) else [None]):
        match one:
            case {
                "power_limit": int() | float() as limit_w,
                "energy": int() | float() as energy_j,
                "time": int() | float() as time_s,
            } if 0 < limit_w <= MOST["power_limit_w"] and 0 <= energy_j <= MOST_J and 0 < time_s <= MOST_S:
                yield Sample("", "", duration_s=time_s, power_w=energy_j / time_s, power_limit_w=limit_w)
            case _:
                told = "power_limit (W), energy (J) and time (s), all numbers above 0"
                raise ValueError(f"{name}, measurements[{number}]: is no object with {told}")
