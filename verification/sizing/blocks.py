r"""Least costs at prices of jobs: blocks of pools keep rows of their own, and each chooses among the jobs.

Prices :math:`u_j` of "job j takes one option" leave blocks of pools that do not interact. With charges
:math:`\lambda_r` for other rows, and costs :math:`\bar c` with charges, no decision costs less than

.. math:: \sum_j u_j - \sum_r \lambda_r U^r + \sum_j \min(0, \bar c_{j0} - u_j)
          + \sum_b \min_P \sum_{(j, o) \in P} (\bar c_{jo} - u_j) ,

where a plan P of a block takes at most one option of each job, of those in its pools, and keeps the rows of
the block that have no price: GPUs, buddy blocks, and the cap of a power domain. The pools of a domain are a
block, where its cap has no price; of two domains that overlap the one with fewer pools, then the one that
leaves fewer watts. Any other pool is a block of its own. `plans` bounds the costs of plans.

No code of formulations or solvers takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.arithmetic import DOUBLES, Enclosure, float_above
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.job_rows import LARGEST, SMALLEST
from wattsched.verification.sizing.least_cost import (
    LeastCosts,
    NoOptionError,
    ends_by_part,
    in_range,
    uncharged,
)
from wattsched.verification.sizing.objectives import BOTTLENECK
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.plans import Choices, least_plan, rooms_of
from wattsched.verification.sizing.rows import Row, RowPrices
from wattsched.verification.sizing.splits import Allowed

PREFIX = "job:"
"""Names of prices of jobs begin so."""

KEPT = (("power", "power_w"), ("room", "gpus"), ("room", "buddy"))
"""Kinds of rows that blocks keep, and how their names begin; of caps only those of domains."""


class Block(NamedTuple):
    """Pools that keep a power cap together, or one pool.

    Attributes
    ----------
    pools : list of str
    rooms : list of list of Row
        Rows of GPUs and buddy blocks by pool, those of the smallest blocks first.
    cap_w : Fraction, optional
        Watts above idle that the checker lets the jobs draw; None without a cap.
    """

    pools: list[str]
    rooms: list[list[Row]]
    cap_w: Fraction | None


def require_blocks(instance: Instance, sets: bool, sleeping: bool) -> None:
    """Refuse an instance for which prices of jobs are not defined."""
    needs = {
        "an objective that is a sum over the jobs": instance.objective not in BOTTLENECK,
        "jobs that share no GPUs": not sets,
        "nodes that do not sleep": not sleeping,
        "watts and rates that are certain": instance.uncertainty is None,
    }
    for need, given in needs.items():
        if not given:
            raise ValueError(f"prices of jobs need {need}")


def blocks_of(rows: Mapping[str, Row], pools: Sequence[str], charged: Mapping[str, float]) -> list[Block]:
    """Return the blocks of an instance's pools, with the rows that are not charged."""
    caps, rooms = [], dict[str, list[Row]]((pool, []) for pool in pools)
    for name, row in rows.items():
        begin, of_part, _ = name.partition(":")
        if name not in charged and of_part and (row.kind, begin) in KEPT:
            inside = list(dict.fromkeys(str(use[1]) for use in row.uses))
            if begin == "power_w":
                caps.append((len(inside), row.limit * (1 + Fraction(TOLERANCE)) - row.standing, inside))
            else:
                rooms[inside[0]].append(row)
    found, free = list[Block](), set(pools)
    for _, cap_w, inside in sorted(caps, key=lambda cap: cap[:2]):
        if inside and free.issuperset(inside):
            found.append(Block(inside, [rooms[pool] for pool in inside], cap_w))
            free.difference_update(inside)
    return [*found, *(Block([pool], [rooms[pool]], None) for pool in pools if pool in free)]


def least_costs(
    options: Options, paid: RowPrices, allowed: Allowed, prices: FloatArray, blocks: Sequence[Block]
) -> LeastCosts:
    """Sum of the prices of jobs, and of the least costs below these of waiting and of the blocks' plans.

    Parameters
    ----------
    options : Options
        In doubles.
    prices : array, shape (n_jobs,)
        What each job costs at least, on average.

    Raises
    ------
    NoOptionError
        If a job has no option in time, splits leave it none, or idle GPUs draw more than a cap.
    ValueError
        For numbers near the ends of the range of doubles.
    """
    if not in_range(options, paid) or np.max(np.abs(prices), initial=0.0) > LARGEST:
        raise ValueError(f"prices of jobs need numbers of the instance from {SMALLEST:g} to {LARGEST:g}")
    number = np.zeros(len(options.uses) + 1, dtype=np.int64)
    for n, block in enumerate(blocks):
        number[[options.uses.get(("watt", pool), 0) for pool in block.pools]] = n
    choices, of_block, waiting = _read(options, paid, allowed, prices, number)
    order = np.argsort(of_block, kind="stable")
    ends = np.searchsorted(of_block[order], np.arange(len(blocks) + 1))
    known: dict[tuple[object, ...], float] = {}
    least = [
        _least_of(block, choices.take(order[ends[n] : ends[n + 1]]), options, known)
        for n, block in enumerate(blocks)
    ]
    terms = np.concatenate([prices, waiting, least])
    total = DOUBLES.sum_below(terms)
    return LeastCosts(Enclosure(total, total), Fraction(math.fsum(np.abs(terms))), *uncharged(options))


def _read(
    options: Options, paid: RowPrices, allowed: Allowed, prices: FloatArray, number: IntArray
) -> tuple[Choices, IntArray, FloatArray]:
    """Return options that cost less than their jobs' prices, their blocks, and how much less waiting costs.

    Options that draw less than idle GPUs are among them, whatever they cost: they leave others more watts.

    Parameters
    ----------
    number : int array
        Block of each use of watts.
    """
    found, waiting = list[tuple[FloatArray | IntArray, ...]](), np.zeros(len(prices))
    for listed, (low, *_), (wait_low, *_) in ends_by_part(options, paid, allowed):
        if (np.minimum(np.minimum.reduceat(low, listed.start), wait_low) == np.inf).any():
            raise NoOptionError
        job, worth = np.repeat(listed.jobs, listed.counts), listed.running
        draw = worth.watts - DOUBLES.epsilon * worth.watts_size
        cost = _below(low, prices[job])
        waiting[listed.jobs] = _below(wait_low, prices[listed.jobs])
        keep = (cost < 0) | ((draw < 0) & (low < np.inf))
        found.append(tuple(column[keep] for column in (job, worth.room, draw, cost, number[worth.watt])))
    *columns, of_block = (np.concatenate(column) for column in zip(*found, strict=True))
    return Choices(*columns), of_block, waiting


def _below(low: FloatArray, price: FloatArray) -> FloatArray:
    """Return differences where negative, rounded down, and else 0."""
    return np.asarray(np.minimum(low - price, 0) * (1 + 2.0**-51))


def _least_of(
    block: Block, choices: Choices, options: Options, known: dict[tuple[object, ...], float]
) -> float:
    """Return a bound on the costs of a block's plans; `known` are those of blocks that are alike."""
    draw = 0 * choices.draw if block.cap_w is None else _parts(block.cap_w, choices)
    taken, room = np.unique(choices.room, return_inverse=True)
    uses = {number: use for use, number in options.uses.items()}
    rooms = rooms_of(block.rooms, [uses.get(number, ("",)) for number in taken.tolist()])
    fits = (choices.cost < 0) & (draw <= 1) & rooms.fit[room]
    if not fits.any():
        return 0.0
    items = Choices(choices.job, room, draw, choices.cost).take(np.flatnonzero(fits))
    key = rooms.key, *(column.tobytes() for column in items)
    if key not in known:
        known[key] = least_plan(items, rooms)
    return known[key]


def _parts(cap_w: Fraction, choices: Choices) -> FloatArray:
    """Return the parts of a cap that options use, rounded down; above 1 if they do not fit."""
    spare = np.zeros(int(choices.job.max(initial=0)) + 1)
    np.maximum.at(spare, choices.job, -choices.draw)
    if (cap := float_above(cap_w) + math.fsum(spare) * (1 + DOUBLES.epsilon)) < 0:
        raise NoOptionError
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(choices.draw, 0) / max(cap, SMALLEST) * (1 - DOUBLES.epsilon))
