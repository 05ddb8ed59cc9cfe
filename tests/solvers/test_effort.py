"""Processor seconds and nodes, of this process and of those that solve or are killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from wattsched.solvers import registry
from wattsched.solvers.effort import measured, spend
from wattsched.solvers.solution import Limits
from wattsched.solvers.worker import Worker

from .programs import knapsack

BUSY = """
import time

def busy(program, limits):
    begin = time.process_time()
    while time.process_time() < begin + {seconds}:
        pass
"""


def test_what_is_spent_on_the_way_adds_up_where_it_is_measured():
    spend(nodes=5, cpu_s=5.0)
    with measured() as outer:
        with measured() as inner:
            spend(nodes=2)
        spend(nodes=3)
        spend(cpu_s=7.0)
    assert (inner.nodes, outer.nodes) == (2, 3)
    assert 6.999 < outer.cpu_s < 8.0


@pytest.mark.parametrize(
    "place",
    ["here", "process", "killed", pytest.param("killed at its second program", marks=pytest.mark.slow)],
)
def test_seconds_on_the_processor_are_those_of_whoever_solves(tmp_path: Path, place: str):
    own = tmp_path / "own.py"
    own.write_text(BUSY.format(seconds=0.5 if "killed" not in place else 60.0))
    name, program = f"{own}:busy", knapsack(2, 3)
    if place == "here":
        with measured() as effort:
            registry.get(name)(program, Limits())
    else:
        with Worker() as worker:
            if "second" in place:
                (tmp_path / "first.py").write_text(BUSY.format(seconds=1.5))
                worker.solve(f"{tmp_path / 'first.py'}:busy", program, Limits())
            limits = Limits(time_s=5.0) if place == "process" else Limits(time_s=0.8)
            time.sleep(1.0)  # it imports what it needs meanwhile
            with measured() as effort:
                worker.solve(name, program, limits, grace_s=0.2)
    assert 0.1 <= effort.cpu_s < 1.4
