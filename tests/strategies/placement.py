"""Small random clusters and task lists of the placement problem."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TaskTable

MODELS = ("T4", "G2", "P100")
SPECS = (frozenset[str](), frozenset({"T4"}), frozenset({"G2", "P100"}), frozenset({"A10"}))

_asked = st.one_of(
    st.just((0, 0)),
    st.tuples(st.just(1), st.sampled_from([1, 100, 250, 500, 501, 999, WHOLE_GPU])),
    st.tuples(st.sampled_from([2, 3, 4, 8]), st.just(WHOLE_GPU)),
)


@st.composite
def task_tables(draw: st.DrawFn, least: int = 1, most: int = 30) -> TaskTable:
    """Tasks of few distinct kinds, so that some of them repeat."""
    task = st.tuples(
        st.sampled_from([0, 1000, 2000, 3500, 8000]), st.sampled_from([0, 10, 50]), _asked, st.integers(0, 3)
    )
    tasks = draw(st.lists(task, min_size=least, max_size=most))
    rows = [(cpu, memory, gpus, each, spec if gpus else 0) for cpu, memory, (gpus, each), spec in tasks]
    return TaskTable(*np.array(rows, dtype=np.int64).T.copy(), specs=SPECS)


@st.composite
def node_tables(draw: st.DrawFn, most: int = 8) -> NodeTable:
    """Up to eight nodes of up to eight GPUs."""
    node = st.tuples(
        st.sampled_from([0, 4000, 9000, 16000, 100_000]),
        st.sampled_from([0, 60, 200]),
        st.sampled_from([1, 2, 4, 8]),
        st.integers(0, len(MODELS) - 1),
    )
    nodes = draw(st.lists(node, min_size=1, max_size=most))
    names = tuple(f"n{i}" for i in range(len(nodes)))
    return NodeTable(names, *np.array(nodes, dtype=np.int64).T.copy(), models=MODELS)
