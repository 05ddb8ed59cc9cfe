"""``wattsched defragment``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.test_defragment import SWAP, of_nodes

from .conftest import Run, refused


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "swap.json"
    path.write_text(of_nodes(SWAP, small=[2]).model_dump_json())
    return path


def test_moves_are_printed_in_their_order(run: Run, file: Path) -> None:
    told = run("defragment", file, "--job", "small", code=0).stdout
    assert "2 jobs move, proven to be the fewest" in told
    assert "1 job stops for a while" in told
    assert told.count("stops for a while") == 2
    assert json.loads(run("defragment", file, "--size", 2, "--json", code=0).stdout)["moves"] == 2
    assert "fits without a move" in run("defragment", file, "--size", 1, code=0).stdout


def test_what_cannot_fit_is_infeasible(run: Run, file: Path) -> None:
    told = run("defragment", file, "--size", 4, code=3).stdout
    assert (
        told
        == "instance: infeasible: 0 of 1 fit however others move; 2 GPUs are free, 4 are needed, 2 short\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --size, or --job without --count and --pool"),
        (("--job", "small", "--count", 2), "give --size, or --job without --count and --pool"),
        (("--job", "tall"), "--job: the round has no job 'tall' (did you mean 'small'?)"),
        (("--size", 20), "--size: no pool has room for 20 GPUs"),
        (("--size", 2, "--pool", "B"), "--pool: 'B' is not known"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    run: Run, file: Path, options: tuple[object, ...], message: str
) -> None:
    refused(run("defragment", file, *options), message)


def test_other_problems_are_refused(run: Run, tmp_path: Path) -> None:
    day = tmp_path / "day.json"
    run("generate", "shifting", "--jobs", 2, "--slots", 4, "-o", day, code=0)
    refused(run("defragment", day, "--size", 1), "must be 'sizing', got 'shifting'")
