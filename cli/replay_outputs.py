"""What ``wattsched replay`` writes: records of every replay, and plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wattsched.cli.failures import BadInput, reason
from wattsched.cli.files import write
from wattsched.cli.files import written as say_written

if TYPE_CHECKING:
    from wattsched.replay.jobs.outcome import Outcome


def record(outcome: Outcome, folder: Path, seed: int) -> None:
    """Write the jobs, rounds and power of a replay."""
    from wattsched.replay.jobs.records import jobs_csv, power_csv, rounds_csv

    folder.mkdir(exist_ok=True)
    for name, text in (("jobs", jobs_csv), ("rounds", rounds_csv), ("power", power_csv)):
        write(str(folder / f"{outcome.policy}-{seed}-{name}.csv"), text(outcome))


def draw(outcomes: list[Outcome], file: str) -> None:
    """Draw replays of one trace."""
    from wattsched.replay.jobs.plots import plot_outcomes
    from wattsched.replay.placement.plots import save

    try:
        save(plot_outcomes(outcomes), file)
    except OSError as error:
        raise BadInput(f"cannot write '{file}': {reason(error)}") from None
    say_written(file)
