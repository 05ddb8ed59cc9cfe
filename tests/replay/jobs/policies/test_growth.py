"""Rules of growth decide as a plain reading of them does, one growth after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from tests.strategies.effort import examples
from tests.strategies.replay import traces
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.rounds import fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.buddy import fits

Value = Callable[[State, int, int], float]
"""What a row of a job is worth."""


def seconds(state: State, j: int, row: int) -> float:
    return run_time(state, j, row) - float(state.delay_s(np.array([j]), np.array([row]))[0])


def run_time(state: State, j: int, row: int) -> float:
    return -float(state.remaining[j] / state.configurations.rate[row])


def throughput(state: State, j: int, row: int) -> float:
    of, kind = state.configurations, state.kind[j]
    rows = fastest(state.trace, state.trace.standard)
    return float(of.rate[row] / of.rate[rows[of.kind[rows] == kind]].min())


def shortest_first(state: State) -> list[int]:
    alone_s = state.remaining / state.trace.requested_rate[state.jobs]
    return np.argsort(alone_s, kind="stable").tolist()


def in_order(state: State) -> list[int]:
    return list(range(len(state)))


class Plain:
    """Room is counted anew before every step, and every growth that fits is compared."""

    def __init__(
        self, context: PolicyContext, name: str, value: Value, order: Callable[..., list[int]]
    ) -> None:
        self._policy = policy_of(name, context)
        self.restart_s = self._policy.restart_s
        self._rows = fastest(context.trace, context.trace.standard)
        self._value, self._order = value, order

    def decide(self, state: State) -> Decision:
        decision = self._policy.decide(state)
        assert self._rule(state) == decision.row.tolist()
        return decision

    def _rule(self, state: State) -> list[int]:
        of = state.configurations
        mine = [self._rows[of.kind[self._rows] == kind] for kind in state.kind]
        row = [WAIT] * len(state)

        def fit(j: int, larger: int) -> bool:
            held = [r for i, r in enumerate(row) if r != WAIT and i != j] + [larger]
            free = state.trace.free_gpus
            return all(
                fits([of.block[r] for r in held if of.pool[r] == p], free[p]) for p in range(len(free))
            )

        for j in self._order(state):
            smallest = [rows[np.argmin(of.block[rows])] for p in np.unique(of.pool[mine[j]])
                        for rows in [mine[j][of.pool[mine[j]] == p]]]  # fmt: skip
            held = state.row[j]
            moves = [held != WAIT and of.pool[r] != of.pool[held] for r in smallest]
            order = sorted(zip(moves, [-of.rate[r] for r in smallest], smallest, strict=True))
            row[j] = next((int(r) for _, _, r in order if fit(j, r)), WAIT)
        while True:
            steps = [
                (-(self._value(state, j, r) - self._value(state, j, now)) / (of.gpus[r] - of.gpus[now]), j, r)
                for j, now in enumerate(row)
                if now != WAIT
                for r in mine[j].tolist()
                if of.pool[r] == of.pool[now] and of.block[r] > of.block[now] and fit(j, r)
            ]
            if not steps or min(steps)[0] >= 0:
                return row
            _, j, r = min(steps)
            row[j] = r


@pytest.mark.parametrize(
    ("name", "value", "order"),
    [
        ("sidecar", seconds, shortest_first),
        ("termination", seconds, shortest_first),
        ("optimus", run_time, in_order),
        ("elasticflow", throughput, in_order),
    ],
)
@settings(max_examples=examples(20))
@given(trace=traces([(2,), (4,), (4, 4), (8, 8), (3, 3), (4, 2)]))
def test_the_best_growth_comes_first(
    name: str, value: Value, order: Callable[..., list[int]], trace: Trace
) -> None:
    context = PolicyContext(trace, Restarts(5.0, 20.0))
    simulate(trace, Plain(context, name, value, order))
