"""Columns that can only be taken together, such as those of jobs that share GPUs, for greedy rules."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from wattsched.formulations.program import FloatArray, IntArray, Program
from wattsched.solvers.clock import Clock
from wattsched.solvers.matrix import linked_choices, linking_rows
from wattsched.solvers.room import Room


def bundles(program: Program) -> list[IntArray]:
    """Choice columns that rows link with one another, where taking all of them satisfies these rows."""
    columns = np.flatnonzero(linked_choices(program))
    if len(columns) == 0:
        return []
    rows = csr_array(program.matrix.tocsr()[linking_rows(program)][:, columns])
    n, number = connected_components(abs(rows).T @ abs(rows), directed=False)
    order = np.argsort(number, kind="stable")
    found = np.split(columns[order], np.cumsum(np.bincount(number, minlength=n))[:-1])
    # A row has all its columns in one bundle.
    unbalanced = np.zeros(n, dtype=bool)
    filled = np.flatnonzero(np.diff(rows.indptr))
    of_row = number[rows.indices[rows.indptr[filled]]]
    unbalanced[of_row[np.asarray(rows.sum(axis=1)).ravel()[filled] != 0]] = True
    return [bundle for bundle, odd in zip(found, unbalanced.tolist(), strict=True) if not odd]


def join(room: Room, found: list[IntArray], priced: FloatArray, clock: Clock) -> int:
    """Take bundles that save priced cost and fit, the largest saving first; how many were taken."""
    saving = np.array([np.sum(priced[room.chosen[room.group[b]]] - priced[b]) for b in found])
    joined = np.zeros(len(room.chosen), dtype=bool)
    taken = 0
    for i in np.argsort(-saving, kind="stable").tolist():
        groups = room.group[found[i]]
        if saving[i] <= 0 or clock.over():
            break
        if not joined[groups].any() and len(np.unique(groups)) == len(groups) and room.take_all(found[i]):
            joined[groups] = True
            taken += 1
    return taken
