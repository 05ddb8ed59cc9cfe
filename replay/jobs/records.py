"""Records of a replay as CSV text: a line per job, per round, and per change of power."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from wattsched.replay.jobs.metrics import finish_time_fairness
from wattsched.replay.jobs.outcome import Outcome

JOB_COLUMNS = (
    "job", "arrival_s", "first_start_s", "end_s", "held_s", "gpu_s", "energy_j", "carbon_g", "restarts",
    "migrations", "preemptions", "rho",
)  # fmt: skip
ROUND_COLUMNS = ("time_s", "decision_s", "gap", "running", "waiting", "busy_gpus", "fragmentation")
POWER_COLUMNS = ("time_s", "power_w")


def jobs_csv(outcome: Outcome) -> str:
    """Jobs in the order of their arrival."""
    trace, jobs = outcome.trace, outcome.jobs
    columns = [
        trace.names,
        trace.arrival_s.tolist(),
        *(getattr(jobs, name).tolist() for name in JOB_COLUMNS[2:-1]),
        finish_time_fairness(outcome).tolist(),
    ]
    return _text(JOB_COLUMNS, zip(*columns, strict=True))


def rounds_csv(outcome: Outcome) -> str:
    """Decisions in the order of their time."""
    columns = [getattr(outcome.rounds, name) for name in ROUND_COLUMNS]
    return _text(ROUND_COLUMNS, zip(*columns, strict=True))


def power_csv(outcome: Outcome) -> str:
    """Watts of the cluster from each time to the next."""
    return _text(POWER_COLUMNS, zip(outcome.power.time_s, outcome.power.power_w, strict=True))


def _text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if value != value else f"{value:.9g}"
    return value
