"""The program built from arrays is the one that the engine builds from an instance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.replay import traces

import wattsched
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.sizing.instance import Instance, Job, OptionTable, Placement
from wattsched.replay.jobs.ground import Ground
from wattsched.replay.jobs.menus import WAITS, Menus, Selection, fastest
from wattsched.replay.jobs.policies.rounds import columns_of, program_of
from wattsched.replay.jobs.policies.worth import rank_weights
from wattsched.replay.jobs.policy import View
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

RESTART_S, WAIT_S = 11.0, 60.0


@st.composite
def views(draw: st.DrawFn) -> View:
    """View of jobs, some of which run on blocks of the cluster."""
    trace = draw(traces())
    grounds = [Ground(pool) for pool in trace.pools]
    row = np.full(len(trace), WAITS, dtype=np.int64)
    start, rows = fastest(trace.menus).laid_out(trace.menus.of_job)
    for j in range(len(trace)):
        wanted = draw(st.sampled_from([WAITS, *rows[start[j] : start[j + 1]].tolist()]))
        ground = grounds[0]
        size = int(trace.menus.block[wanted])
        level = size.bit_length() - 1
        free = ground.occupancy.free_gpus
        if wanted != WAITS and level < len(free) and free[level] >= size:
            ground.place([(j, int(trace.menus.gpus[wanted]), size)])
            row[j] = wanted
    left = draw(st.lists(st.floats(0.01, 1.0), min_size=len(trace), max_size=len(trace)))
    return View(
        time_s=0.0, trace=trace, jobs=np.arange(len(trace)), remaining=trace.work * np.array(left), row=row,
        ran=row != WAITS, restarting_s=np.zeros(len(trace)), served_gpu_s=np.zeros(len(trace)),
        restart_s=RESTART_S, grounds=grounds,
    )  # fmt: skip


def instance_of(view: View) -> Instance:
    menus = view.menus
    jobs = []
    for j in range(len(view)):
        rows = slice(menus.start[view.kind[j]], menus.start[view.kind[j] + 1])
        table = OptionTable(
            gpus=menus.gpus[rows].tolist(),
            pool=["G"] * (rows.stop - rows.start),
            rate=menus.rate[rows].tolist(),
            power_w=menus.power_w[rows].tolist(),
        )
        now = view.row[j]
        current = None if now == WAITS else Placement(gpus=int(menus.gpus[now]), pool="G")
        work = float(view.remaining[j])
        jobs.append(
            Job(name=f"{j}", options=table, remaining_work=work, restart_s=RESTART_S, current=current)
        )
    return Instance(cluster=view.trace.cluster, jobs=jobs, round_s=WAIT_S)


@settings(max_examples=40)
@given(views())
def test_same_optimum_as_the_engine(view: View) -> None:
    result = wattsched.solve(instance_of(view), objective="total-completion", gap=1e-9)
    everything = Selection.of(view.menus, np.ones(len(view.menus), dtype=bool))
    for selection in (everything, fastest(view.menus)):
        columns = columns_of(view, selection, WAIT_S)
        program = program_of(view, columns, columns.completion_s)
        solution = get("highs")(program, Limits(gap=1e-9))
        assert solution.objective == pytest.approx(result.objective, rel=1e-6)
        assert solution.x is not None
        chosen = columns.chosen(solution.x)
        assert len(chosen) == len(view)
        own = (chosen == WAITS) | (view.menus.kind[chosen] == view.kind)
        assert own.all()


@given(traces())
def test_fastest_rows_are_those_that_no_other_beats(trace: Trace) -> None:
    menus = trace.menus
    kept = set(fastest(menus).rows.tolist())
    for row in range(len(menus)):
        rivals = np.flatnonzero((menus.kind == menus.kind[row]) & (menus.pool == menus.pool[row]))
        better = rivals[(menus.block[rivals] <= menus.block[row]) & (menus.rate[rivals] >= menus.rate[row])]
        strictly = better[(menus.block[better] < menus.block[row]) | (menus.rate[better] > menus.rate[row])]
        assert (row in kept) == (len(strictly) == 0)


def test_standard_rows_and_requests() -> None:
    """Of the rows with one GPU count: default batch, then the highest clock."""
    cluster = homogeneous_cluster(2, 8, "A100")
    trace = trace_of(cluster, [Job(name="a", model="gpt2", remaining_work=1.0)], [0.0], [6])
    menus: Menus = trace.menus
    standard = np.flatnonzero(menus.standard)
    assert menus.gpus[standard].tolist() == sorted(set(menus.gpus.tolist()))
    assert set(menus.frequency_mhz[standard].tolist()) == {menus.frequency_mhz.max()}
    assert set(menus.batch_size[standard].tolist()) == {128.0}
    assert menus.gpus[trace.request[0, 0]] == 4


def test_rank_weights_are_those_of_shortest_first_in_the_limit() -> None:
    sizes = np.array([5.0, 1.0, 3.0])
    assert rank_weights(sizes, 1 - 1e-6) == pytest.approx([1, 3, 2], rel=1e-4)
    assert rank_weights(sizes, 0.0) == pytest.approx([1, 1, 1])
    assert rank_weights(sizes, 0.5) == pytest.approx([1, 5**0.5, 3**0.5])
