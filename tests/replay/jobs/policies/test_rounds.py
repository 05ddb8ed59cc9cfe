"""The program built from arrays is the one that the engine builds from an instance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.strategies.effort import examples
from tests.strategies.replay import traces
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.data import expand
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job, OptionTable, Placement
from wattsched.replay.jobs.policies.elastic import rank_weights
from wattsched.replay.jobs.policies.rounds import RoundOptions, fastest
from wattsched.replay.jobs.policy import State
from wattsched.replay.jobs.pools import PoolState
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

RESTART_S, WAIT_S = 11.0, 60.0
GAP = 1e-9


def everything(trace: Trace) -> np.ndarray:
    return np.ones(len(trace.configurations), dtype=bool)


@st.composite
def states(draw: st.DrawFn) -> State:
    """State of jobs, some of which run on blocks of the cluster."""
    trace = draw(traces())
    pools = [PoolState(pool) for pool in trace.pools]
    row = np.full(len(trace), WAIT, dtype=np.int64)
    counts = fastest(trace, everything(trace))
    start, _, rows = trace.configurations.laid_out(trace.configurations.of_job, counts)
    for j in range(len(trace)):
        wanted = draw(st.sampled_from(rows[start[j] : start[j + 1]].tolist()[::-1]))
        pool = pools[0]
        size = int(trace.configurations.block[wanted])
        level = size.bit_length() - 1
        free = pool.occupancy.free_gpus
        if wanted != WAIT and level < len(free) and free[level] >= size:
            pool.place([(j, int(trace.configurations.gpus[wanted]), size)])
            row[j] = wanted
    left = draw(st.lists(st.floats(0.01, 1.0), min_size=len(trace), max_size=len(trace)))
    return State(
        time_s=0.0, trace=trace, jobs=np.arange(len(trace)), remaining=trace.work * np.array(left), row=row,
        ran=row != WAIT, restarting_s=np.zeros(len(trace)), served_gpu_s=np.zeros(len(trace)),
        restart_s=RESTART_S, pools=pools,
    )  # fmt: skip


def instance_of(state: State) -> Instance:
    known = state.configurations
    jobs = []
    for j in range(len(state)):
        rows = slice(known.start[state.kind[j]], known.start[state.kind[j] + 1])
        table = OptionTable(
            gpus=known.gpus[rows].tolist(),
            pool=["G"] * (rows.stop - rows.start),
            rate=known.rate[rows].tolist(),
            power_w=known.power_w[rows].tolist(),
        )
        now = state.row[j]
        current = None if now == WAIT else Placement(gpus=int(known.gpus[now]), pool="G")
        work = float(state.remaining[j])
        jobs.append(
            Job(name=f"{j}", options=table, remaining_work=work, restart_s=RESTART_S, current=current)
        )
    return Instance(cluster=state.trace.cluster, jobs=jobs, round_s=WAIT_S)


@settings(max_examples=examples(40))
@given(states())
def test_same_optimum_as_the_engine(state: State) -> None:
    result = wattsched.solve(instance_of(state), objective="total-completion", gap=GAP)
    of_all = everything(state.trace)
    for rows in (np.flatnonzero(of_all), fastest(state.trace, of_all)):
        options = RoundOptions.of(state, rows, WAIT_S)
        solution = get("highs")(options.program(options.completion_s), Limits(gap=GAP))
        # Each is optimal within its gap, and sums of some jobs have some last digits.
        assert solution.objective == pytest.approx(result.objective, rel=3 * GAP)
        assert solution.x is not None
        chosen = options.chosen(solution.x)
        assert len(chosen) == len(state)
        own = (chosen == WAIT) | (state.configurations.kind[chosen] == state.kind)
        assert own.all()


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"carbon", "money"}))
@settings(max_examples=examples(15))
@given(state=states())
def test_same_values_as_the_engine(name: str, state: State) -> None:
    ours = RoundOptions.of(state, np.arange(len(state.configurations)), WAIT_S)
    theirs = OBJECTIVES[name].cost(expand(instance_of(state)))
    # A job's best time is what waiting takes less the round, and so has the last digits of the longer one.
    digits = 1e-14 * float((1 + WAIT_S / ours.best_s).max())
    assert OBJECTIVES[name].cost(ours) == pytest.approx(theirs, rel=max(1e-6, digits), abs=max(1e-12, digits))


@given(traces())
def test_fastest_rows_are_those_that_no_other_beats(trace: Trace) -> None:
    known = trace.configurations
    kept = set(fastest(trace, everything(trace)).tolist())
    for row in range(len(known)):
        rivals = np.flatnonzero((known.kind == known.kind[row]) & (known.pool == known.pool[row]))
        better = rivals[(known.block[rivals] <= known.block[row]) & (known.rate[rivals] >= known.rate[row])]
        strictly = better[(known.block[better] < known.block[row]) | (known.rate[better] > known.rate[row])]
        assert (row in kept) == (len(strictly) == 0)


def test_standard_rows_and_requests() -> None:
    """Of the rows with one GPU count: default batch, then the highest clock."""
    cluster = homogeneous_cluster(2, 8, "A100")
    trace = trace_of(cluster, [Job(name="a", model="gpt2", remaining_work=1.0)], [0.0], [6])
    known = trace.configurations
    standard = np.flatnonzero(trace.standard)
    assert known.gpus[standard].tolist() == sorted(set(known.gpus.tolist()))
    assert set(known.frequency_mhz[standard].tolist()) == {known.frequency_mhz.max()}
    assert set(known.batch_size[standard].tolist()) == {128.0}
    assert known.gpus[trace.request[0, 0]] == 4


def test_rank_weights_are_those_of_shortest_first_in_the_limit() -> None:
    sizes = np.array([5.0, 1.0, 3.0])
    assert rank_weights(sizes, 1 - 1e-6) == pytest.approx([1, 3, 2], rel=1e-4)
    assert rank_weights(sizes, 0.0) == pytest.approx([1, 1, 1])
    assert rank_weights(sizes, 0.5) == pytest.approx([1, 5**0.5, 3**0.5])
