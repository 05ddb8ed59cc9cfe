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
from functools import partial

from wattsched.perfmodels.logs.samples import MOST, Sample, reading, table_lines
from wattsched.reading.inputs import json_in, listed
from wattsched.reading.tables import Row

HEADER = ("start_time", "window_name", "elapsed_time")
ENERGY = re.compile(r"gpu(\d+)_energy")
OPTIMISER = re.compile(r"(__\w*PowerLimitOptimizer)_(\d+)")
MOST_S, MOST_J = 1e10, 1e12


def read_windows(text: str, name: str) -> Iterator[Sample]:
    """Samples of windows: of each, its mean watts on each GPU."""
    # Zeus writes the names of windows as they are.
    for names, line, cells in table_lines(text, name, lambda cells: tuple(cells[:3]) == HEADER, free=1):
        row = Row(dict(zip(names, cells, strict=True)), f"{name}, line {line}")
        if cells is names:
            gpus = [found[1] for cell in names[3:] if (found := ENERGY.fullmatch(cell))]
            if not gpus or len(gpus) + len(HEADER) != len(names):
                told = f"no columns of energies such as gpu0_energy, found {listed(names)}"
                raise ValueError(f"{row.place}: {told}")
            continue
        start_s, elapsed_s = (row.read(one, partial(reading, most=MOST_S)) for one in HEADER[::2])
        if not elapsed_s > 0:
            raise row.fault("elapsed_time", f"{row.cells['elapsed_time']} must be above 0")
        optimiser = OPTIMISER.fullmatch(window := row.cells["window_name"])
        job, limit_w = (optimiser[1], float(optimiser[2])) if optimiser else (window, math.nan)
        for gpu in gpus:
            energy_j = row.read(f"gpu{gpu}_energy", partial(reading, most=MOST_J))
            power_w = energy_j / elapsed_s
            yield Sample(job, gpu, start_s, elapsed_s, power_w, power_limit_w=limit_w)


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
