"""Records of a replay as tables: a line per job, per round, and per change of power."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from wattsched.replay.jobs.metrics import finish_time_fairness
from wattsched.replay.jobs.outcome import Outcome

Columns = Mapping[str, Sequence[object]]

DIGITS = 9

JOB_COLUMNS = (
    "first_start_s", "end_s", "held_s", "gpu_s", "energy_j", "carbon_g", "restarts", "migrations",
    "preemptions",
)  # fmt: skip
CLOCK_COLUMNS = frozenset(("arrival_s", "first_start_s", "end_s", "time_s"))
"""Times of the trace's clock, which may be large: seconds since 1970, say."""
ROUND_COLUMNS = ("time_s", "decision_s", "gap", "running", "waiting", "busy_gpus", "fragmentation")


def jobs(outcome: Outcome) -> Columns:
    """Jobs in the order of their arrival."""
    trace = outcome.trace
    return {
        "job": trace.names,
        "arrival_s": trace.arrival_s.tolist(),
        **{name: getattr(outcome.jobs, name).tolist() for name in JOB_COLUMNS},
        "rho": finish_time_fairness(outcome).tolist(),
    }


def rounds(outcome: Outcome) -> Columns:
    """Decisions in the order of their time."""
    return {name: getattr(outcome.rounds, name) for name in ROUND_COLUMNS}


def power(outcome: Outcome) -> Columns:
    """Watts of the cluster from each time to the next."""
    return {"time_s": outcome.power.time_s, "power_w": outcome.power.power_w}


RECORDS: dict[str, Callable[[Outcome], Columns]] = {"jobs": jobs, "rounds": rounds, "power": power}


def csv_text(columns: Columns) -> str:
    """Table as CSV, numbers to nine digits, and times of the clock to the millisecond at least."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    cells = (
        [_cell(value, clock=name in CLOCK_COLUMNS) for value in values] for name, values in columns.items()
    )
    writer.writerows(zip(*cells, strict=True))
    return out.getvalue()


def parquet(columns: Columns) -> bytes:
    """Table as Parquet, numbers as they are (``pip install 'wattsched[parquet]'``).

    Raises
    ------
    ImportError
        Without pandas or pyarrow.
    """
    import pandas as pd

    content: bytes = pd.DataFrame(dict(columns)).to_parquet(engine="pyarrow", index=False)
    return content


def missing_for_parquet() -> list[str]:
    """Packages that `parquet` needs and that are not installed."""
    return [name for name in ("pandas", "pyarrow") if find_spec(name) is None]


def _cell(value: object, *, clock: bool) -> object:
    if not isinstance(value, float):
        return value
    if value != value:
        return ""
    digits = max(DIGITS, len(f"{value:.0f}") + 3) if clock else DIGITS
    return f"{value:.{digits}g}"
