"""What ``wattsched replay`` writes: records of every replay, and plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wattsched.cli.failures import BadInput, reason
from wattsched.cli.files import write
from wattsched.cli.files import written as say_written

if TYPE_CHECKING:
    from wattsched.replay.jobs.outcome import Outcome


def record(outcome: Outcome, folder: Path, seed: int, *, as_parquet: bool) -> None:
    """Write the tables of a replay."""
    from wattsched.replay.jobs.outcome import RECORDS, csv_text, parquet

    folder.mkdir(exist_ok=True)
    for name, table in RECORDS.items():
        file = folder / f"{outcome.policy}-{seed}-{name}"
        columns = table(outcome)
        if as_parquet:
            write(f"{file}.parquet", parquet(columns))
        else:
            write(f"{file}.csv", csv_text(columns))


def draw(outcomes: list[Outcome], file: str) -> None:
    """Draw replays of one trace."""
    from wattsched.replay.jobs.plots import plot_outcomes
    from wattsched.replay.plots import save

    try:
        save(plot_outcomes(outcomes), file)
    except OSError as error:
        raise BadInput(f"cannot write '{file}': {reason(error)}") from None
    say_written(file)
