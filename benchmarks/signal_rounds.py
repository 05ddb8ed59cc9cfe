"""Random signals on rounds of public traces: are they kept, at what loss, and what requeuing jobs would cost.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.signal_rounds --write

``--limit`` is in seconds of a processor: the time limit of each call is longer by what others take of the
machine. ``--answers FILE`` keeps all answers in a file, and goes on from there. What is drawn and allowed at
every moment is computed here, from the decision and the events.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Asked, machine, run, say, sections, table, timed
from benchmarks.random_signals import EMERALD, GROUNDS, START, Event, draw_w, random_round, random_signal
from wattsched import solve
from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.results.documents import check as verdict_on
from wattsched.results.result import Result
from wattsched.topology.arrays import FloatArray
from wattsched.verification.shifting.checker import caps_of, check

WITHIN, GAP, STEP_S, PER_ROUND, DEEP = 0.01, 1e-3, 10.0, 10, 0.4
"""Gap that is counted, gap that is asked for, distance of moments, signals on a round, and a deep cut."""
TIMES, MOST_BUSY = 10, 10.0
KEPT, PROVEN, NEITHER = "kept", "proven impossible", "neither"


# -- what others would do --------------------------------------------------------------------------------


def requeued(instance: ShiftingInstance) -> ShiftingDecision:
    """Run all jobs at their fastest, and requeue those that started last where a cap does not allow them.

    In every slot those that run keep their GPUs in the order in which they started, while the watts last.
    Then the others start in the order of the jobs, as far as GPUs and watts are left. Nothing looks ahead.
    """
    jobs, slot_s, caps = instance.jobs, instance.slot_s, [*caps_of(instance).values()]
    rows = [(of, int(np.argmax(of.rate))) for of in map(instance.table_of, jobs)]
    left, ran = [job.remaining_work for job in jobs], [job.current is not None for job in jobs]
    runs: list[list[Run]] = [[] for _ in jobs]
    running = [n for n, job in enumerate(jobs) if job.current]
    for slot in range(instance.slots):
        free = {name: pool.gpus for name, pool in instance.pools.items()}
        spare_w = [cap_w[slot] * (1 + 1e-12) - idle_w for _, cap_w, idle_w in caps]
        waiting = [n for n in range(len(jobs)) if n not in running]
        before, running = running, []
        for n in (n for n in [*before, *waiting] if left[n] > 0):
            of, row = rows[n]
            gpus, pool = of.gpus[row], of.pool[row]
            more_w = of.power_w[row] - gpus * instance.pools[pool].idle_power_w
            under = [number for number, (pools, *_) in enumerate(caps) if pool in pools]
            if gpus > free[pool] or any(more_w > spare_w[number] for number in under):
                continue
            free[pool] -= gpus
            for number in under:
                spare_w[number] -= more_w
            running.append(n)
            lost_s = jobs[n].restart_s if ran[n] and n not in before else 0.0
            left[n] -= of.rate[row] * (slot_s - lost_s)
            left[n] *= left[n] > 1e-9 * of.rate[row] * slot_s
            ran[n] = True
            limit_w = of.power_limit_w[row] if of.power_limit_w else None
            runs[n].append(Run(first_slot=slot, slots=1, gpus=gpus, pool=pool, power_limit_w=limit_w))
    some = [Schedule(job=job.name, runs=own) for job, own in zip(jobs, runs, strict=True) if own]
    return ShiftingDecision(
        jobs=some, waiting=[job.name for job, own in zip(jobs, runs, strict=True) if not own]
    )


# -- one signal ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Cost of a decision: mean completion, GPU hours, restarts, and jobs below their least progress."""

    completion_h: float
    gpu_h: float
    restarts: float
    below: int

    @classmethod
    def of(cls, instance: ShiftingInstance, decision: ShiftingDecision) -> Cost:
        """Recompute it by the checker, with GPUs as weights for GPU hours."""
        gpus = [instance.table_of(job).gpus[0] for job in instance.jobs]
        weighted = [
            job.model_copy(update={"weight": float(n)}) for job, n in zip(instance.jobs, gpus, strict=True)
        ]
        report = check(instance, decision)
        heavy = check(instance.model_copy(update={"jobs": weighted}), decision)
        mean_s, gpu_s = (one.totals["average_completion_s"] for one in (report, heavy))
        short = [fault for fault in report.faults if "of its work left" in fault]
        assert len(short) == len(report.faults), report.faults
        return cls(mean_s / 3600, gpu_s * sum(gpus) / 3600, report.totals["restarts"], len(short))


@dataclass(frozen=True)
class Answer:
    """Answer on a signal, and its cost if it is kept.

    Attributes
    ----------
    ended : str
        `KEPT`, `PROVEN` or `NEITHER`.
    seconds : float
        Of a processor.
    above : int
        Moments at which more is drawn than an event allows.
    cut : float
        Deepest cut of the draw above idle GPUs, as a part of that at the fastest settings.
    bound_h : float
        No plan has a less mean completion.
    free, ours, theirs : Cost
        Without the signal, of the plan, and of requeuing; only where it is kept.
    """

    source: str
    jobs: int
    ended: str
    seconds: float
    cut: float
    above: int = 0
    gap: float = np.inf
    bound_h: float = 0.0
    free: Cost | None = None
    ours: Cost | None = None
    theirs: Cost | None = None

    @classmethod
    def read(cls, line: str) -> Answer:
        """Read it from a line of JSON."""
        fields: dict[str, Any] = json.loads(line)
        costs = {name: fields[name] and Cost(**fields[name]) for name in ("free", "ours", "theirs")}
        return cls(**fields | costs)


def drawn_w(instance: ShiftingInstance, decision: ShiftingDecision, pools: Sequence[str]) -> FloatArray:
    """Draw of the GPUs of some pools in each slot."""
    drawn = np.full(
        instance.slots,
        sum(instance.pools[pool].gpus * instance.pools[pool].idle_power_w for pool in pools),
    )
    tables = {job.name: instance.table_of(job) for job in instance.jobs}
    for schedule in decision.jobs:
        of = tables[schedule.job]
        watts = dict(zip(of.settings(), of.power_w, strict=True))
        for one in schedule.runs:
            if one.pool in pools:
                power_w = watts[one.gpus, one.pool, one.power_limit_w]
                more_w = power_w - one.gpus * instance.pools[one.pool].idle_power_w
                drawn[one.first_slot : one.first_slot + one.slots] += more_w
    return drawn


def moments_above(instance: ShiftingInstance, decision: ShiftingDecision, events: Sequence[Event]) -> int:
    """Moments of the horizon at which more is drawn than some event allows."""
    time_s = np.arange(0.0, instance.horizon_s, STEP_S)
    above = np.zeros(len(time_s), dtype=bool)
    for event in events:
        drawn = drawn_w(instance, decision, event.pools(instance))[(time_s // instance.slot_s).astype(int)]
        above |= drawn > event.limit_w(time_s) * (1 + 1e-9)
    return int(above.sum())


class Solver:
    """Solves within some seconds of a processor, by the part of it that the last call had."""

    def __init__(self, limit_s: float):
        self._limit_s, self._busy = limit_s, 1.0

    def __call__(self, instance: ShiftingInstance) -> tuple[Result, float]:
        """Return the result and the seconds; where it says nothing, once more with ten times as many."""
        seconds = 0.0
        for times in (1, TIMES):
            begin_s = time.process_time()
            limit_s = times * self._limit_s * self._busy
            result, took_s = timed(lambda most_s=limit_s: solve(instance, gap=GAP, time_limit=most_s))
            used_s = time.process_time() - begin_s
            self._busy = float(np.clip(took_s / used_s, 1.0, MOST_BUSY))
            seconds += used_s
            if result.decision is not None or result.termination.reason == "infeasible":
                break
        return result, seconds


def answered(instance: ShiftingInstance, free: Result, rng: np.random.Generator, solver: Solver) -> Answer:
    """Plan a round under a random signal, and check the plan, or the proof that there is none."""
    signal, events = random_signal(rng, instance)
    under = instance.under(signal, START)
    result, seconds = solver(under)
    verdict = verdict_on(under, result)
    sound = not verdict.faults and result.decision is not None
    ended = KEPT if sound else PROVEN if verdict.infeasible else NEITHER
    cut = max(event.cut_of(*draw_w(instance, event.pools(instance))) for event in events)
    about = (instance.name, len(instance.jobs), ended, seconds, cut)
    say(f"{ended} after {seconds:.1f} s, gap {verdict.proven_gap}: {result.termination.detail}")
    for fault in verdict.faults:
        say(f"fault: {fault}")
    if not sound:
        return Answer(*about)
    costs = (
        Cost.of(instance, free.decision),
        Cost.of(under, result.decision),
        Cost.of(under, requeued(under)),
    )
    above = moments_above(instance, result.decision, events)
    gap = np.inf if verdict.proven_gap is None else verdict.proven_gap
    bound_h = max(one.bound or 0.0 for one in (free, result)) / 3600
    return Answer(*about, above, gap, bound_h, *costs)


def answers(asked: Asked) -> list[Answer]:
    """Answers on rounds of all sources, as many of each, after those that a file has already."""
    sources = [*GROUNDS, EMERALD][:: len(GROUNDS) if asked.quick else 1]
    file = Path(asked.answers) if asked.answers else None
    signals, per_round = (1, 1) if asked.quick else (asked.signals // len(sources), PER_ROUND)
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
    found, solver = [Answer.read(line) for line in lines], Solver(asked.limit)
    rounds = [(seed, number) for seed in range(-(-signals // per_round)) for number in range(len(sources))]
    for seed, number in rounds[len(found) // per_round :]:
        rng = np.random.default_rng([number, seed])
        instance = random_round(rng, sources[number])
        free, _ = solver(instance)
        some = [answered(instance, free, rng, solver) for _ in range(per_round)]
        say(f"{instance.name}, round {seed}: {len(instance.jobs)} jobs, {instance.slots} slots")
        if file is not None:
            with file.open("a", encoding="utf-8") as out:
                out.writelines(f"{json.dumps(asdict(one))}\n" for one in some)
        found += some
    return found[: len(rounds) * per_round]


# -- tables ----------------------------------------------------------------------------------------------


def kept_of(found: Sequence[Answer]) -> list[object]:
    """Row of the first table."""
    kept, jobs = [one for one in found if one.ended == KEPT], [one.jobs for one in found]
    seconds = [one.seconds for one in found]
    return [
        f"{min(jobs)} to {max(jobs)}" if min(jobs) < max(jobs) else jobs[0],
        len(found),
        len(kept),
        sum(one.above for one in kept),
        sum(one.gap <= WITHIN for one in kept),
        *(sum(one.ended == how for one in found) for how in (PROVEN, NEITHER)),
        f"{np.mean(seconds):.1f} / {max(seconds):.1f}",
    ]


def costs_of(found: Sequence[Answer], who: Callable[[Answer], Cost | None]) -> list[object]:
    """Row of the second table, of those of the signals that are kept."""
    pairs = [(one, one.free, made) for one in found if one.free and (made := who(one))]
    if not pairs:
        return ["-"] * 7
    hours = np.array([(free.completion_h, made.completion_h, one.bound_h) for one, free, made in pairs])
    free_h, made_h, bound_h = hours[np.array([one.gap <= WITHIN for one, *_ in pairs])].sum(axis=0)
    made = [made for *_, made in pairs]
    return [
        f"{np.mean([one.restarts for one in made]):.2f}",
        f"{np.mean([one.gpu_h - free.gpu_h for _, free, one in pairs]):.1f}",
        f"{hours[:, 1].mean():.3f}",
        f"{100 * (hours[:, 1].sum() / hours[:, 0].sum() - 1):.2f} %",
        f"{100 * (made_h / free_h - 1):.2f} %" if free_h else "-",
        f"{100 * ((made_h - free_h) / (bound_h - free_h) - 1):.1f} %" if bound_h > free_h else "-",
        sum(one.below for one in made),
    ]


def signal_rounds(asked: Asked) -> str:
    """Both tables."""
    found = answers(asked)
    by_source = {source: [one for one in found if one.source == source] for source in (*GROUNDS, EMERALD)}
    by_source[f"all, cuts up to {DEEP:.0%}"] = [one for one in found if one.cut <= DEEP]
    by_source[f"all, cuts beyond {DEEP:.0%}"] = [one for one in found if one.cut > DEEP]
    by_source = {name: some for name, some in (by_source | {"all": found}).items() if some}
    header = ["rounds", "jobs", "signals", "kept", "moments above", "of the kept within 1 %",
              PROVEN, NEITHER, "processor seconds, mean / most"]  # fmt: skip
    plans = table(header, [[source, *kept_of(some)] for source, some in by_source.items()])
    rows = [
        [source, who, *costs_of(some, of)]
        for source, some in by_source.items()
        for who, of in {"plan": lambda one: one.ours, "requeue": lambda one: one.theirs}.items()
    ]
    header = ["signals that are kept", "policy", "restarts", "GPU hours lost", "mean completion, h", "loss",
              "loss where within 1 %", "the same above the bound", "jobs below least progress"]  # fmt: skip
    end = f"({sum(one.seconds for one in found) / 60:.0f} minutes of a processor, {machine()}.)"
    return sections({"Kept or impossible": f"{plans}\n\n{end}", "Against requeuing": table(header, rows)})


TABLES = {"signal-rounds": signal_rounds}

if __name__ == "__main__":
    run(__doc__, TABLES, signals=1000, limit=3.5, answers="")
