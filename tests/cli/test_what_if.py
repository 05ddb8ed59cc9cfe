from __future__ import annotations

import json

import pytest

from tests.engine.test_what_if import small


def test_both_decisions_are_shown_side_by_side(run, write, tmp_path):
    file = write(small().model_dump(mode="json"))
    shown = run("what-if", file, "--power-w", "-40%", "--remove", "runs", code=0).stdout
    assert "what if power_w -40%, remove runs" in shown
    assert "is taken out" in shown
    assert max(map(len, shown.splitlines())) <= 110
    document = json.loads(run("what-if", file, "--gpus", "A=-4", "--json", code=0).stdout)
    assert document["format"] == "wattsched-what-if/1"
    assert {"before", "after", "jobs"} <= document.keys()


def test_a_sweep_is_a_table_and_a_plot(run, write, tmp_path):
    file, plot = write(small().model_dump(mode="json")), tmp_path / "sweep.png"
    shown = run("what-if", file, "--sweep", "power_w=0.2:1:0.4kW", "--plot", plot, code=0).stdout
    assert "200 W" in shown
    assert "infeasible" in shown
    assert "1 kW" in shown
    assert plot.stat().st_size > 1000


@pytest.mark.usefixtures("explained")
def test_an_infeasible_change_says_why(run, write):
    file = write(small().model_dump(mode="json"))
    shown = run("what-if", file, "--power-w", "270", code=3).stdout
    assert "Contradiction" in shown
    assert "job 'stays' keeps its GPUs" in shown


def test_bad_changes_are_one_line(run, write):
    file = write(small().model_dump(mode="json"))
    for arguments, told in (
        (["--power-w", "two"], "power_w: 'two' is no change"),
        (["--gpus", "A"], "--gpus: 'A' is not POOL=CHANGE"),
        (["--gpus", "A=-1", "--gpus", "A=+2"], "--gpus: one change for each pool, got A=-1, A=+2"),
        (["--sweep", "power_w=1:2"], "--sweep: 'power_w=1:2' is not NAME=FROM:TO:STEP"),
        (["--sweep", "power_w=2:1:1"], "must go up by steps above 0"),
        (["--sweep", "power_w=1:900:1"], "to 200 values at most"),
        (["--sweep", "watts=1:2:1"], "--sweep: 'watts' is not known"),
        ([], "give changes such as --power-w +2kW, or --sweep"),
        (["--power-w", "1kW", "--plot", "p.png"], "--plot: draws a --sweep"),
    ):
        said = run("what-if", file, *arguments, code=2)
        assert told in said.stderr
        assert len(said.stderr.splitlines()) == 1
