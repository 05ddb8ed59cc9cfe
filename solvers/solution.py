"""Arguments and results of every solver, its announcements on the way, and the rounding of bounds.

Solvers announce what they know while they run, so that a killed one is not lost. Row prices are made safe:
everybody can recompute the bound that they prove. `conclude` states an answer from a point and a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from wattsched.formulations.kinds import KindProgram
from wattsched.formulations.program import Program
from wattsched.formulations.tolerances import LAST_DIGITS, ROUNDING, VIOLATION
from wattsched.solvers.bottleneck import bottleneck_of
from wattsched.solvers.proof import Tree
from wattsched.topology.arrays import FloatArray

# Rounding of the last digit can ask an unbounded column for more than its cost; a slightly
# smaller price loses as much of the bound and keeps it finite.
_SHRINKAGES = (0.0, 1e-13, 1e-11, 1e-9, 1e-7, 1.0)

GRACE_S, GRACE_SHARE = 0.5, 0.05
"""Time before its limit at which a solver is told to end: the lesser of seconds and a share of the limit."""

Reason = Literal["optimal", "feasible", "infeasible", "no_solution", "error"]
Limit = Literal["time", "gap", "nodes", "stopped"]


@dataclass(frozen=True)
class Termination:
    """Reason for which a solver stopped, and the limit that made it stop."""

    reason: Reason
    limit: Limit | None = None
    detail: str = ""


@dataclass(frozen=True)
class Limits:
    """Limits of a solver's run, and its seed.

    Attributes
    ----------
    gap : float
        Relative gap that counts as optimal.
    time_s : float, optional
        Wall-clock limit; None is none.
    threads, seed : int
    nodes : int, optional
        Nodes of branch and cut, for solvers that count them (HiGHS). Unlike seconds they are the same in
        every run.
    """

    gap: float = 1e-4
    time_s: float | None = None
    threads: int = 1
    seed: int = 0
    nodes: int | None = None

    def with_grace(self) -> tuple[Limits, float]:
        """Limits for a solver that may be killed, and the seconds beyond them: both together are these."""
        if self.time_s is None:
            return self, 0.0
        grace_s = min(GRACE_S, GRACE_SHARE * self.time_s)
        return replace(self, time_s=self.time_s - grace_s), grace_s


@dataclass(frozen=True)
class Cut:
    """Cut of the dual: the bound at row prices, and the cost and use of the choices by cluster of groups."""

    prices: FloatArray
    value: float
    cost: FloatArray
    use: FloatArray


@dataclass(frozen=True)
class Dual:
    """Prices that nearly maximise the Lagrangian bound, and a point of the LP relaxation that costs as much.

    Attributes
    ----------
    bound : float
        What the prices prove; infinite when the LP relaxation is infeasible.
    ceiling : float
        No prices prove more, as far as is known.
    cuts : list of Cut
        Those whose choices are mixed, among others.
    weight : float array, shape (n_cuts, n_clusters)
        How much of each the point takes, by cluster of groups.
    """

    prices: FloatArray
    bound: float
    ceiling: float
    cuts: list[Cut]
    weight: FloatArray


@dataclass(frozen=True)
class Start:
    """Start of a solver: what is known before it begins, for example from the round before.

    Attributes
    ----------
    x : float array, shape (n_columns,), optional
        A point; it need not be feasible any more.
    prices : float array, shape (n_rows,), optional
        Row prices, as in `Solution.prices`.
    rule : callable, optional
        Builds a point from row prices, None where it finds none; for a solver that knows prices before it
        needs a point, and may never need one.
    dual : Dual, optional
        What another solver knows of the same program by kind.
    """

    x: Any = None
    prices: FloatArray | None = None
    rule: Callable[[Program, FloatArray], FloatArray | None] | None = None
    dual: Dual | None = None


@dataclass(frozen=True)
class Solution:
    """Answer to a Program, in its cost (always minimised, offset included).

    Attributes
    ----------
    x : float array, shape (n_columns,), optional
        Integer columns are exact integers. Of a program by kind a point is what `KindProgram` says.
    objective : float, optional
        Cost of `x`.
    bound : float
        Proven lower bound on the cost; -inf when there is none.
    prices : float array, shape (n_rows,), optional
        Row prices y (derivative of the LP's optimal cost by the row's bound).
    starts : dict of int to int
        Position on its line for each chosen column, from solvers that place intervals.
    dual : Dual, optional
        Of a program by kind, for the next solver.
    proof : Tree, optional
        Of a bound by blocks, whose leaves have prices of groups (`decomposition`).
    at_root : bool
        Of an announcement: nothing was branched on yet.
    """

    termination: Termination
    x: Any = None
    objective: float | None = None
    bound: float = -np.inf
    prices: FloatArray | None = None
    starts: dict[int, int] = field(default_factory=dict)
    dual: Dual | None = None
    proof: Tree | None = None
    at_root: bool = False


Listener = Callable[[Solution], None]
Say = Callable[[str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_say: ContextVar[Say | None] = ContextVar("say", default=None)


def has_listener() -> bool:
    """True if a listener is set; otherwise building an announcement can be saved."""
    return _listener.get() is not None


def announce(
    bound: float,
    prices: FloatArray | None = None,
    x: Any = None,
    objective: float | None = None,
    starts: dict[int, int] | None = None,
    *,
    at_root: bool = False,
) -> None:
    """Tell the listener about a better point, bound or prices; absent parts are unknown."""
    listener = _listener.get()
    if listener is not None:
        known = Termination("no_solution" if x is None else "feasible")
        listener(Solution(known, x, objective, bound, prices, starts or {}, at_root=at_root))


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Pass the announcements of solvers that run in this block to a listener; None drops them.

    Those about a part of a program, for example, mean nothing to whom asked about the whole.
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def read_by(say: Say | None) -> Iterator[None]:
    """Pass the lines that solvers print in this block to a callback; None drops them."""
    before = _say.set(say)
    try:
        yield
    finally:
        _say.reset(before)


def log() -> Say | None:
    """Return a callback for a library's output, in any pieces, whose whole lines this context's reader gets.

    It can be called from any thread; None where nobody reads.
    """
    say, rest = _say.get(), ""
    if say is None:
        return None
    read = say

    def take(text: str) -> None:
        nonlocal rest
        *lines, rest = f"{rest}{text}".split("\n")
        for line in lines:
            read(line.rstrip())

    return take


@contextmanager
def unheard() -> Iterator[None]:
    """Neither announce nor log what runs in this block, as it solves another program than the caller's."""
    with listening(None), read_by(None):
        yield


@contextmanager
def announcing_under(bound: float, lift: Callable[[FloatArray], Any] | None = None) -> Iterator[None]:
    """Let what runs here announce points alone: its bounds are of another program than the one asked about.

    They are announced with the `bound` of the program asked about; `lift` makes its points of those found.
    """
    listener = _listener.get()

    def announce_lifted(found: Solution) -> None:
        if listener is not None:
            x = found.x if lift is None or found.x is None else lift(found.x)
            listener(replace(found, bound=bound, x=x, at_root=False))

    with listening(None if listener is None else announce_lifted):
        yield


def with_listener(callback: Callable[..., None]) -> Callable[..., None]:
    """Callback for a library that calls it from threads of its own; it brings this context's listener."""
    listener = _listener.get()

    def announcing(*arguments: Any) -> None:
        with listening(listener):
            callback(*arguments)

    return announcing


def certified(program: Program | KindProgram, prices: FloatArray | None) -> tuple[FloatArray, float]:
    """Prices with the right signs, and the bound that they prove: -inf where zero prices do not either."""
    y = np.zeros(program.n_rows) if prices is None else signed(program, prices)
    bound = -np.inf
    for shrinkage in _SHRINKAGES:  # rounding can make the bound infinite, which slightly lower prices mend
        shrunk = y * (1.0 - shrinkage)
        bound = program.lagrangian_bound(shrunk)
        if bound > -np.inf:
            return shrunk, bound if program.bottleneck is None else proven_bound(program, shrunk)
    return np.zeros(program.n_rows), bound


def signed(program: Program | KindProgram, prices: FloatArray) -> FloatArray:
    """Finite prices, 0 where their sign asks for an infinite bound."""
    y = np.where(np.isfinite(prices), prices, 0.0)
    y = np.where((y > 0) & ~np.isfinite(program.row_lower), 0.0, y)
    y = np.where((y < 0) & ~np.isfinite(program.row_upper), 0.0, y)
    return y + 0.0  # no -0.0 for readers to wonder about


def proven_bound(program: Program | KindProgram, prices: FloatArray) -> float:
    """Lower bound on the cost that row prices prove: Lagrangian, or surrogate for a bottleneck."""
    bound = program.lagrangian_bound(prices)
    bottleneck = bottleneck_of(program) if isinstance(program, Program) else None
    # The surrogate bound is the better one but for rounding.
    return bound if bottleneck is None else max(bound, bottleneck.surrogate_bound(prices))


UNBOUNDED = "the program is unbounded"
"""Reason for no answer to a program whose cost has no end; a formulation like that is wrong."""


def unsupported(detail: str) -> Solution:
    """Answer of a solver that cannot take the program, or failed on it."""
    return Solution(Termination("error", detail=detail))


def infeasible(prices: FloatArray | None = None, detail: str = "") -> Solution:
    """Answer that no point satisfies the program; its optimum is +inf by convention."""
    return Solution(Termination("infeasible", detail=detail), bound=np.inf, prices=prices)


def relative_gap(objective: float, bound: float) -> float:
    """``|objective - bound| / max(1e-9, |objective|)``."""
    return abs(objective - bound) / max(1e-9, abs(objective))


def rounding(program: Program | KindProgram, value: float) -> float:
    """Largest difference of costs that may be rounding, where the program's cost is about `value`."""
    size, largest = abs(value), program.largest_cost()
    return max(ROUNDING * max(min(1.0, largest), size), LAST_DIGITS * largest)


def conclude(
    program: Program | KindProgram,
    limits: Limits,
    x: Any,
    bound: float,
    prices: FloatArray | None = None,
    limit: Limit | None = None,
    detail: str = "",
    starts: dict[int, int] | None = None,
) -> Solution:
    """State an answer from a point, if there is one, and a valid lower bound.

    `limit` stopped the solver before it was done, and `detail` are its words for it.
    """
    if x is None:
        return Solution(Termination("no_solution", limit, detail), bound=bound, prices=prices)
    x = program.rounded(x)
    objective = program.objective(x)
    tolerance = rounding(program, objective)
    if objective < bound <= objective + tolerance:
        bound = objective
    if bound > objective + tolerance:
        detail = f"a bound of {bound:g} contradicts a point of {objective:g} and is left out"
        bound = -np.inf
    closed = relative_gap(objective, bound) <= limits.gap or objective - bound <= tolerance
    if closed and limit is not None:
        # It came too late to matter, and so did the solver's words for it.
        limit, detail = None, ""
    termination = Termination("optimal" if closed else "feasible", limit, detail)
    return Solution(termination, x, objective, bound, prices, starts or {})


def without_columns(program: Program, limits: Limits) -> Solution:
    """Answer for a program without columns, which most solvers do not accept."""
    nothing = program.cost[:0]
    if program.violation(nothing) > VIOLATION:
        return infeasible(detail="a row demands something but there are no columns")
    return conclude(program, limits, nothing, program.offset, np.zeros(program.n_rows))


def combined(program: Program | KindProgram, known: Sequence[Solution]) -> Solution:
    """The best point of several answers, the best bound, and the prices that prove most."""
    best = min(known, key=lambda s: np.inf if s.objective is None else s.objective)
    prices = [s.prices for s in known if s.prices is not None]
    if any(not np.array_equal(prices[0], others) for others in prices):
        prices = [max(prices, key=lambda y: proven_bound(program, y))]
    return replace(best, bound=max(s.bound for s in known), prices=prices[0] if prices else None)


def with_announced(
    program: Program | KindProgram, limits: Limits, final: Solution, announced: Sequence[Solution]
) -> Solution:
    """A solver's last word, or what it had announced before where that is better."""
    if final.termination.reason == "infeasible":
        return final
    least = min((one.objective for one in announced if one.objective is not None), default=np.inf)
    if final.objective is not None and final.objective <= least:
        return final
    best = combined(program, [final, *announced])
    if best.x is None:
        failed = final.termination.reason == "error"
        return final if failed else replace(final, bound=best.bound, prices=best.prices)
    ended = final.termination
    return conclude(program, limits, best.x, best.bound, best.prices, ended.limit, ended.detail, best.starts)
