"""Job lists of Gavel (OSDI 2020): ``traces/*.csv``, with the throughputs that say how long a step takes.

A list counts steps, not seconds. What a step takes depends on how the list was made, and the throughputs that
are published with it tell which:

* those with a column ``vc`` (Philly's arrivals, GPU counts and durations, types drawn at random): steps are
  the recorded seconds times the rate of the type on one V100, whatever the GPU count, rounded down. Dividing
  by this rate, of ``oracle_pair_throughputs.json``, gives whole seconds for every job of the published list.
* those of the testbed: steps over the rate on so many V100, of ``simulation_throughputs.json``. It gives
  whole seconds for every job of ``physical_minimize_makespan.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattsched.instances.files import InputError, read_json
from wattsched.instances.traces.rows import Row, rows_of
from wattsched.instances.traces.snapshot import TraceJob

COLUMNS = ("job_type", "total_steps", "arrival_time_s", "scale_factor")
GPU = "v100"
ALONE = "null"
ON_ONE_GPU = "oracle_pair_throughputs.json"
ON_ALL_GPUS = "simulation_throughputs.json"


def read_gavel(
    path: str | Path, virtual_cluster: str | None = None, throughputs: str | None = None
) -> list[TraceJob]:
    """Jobs of a list; times in seconds on its clock.

    The list has no job names: ``row17`` is the job in line 18. What its job types train is not told further:
    their models differ from those of the catalogue.

    Parameters
    ----------
    virtual_cluster : str, optional
        Take the jobs of this virtual cluster only (default: of all).
    throughputs : str, optional
        File of throughputs (default: the one that the list needs, in its folder or the one above).

    Raises
    ------
    ValueError
        With the line and column of a malformed cell or a type without a throughput, when there is no file of
        throughputs, or no job is of the virtual cluster.
    OSError
        When a file cannot be read.
    """
    rows = list(rows_of(path, COLUMNS))
    philly = bool(rows) and "vc" in rows[0].cells
    rates = _rates(throughputs or _beside(Path(path), ON_ONE_GPU if philly else ON_ALL_GPUS))
    jobs, clusters = [], set()
    for number, row in enumerate(rows, start=1):
        cluster = row.text("vc") if philly else None
        clusters.add(cluster)
        gpus = row.count("scale_factor", least=1)
        seconds = row.number("total_steps") / _rate(row, rates, 1 if philly else gpus)
        if virtual_cluster in (None, cluster):
            jobs.append(TraceJob(f"row{number}", row.number("arrival_time_s"), seconds, gpus))
    if virtual_cluster is not None and not jobs:
        known = ", ".join(sorted(filter(None, clusters))) or "none"
        raise ValueError(f"{path}: no job is of the virtual cluster '{virtual_cluster}', there are {known}")
    return jobs


def _beside(path: Path, name: str) -> Path:
    for folder in (path.parent, path.parent.parent):
        if (folder / name).is_file():
            return folder / name
    raise ValueError(
        f"{path}: steps become seconds with '{name}', which is not in its folder or the one above"
    )


def _rates(path: str | Path) -> Mapping[str, Any]:
    """Steps per second of every job type on V100 alone."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get(GPU), dict):
        raise InputError([f"must be an object with '{GPU}', an object of job types"], str(path))
    found: Mapping[str, Any] = document[GPU]
    return found


def _rate(row: Row, rates: Mapping[str, Any], gpus: int) -> float:
    kind = row.text("job_type")
    # Tables over GPU counts write the count into the name.
    for name in (f"('{kind}', {gpus})", *([kind] if gpus == 1 else [])):
        entry = rates.get(name)
        rate = entry.get(ALONE) if isinstance(entry, dict) else None
        if isinstance(rate, int | float) and rate > 0:
            return float(rate)
    raise row.fault("job_type", f"no throughput of '{kind}' on {gpus} {GPU} is known")
