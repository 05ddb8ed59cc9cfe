"""`auto`: the solver that suits a program, or a race of several where threads allow."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import replace

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.threads import starting
from wattsched.solvers import registry
from wattsched.solvers.bottleneck import bottleneck_of
from wattsched.solvers.rows import linking_rows
from wattsched.solvers.solution import Limits, Solution, Start, combined, conclude, unsupported
from wattsched.solvers.worker import borrowed

# Up to this many columns HiGHS is done before a second process would be running.
_SMALL = 5_000
_LARGEST_FOR_CPSAT = 100_000
# With more rows than this the prices take longer to find than an LP; integer columns that are in no group,
# such as those of placement, have prices no choices to work on.
_MOST_ROWS = 400


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by the best of `portfolio`; the first that closes the gap ends the race."""
    names = portfolio(program, limits.threads)
    if len(names) == 1:
        return registry.get(names[0])(program, limits, start)
    return _race(names, program, limits, start)


def portfolio(program: Program, threads: int) -> list[str]:
    """Names of the solvers worth running side by side, at most `threads`, the most promising first."""
    if program.intervals is not None:
        return ["cpsat"]
    if bottleneck_of(program) is not None:
        return ["price"]
    ungrouped_integers = bool(program.integer[program.n_choices :].any())
    n_rows = program.n_rows - np.count_nonzero(linking_rows(program))
    highs_first = ungrouped_integers or n_rows > _MOST_ROWS
    rivals = ["highs", "price"] if highs_first else ["price", "highs"]
    if program.n_columns <= _LARGEST_FOR_CPSAT:
        rivals.append("cpsat")
    return rivals[:threads] if program.n_columns > _SMALL else rivals[:1]


def _race(names: list[str], program: Program, limits: Limits, start: Start | None) -> Solution:
    """Run the solvers in processes of their own until one closes the gap; merge what all have found."""
    shortened, grace_s = limits.with_grace()
    each = replace(shortened, threads=max(1, limits.threads // len(names)))
    ended: list[Future[Solution]] = []
    with ThreadPoolExecutor(len(names)) as pool, ExitStack() as stack:  # the processes end before the threads
        workers = [stack.enter_context(borrowed()) for _ in names]
        with starting:  # a call that is given up meanwhile must not end a thread of these instead
            runs = [
                # The copied context has the caller's listener, which hears them all.
                pool.submit(copy_context().run, worker.solve, name, program, each, start, grace_s)
                for worker, name in zip(workers, names, strict=True)
            ]
        for run in as_completed(runs):
            ended.append(run)
            if run.result().termination.reason in ("optimal", "infeasible"):
                break
    # The others were killed, and what they had found may be the better decision.
    killed = [run.result() for run in runs if run not in ended]
    answers = [run.result() for run in ended]
    answers += [replace(one, termination=replace(one.termination, detail="")) for one in killed]
    return _merged(program, limits, answers)


def _merged(program: Program, limits: Limits, answers: list[Solution]) -> Solution:
    """Merge several solvers' answers: the best point, the best bound and the prices that prove most."""
    infeasible = next((s for s in answers if s.termination.reason == "infeasible"), None)
    if infeasible is not None and all(s.x is None for s in answers):
        return infeasible
    sound = [s for s in answers if s.termination.reason != "error"]
    if not sound:
        return unsupported("; ".join(s.termination.detail for s in answers))
    limit = next((s.termination.limit for s in sound if s.termination.limit), None)
    best = combined(program, sound)
    detail = best.termination.detail
    return conclude(program, limits, best.x, best.bound, best.prices, limit, detail, best.starts)
