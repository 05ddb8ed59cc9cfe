"""Read measured training steps from CSV files of several layouts, and from logs of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

import numpy as np

from wattsched.perfmodels.columns import read_table
from wattsched.perfmodels.logs import log_of, read_log
from wattsched.perfmodels.logs.jobs import LoggedJobs, completed
from wattsched.perfmodels.logs.samples import Samples
from wattsched.reading.inputs import MOST_COLUMNS, echo, listed, notice, read_text
from wattsched.reading.tables import Row
from wattsched.topology.arrays import BoolArray, FloatArray

SPEEDS = ("step_time_s", "iterations_per_s", "throughput", "time_per_epoch_s")
OPTIONAL = ("sync_time_s", "frequency_mhz", "power_limit_w", "power_w")
COUNTS = ("gpus", "nodes", "local_batch", "batch_size")
NUMBERS = {*COUNTS, *SPEEDS, *OPTIONAL}
WHOLE = {"gpus", "nodes", "local_batch", "batch_size", "frequency_mhz"}
LARGEST_WHOLE = 1_000_000
SMALLEST, LARGEST = 1e-6, 1e9
MAY_BE_ZERO = ("sync_time_s",)
WORKLOAD_COLUMNS = ("dataset", "network", "model", "model_name")
COLUMNS = (*COUNTS, *SPEEDS, *OPTIONAL, *WORKLOAD_COLUMNS, "placement")
JOB_COLUMNS = ("job", "start", "end", "steps")
SAMPLES_PER_EPOCH = {
    "cifar100": 50_000,
    "imagenet": 1_281_167,
    "librispeech": 281_241,
    "movielens-1m": 4_970_845,
    "sentiment140": 1_600_000,
    "squad": 88_524,
}


@dataclass(frozen=True)
class Measurements:
    """Measured steps, one per index; a column that is not there is None.

    Attributes
    ----------
    gpus, nodes, local_batch, step_time_s : ndarray of float64, shape (n,)
        GPUs, nodes they are spread over, samples per GPU, seconds of a step.
    sync_time_s, frequency_mhz, power_limit_w, power_w : ndarray of float64, shape (n,), optional
        Seconds of the step spent synchronising, settings, average draw of one GPU.

    Columns of different lengths, and values that are not finite and positive, are a ValueError.
    """

    gpus: FloatArray
    nodes: FloatArray
    local_batch: FloatArray
    step_time_s: FloatArray
    sync_time_s: FloatArray | None = None
    frequency_mhz: FloatArray | None = None
    power_limit_w: FloatArray | None = None
    power_w: FloatArray | None = None

    def __post_init__(self) -> None:
        for name, values in self.columns().items():
            if len(values) != len(self.gpus):
                raise ValueError(f"{name} has {len(values)} values, gpus has {len(self.gpus)}")
            least = 0.0 if name in MAY_BE_ZERO else np.nextafter(0.0, 1.0)
            wrong = values[~(np.isfinite(values) & (values >= least))]
            if wrong.size:
                limit = "0 or more" if name in MAY_BE_ZERO else "above 0"
                raise ValueError(f"{name} has the value {wrong[0]:g}; it must be finite and {limit}")

    def __len__(self) -> int:
        return len(self.gpus)

    def columns(self) -> dict[str, FloatArray]:
        """Columns that are there, by name."""
        return {name: values for name, values in vars(self).items() if values is not None}

    def rows(self, chosen: BoolArray) -> Measurements:
        """Return the chosen measurements alone."""
        return Measurements(**{name: values[chosen] for name, values in self.columns().items()})


def read_measurements(
    path: str | Path,
    *,
    gpus_per_node: int = 8,
    where: Mapping[str, str] | None = None,
    samples_per_epoch: float | None = None,
) -> Measurements:
    """Read a table of measured steps.

    Columns, in any order and unit, under usual names of theirs (`perfmodels.columns`; a notice names the
    others): ``gpus``; ``local_batch`` or ``batch_size`` (global); one of ``step_time_s``,
    ``iterations_per_s`` and ``throughput`` (samples/s); optional ``nodes``, ``sync_time_s``,
    ``frequency_mhz``, ``power_limit_w``, ``power_w`` (average of one GPU). Also read: wide tables of
    iterations/s with ``global_batch_size`` and a column per GPU count (ElasticFlow; an empty cell or 0 is not
    measured), ``placements.csv`` and ``scalability.csv`` of Pollux, and ``summary_power_*.csv`` of Zeus (one
    GPU, seconds per epoch).

    Parameters
    ----------
    path : str or Path
        The file.
    gpus_per_node : int
        Gives the nodes where the file does not: ``ceil(gpus / gpus_per_node)``.
    where : mapping, optional
        Keep the rows with these values, for example ``{"network": "resnet50"}``.
    samples_per_epoch : float, optional
        For files with seconds per epoch; default: known for the data sets of Zeus.

    Raises
    ------
    ValueError
        One sentence that names the file, and the line and column where there is one.
    OSError
        If the file cannot be opened.
    """
    _require_no_log(path)
    return _measured(path, _chosen(path, where), gpus_per_node, samples_per_epoch)


def read_logged(
    logs: Sequence[str | Path],
    jobs: str | Path,
    *,
    gpus_per_node: int = 8,
    where: Mapping[str, str] | None = None,
    time_zone: tzinfo | None = None,
    gpu_type: str = "",
) -> tuple[Measurements, LoggedJobs]:
    """Read logs of GPUs, of nvidia-smi, DCGM, Prometheus or Zeus, and the table of the jobs that ran.

    Errors are those of `read_measurements`.

    Parameters
    ----------
    logs : sequence of str or Path
        The files.
    jobs : str or Path
        Table with a row for each job: the columns of `read_measurements`, of which ``gpus``, ``power_w`` and
        the setting are those of the logs where the table does not have them. ``job`` is what the logs call
        it: a Slurm job's number, a pod (or NAMESPACE/POD), a window of Zeus, or a log's file without ending;
        ``*`` stands for anything. ``start`` and ``end`` (optional) are times. ``steps`` are iterations of a
        window of Zeus, whose duration then tells the step time.
    gpus_per_node, where
        As for `read_measurements`.
    time_zone : tzinfo, optional
        Of times that are told without a zone. Without it, such times are compared with each other alone.
    gpu_type : str, optional
        What the GPUs of the logs should be; names of others are pointed at.

    Returns
    -------
    measurements : Measurements
    found : LoggedJobs
        What each job did, and what was left out.
    """
    samples = Samples.joined([read_log(log, time_zone) for log in logs])
    found = completed(_chosen(jobs, where, JOB_COLUMNS), samples, str(jobs), time_zone, gpu_type)
    header = list(dict.fromkeys(name for row in found.rows for name in row.cells))
    rows = [Row({name: row.cells.get(name, "") for name in header}, row.place) for row in found.rows]
    return _measured(jobs, rows, gpus_per_node, None, found.notes), found


def _require_no_log(path: str | Path) -> None:
    """Refuse a log, and say which table it needs."""
    try:
        log = log_of(read_text(path))
    except ValueError:
        return  # said better where the table is read
    if log is not None:
        wanted = "with job, batch_size, and step_time_s, throughput or, of Zeus, steps"
        raise ValueError(f"{path} is a log of {log.name}: give `jobs`, the table of its jobs, {wanted}")


def _chosen(path: str | Path, where: Mapping[str, str] | None, also: Iterable[str] = ()) -> list[Row]:
    """Rows of a table, of one workload, with the values of `where` in its columns; `also` are read, too."""
    chosen = where or {}
    names, rows = read_table(path, [*COLUMNS, *also], chosen)
    header = [*names.values()]
    for stated, value in chosen.items() if rows else ():
        column = names.get(stated, stated)
        if column not in header:
            known = listed(names, most=MOST_COLUMNS)
            raise ValueError(f"{path} has no column '{stated}' to choose rows by; it has {known}")
        rows = [row for row in rows if row.cells[column] == value]
        if not rows:
            raise ValueError(f"{path} has no row with {column} '{value}'")
    for column in WORKLOAD_COLUMNS:
        if column in header and len(values := sorted({row.cells[column] for row in rows})) > 1:
            several = f"has several workloads ({listed(values, quote='')}): choose one"
            raise ValueError(f"{path}: the column '{column}' {several}")
    return rows


def _measured(
    path: str | Path,
    rows: list[Row],
    gpus_per_node: int,
    samples_per_epoch: float | None,
    notes: Sequence[str] = (),
) -> Measurements:
    """Measurements of the rows of a file in any layout; `notes` go into messages."""
    header = rows[0].cells if rows else {}
    counts = [name for name in header if name.isdecimal()]
    if counts and "batch_size" in header:
        rows = _unfold(rows, counts)
    elif "placement" in header:
        rows = list(map(_with_placement, rows))
    elif "gpus" not in header and "time_per_epoch_s" in header:
        rows = [Row({**row.cells, "gpus": "1"}, row.place) for row in rows]
    if len(rows) < 2:
        found = "1 measurement" if rows else "0 measurements"
        raise too_few(f"{path} has {found}, a fit needs 2 or more", notes)
    columns = {name: _numbers(rows, name) for name in rows[0].cells if name in NUMBERS}
    if "time_per_epoch_s" in columns and samples_per_epoch is None:
        samples_per_epoch = SAMPLES_PER_EPOCH.get(rows[0].cells.get("dataset", ""))
        if samples_per_epoch is None:
            raise ValueError(f"{path} has seconds per epoch: give samples_per_epoch")
    return _measurements(path, columns, gpus_per_node, samples_per_epoch)


def too_few(told: str, notes: Sequence[str]) -> ValueError:
    """Return the error for too few measurements, with the notes on those left out; others become notices."""
    left_out = [note for note in notes if note.startswith("left out")]
    for note in notes:
        if note not in left_out:
            notice(note)
    return ValueError("; ".join([told, *left_out]))


def _unfold(rows: list[Row], counts: list[str]) -> list[Row]:
    """One row per cell of a wide table, without the cells that were not measured."""
    return [
        Row({"gpus": count, "batch_size": row.cells["batch_size"], "iterations_per_s": cell}, row.place)
        for row in rows
        for count in counts
        if (cell := row.cells[count]).lower() not in ("", "nan", "0", "0.0")
    ]


def _with_placement(row: Row) -> Row:
    """Add GPUs and nodes of a placement like 44: a digit per node, the GPUs used on it."""
    placement = row.cells["placement"]
    if not re.fullmatch("[1-9]+", placement):
        raise row.fault("placement", f"{echo(placement)} must be a digit 1 to 9 per node")
    counts = {"gpus": str(sum(map(int, placement))), "nodes": str(len(placement))}
    return Row({**row.cells, **counts}, row.place)


def _numbers(rows: list[Row], column: str) -> FloatArray:
    """Values of a column: finite, above 0 (synchronisation may take no time), counts whole."""
    if column in WHOLE:
        return np.array([row.count(column, 1, LARGEST_WHOLE) for row in rows], dtype=float)
    least = 0.0 if column in MAY_BE_ZERO else SMALLEST
    return np.array([row.number(column, least, LARGEST) for row in rows])


def _measurements(
    path: str | Path, columns: dict[str, FloatArray], gpus_per_node: int, samples_per_epoch: float | None
) -> Measurements:
    """Convert columns of a file into samples per GPU and seconds of a step."""
    if "gpus" not in columns:
        raise ValueError(f"{path} lacks the column 'gpus'")
    if "local_batch" not in columns and "batch_size" not in columns:
        raise ValueError(f"{path} lacks a column 'local_batch' or 'batch_size'")
    speeds = [name for name in SPEEDS if name in columns]
    if len(speeds) != 1:
        found = f"has {' and '.join(speeds)}" if speeds else "has none"
        raise ValueError(f"{path} must have one of the columns {', '.join(SPEEDS)}; it {found}")
    gpus = columns["gpus"]
    local_batch = columns["local_batch"] if "local_batch" in columns else columns["batch_size"] / gpus
    batch, speed = local_batch * gpus, columns[speeds[0]]
    step_time_s = {
        "step_time_s": speed,
        "iterations_per_s": 1.0 / speed,
        "throughput": batch / speed,
        "time_per_epoch_s": speed * batch / (samples_per_epoch or 1.0),
    }[speeds[0]]
    nodes = columns.get("nodes", np.ceil(gpus / gpus_per_node))
    optional = {name: columns[name] for name in OPTIONAL if name in columns}
    return Measurements(gpus, nodes, local_batch, step_time_s, **optional)
