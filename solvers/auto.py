"""`auto`: the solver that suits a program, or a race of several where threads allow."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import replace

from wattsched.formulations.program import Program
from wattsched.formulations.threads import starting
from wattsched.solvers import registry
from wattsched.solvers.bottleneck import bottleneck_of
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
    """Solvers worth running side by side, the most promising first."""
    if program.intervals is not None:
        return ["cpsat"]
    if bottleneck_of(program) is not None:
        return ["price"]
    placed = bool(program.integer[program.n_choices :].any())
    rivals = ["highs", "price"] if placed or program.n_rows > _MOST_ROWS else ["price", "highs"]
    if program.n_columns <= _LARGEST_FOR_CPSAT:
        rivals.append("cpsat")
    return rivals[:threads] if program.n_columns > _SMALL else rivals[:1]


def _race(names: list[str], program: Program, limits: Limits, start: Start | None) -> Solution:
    """Run solvers in processes of their own until one closes the gap."""
    alone, grace_s = limits.with_grace()
    each = replace(alone, threads=max(1, limits.threads // len(names)))
    ended: list[Future[Solution]] = []
    with ThreadPoolExecutor(len(names)) as pool, ExitStack() as stack:  # the processes end before the threads
        workers = [stack.enter_context(borrowed()) for _ in names]
        with starting:
            runs = [
                # Whoever listens here hears them all.
                pool.submit(copy_context().run, w.solve, n, program, each, start, grace_s)
                for w, n in zip(workers, names, strict=True)
            ]
        for run in as_completed(runs):
            ended.append(run)
            if run.result().termination.reason in ("optimal", "infeasible"):
                break
    # The others were killed, and what they had found may be the better decision.
    killed = [run.result() for run in runs if run not in ended]
    known = [run.result() for run in ended]
    known += [replace(one, termination=replace(one.termination, detail="")) for one in killed]
    return _merged(program, limits, known)


def _merged(program: Program, limits: Limits, known: list[Solution]) -> Solution:
    """The best point under the best bound, with the prices that prove most."""
    decided = next((s for s in known if s.termination.reason == "infeasible"), None)
    if decided is not None and all(s.x is None for s in known):
        return decided
    sound = [s for s in known if s.termination.reason != "error"]
    if not sound:
        return unsupported("; ".join(s.termination.detail for s in known))
    limit = next((s.termination.limit for s in sound if s.termination.limit), None)
    best = combined(program, sound)
    detail = best.termination.detail
    return conclude(program, limits, best.x, best.bound, best.prices, limit, detail, best.starts)
