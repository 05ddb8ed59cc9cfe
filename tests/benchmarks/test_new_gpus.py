"""Today's GPUs against published figures: what is read, what is fitted, and how far off that is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import today
from benchmarks.studies import new_gpus
from wattsched.instances.clusters import GPU_TYPES
from wattsched.perfmodels.throughput import Throughput

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables" / "new-gpus.md"


def test_every_figure_names_a_source_and_belongs_to_a_profile() -> None:
    for row in [*new_gpus.rates(), *new_gpus.node_watts()]:
        assert row.source in new_gpus.SOURCES
        assert new_gpus.profile_of(row).gpu_type == row.gpu_type
        assert row.value > 0 < row.batch
        assert row.use in new_gpus.USES


def test_the_fit_meets_what_it_was_fitted_to() -> None:
    lines = [*new_gpus.rate_lines(), *new_gpus.watt_lines()]
    errors = np.array([abs(line.ours / line.published - 1) for line in lines if line.used == new_gpus.FITTED])
    assert errors.max() < 0.12
    assert errors.mean() < 0.02


def test_the_table_is_that_of_the_catalogue() -> None:
    """Row for row, with the errors that the profiles have now."""
    lines = [*new_gpus.rate_lines(), *new_gpus.watt_lines(), *new_gpus.other_lines()]
    rows = [
        line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] != "| :"
    ]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == 6 and row[0].strip() != "setting"]
    assert [(row[0], row[1], row[5]) for row in rows] == [
        (line.what, line.source, line.used) for line in lines
    ]
    printed = [float(re.sub("[ %]", "", row[4])) for row in rows]
    np.testing.assert_allclose(printed, [100 * (line.ours / line.published - 1) for line in lines], atol=0.11)


@given(
    beta_c=st.floats(1e-4, 10.0),
    alpha_n=st.floats(0.0, 1.0),
    speed=st.floats(0.05, 20.0),
    batches=st.lists(st.integers(8, 4096), min_size=1, max_size=5),
)
def test_a_scaled_computation_is_found_again(
    beta_c: float, alpha_n: float, speed: float, batches: list[int]
) -> None:
    base = Throughput(alpha_c=0.0, beta_c=beta_c, alpha_n=alpha_n)
    wanted = today.faster(base, speed)
    rows = []
    for batch in batches:
        row = today.Row("fit", "m", "H200", 16, 8, batch, 1.0, "s", "x")
        time_s = today.predicted_s(wanted, today.measurements([row]))[0]
        rows.append(today.Row("fit", "m", "H200", 16, 8, batch, batch / time_s, "s", "x"))
    again = today.faster(base, today.speed_at(base, rows))
    steps = today.measurements(rows)
    np.testing.assert_allclose(today.predicted_s(again, steps), today.predicted_s(wanted, steps), rtol=1e-6)


@given(
    part=st.floats(0.29, 1.0), less=st.floats(0.29, 1.0), workload=st.sampled_from(["llama3-8b", "vit-l16"])
)
def test_less_power_is_slower(part: float, less: float, workload: str) -> None:
    slow, fast = np.interp(sorted((part, less)), *today.slowdowns(workload))
    assert 1.0 <= fast <= slow
    assert np.interp(1.0, *today.slowdowns(workload)) == 1.0


def test_no_server_is_left_with_less_than_nothing() -> None:
    for row in new_gpus.node_watts():
        kind = GPU_TYPES[row.gpu_type]
        assert kind.idle_power_w < today.gpu_w(row) <= kind.max_power_w
