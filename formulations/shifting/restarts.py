r"""Restarts in the time-indexed program: a start of a kind of option that the job did not have before.

With :math:`y_{kt}` for "runs with an option of kind k in slot t", starts are
:math:`s_{kt} = y_{kt} (1 - y_{k,t-1})` by linear rows. A job that never ran has one free start, its first:
:math:`\sum f \le 1`, :math:`f \le s`, and :math:`s_{kt} - f_{kt} \le \sum_{s<t} \sum_k y_{ks}`.
All but the :math:`x` of the runs may be continuous.
"""

from __future__ import annotations

from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.sparse_rows import SparseRows

Key = tuple[int, int]


def add_restarts(
    horizon: Horizon, rows: SparseRows, job: int, runs: dict[Key, int], used: dict[Key, int]
) -> dict[Key, int]:
    """Add what says that a slot begins with a restart; nothing for jobs that restart for free.

    Parameters
    ----------
    runs, used : dict
        Columns by slot and option.

    Returns
    -------
    dict
        Column by slot and option: 1 when the slot begins with a restart of the option.
    """
    restart_s = float(horizon.restart_s[job])
    if restart_s == 0.0:
        return {}
    name = horizon.instance.jobs[job].name
    again = {key: rows.column(f"again[{name},{key[0]},{key[1]}]", 0.0, 1.0) for key in runs}
    for key, column in again.items():
        rows.row("again runs", [column, runs[key]], [1.0, -1.0], upper=0.0)
        rows.row("again used", [column, used[key]], [restart_s, -1.0], upper=0.0)
    of_kind: dict[Key, list[Key]] = {}
    for slot, option in runs:
        of_kind.setdefault((slot, int(horizon.kind[option])), []).append((slot, option))
    starts = {key: rows.column(f"starts[{name},{key[0]},{key[1]}]", 0.0, 1.0) for key in of_kind}
    free = {} if horizon.ran_before[job] else {
        key: rows.column(f"first[{name},{key[0]},{key[1]}]", 0.0, 1.0) for key in of_kind
    }  # fmt: skip
    for key, members in of_kind.items():
        slot, kind = key
        now = [runs[member] for member in members]
        before = [runs[member] for member in of_kind.get((slot - 1, kind), [])]
        held = 1.0 if slot == horizon.first_slot[job] and kind == horizon.kind_before[job] else 0.0
        start, less = starts[key], [-1.0] * len(now)
        rows.row("starts", [start, *now, *before], [1.0, *less, *[1.0] * len(before)], lower=-held)
        rows.row("starts now", [start, *now], [1.0, *less], upper=0.0)
        rows.row("starts new", [start, *before], [1.0] * (1 + len(before)), upper=1.0 - held)
        gift = [free[key]] if free else []
        these = [again[member] for member in members]
        rows.row(
            "restarts",
            [start, *gift, *these],
            [1.0, *[-1.0] * (len(gift) + len(these))],
            lower=0.0,
            upper=0.0,
        )
        if free:
            ran = [column for (s, _), column in runs.items() if s < slot]
            rows.row("free start", [free[key], start], [1.0, -1.0], upper=0.0)
            rows.row("first is free", [start, free[key], *ran], [1.0, -1.0, *[-1.0] * len(ran)], upper=0.0)
    if free:
        rows.row("one first", list(free.values()), [1.0] * len(free), upper=1.0)
    return again
