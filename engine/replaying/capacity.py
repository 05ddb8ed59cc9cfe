"""Which cluster and power cap to have for a load that grows: bounds first, then replays of what is left.

Prices at today's cluster bound the costs of all candidates (`capacity_costs`). Replayed next is the candidate
that would cost least if it came to as much over its bound as those before. What is proven to cost more than
the best is left out, and so is at last what would have to come closer to its bound than any replay did, if it
is not beside the best: bounds know the future, and tell too little of what more GPUs are worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wattsched.instances.errors import require_range
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import notice
from wattsched.replay.jobs.policies import PRICED, base_of, require_policy, shares
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.candidates import Candidate, Site
from wattsched.replaying.capacity_costs import Costs, Run
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.price_sheet import PriceSheet
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Progress, _untold, replay_jobs
from wattsched.report.capacity import CapacityPlan, Option
from wattsched.topology.cluster import Cluster

TOLERANCE = 0.002
"""Part of the cost by which what is not replayed may be cheaper, as far as replays tell."""
MOST_CUTS = 2
"""Candidates for which prices are found, besides the best one."""
FEWEST, MOST, PART = 3, 8, 1 / 24
"""Candidates that are replayed before what they come to says anything of others, and most that are searched:
so many or, of large studies, a part of all replays that there are."""


def capacity(
    source: JobSource,
    cluster: Cluster,
    prices: PriceSheet,
    *,
    nodes: Mapping[str, Sequence[int]] | None = None,
    caps_w: Sequence[float] = (),
    growth: float = 0.0,
    policy: str = "sizing",
    seeds: Sequence[int] = (0, 1, 2),
    settings: ReplaySettings | None = None,
    progress: Progress = _untold,
) -> CapacityPlan:
    """Find the numbers of nodes and the power cap that cost least, for a load that grows.

    Parameters
    ----------
    source : JobSource
        The load of today, with durations.
    cluster : Cluster
        That of today, on which the durations were recorded.
    prices : PriceSheet
    nodes : mapping of str to sequence of int, optional
        Numbers of nodes to consider, by pool of the cluster or GPU type of the prices; others stay as today.
    caps_w : sequence of float
        Watts of the caps to consider; default: that of today, `power_w` of the settings.
    growth : float
        Part by which there will be more jobs (`instances.traces.recorded.grown`).
    policy : str
        That decides; `sizing` and `clairvoyant` know what a joule is worth.
    seeds : sequence of int
        They draw the new jobs, and models where the trace does not tell.
    settings : ReplaySettings, optional
        Its power_w is the cap of today; neither a budget nor sleep is taken.
    progress : callable
        As for `replay_jobs`.

    Raises
    ------
    ValueError
        For values out of range, prices that lack a pool, policies under which jobs share GPUs, lists that
        tell work, jobs for which there is no bound, and jobs that today's cluster cannot run.
    """
    require_types(capacity, locals())
    require_policy(policy)
    settings = settings or ReplaySettings()
    if shares(policy):
        raise ValueError(f"policy: under '{policy}' jobs share GPUs, for which there is no bound")
    if settings.budget is not None or settings.sleep_after_s is not None:
        raise ValueError("settings: neither a budget nor nodes that sleep can be planned with")
    require_range(0 <= growth < math.inf, "growth", "at least 0 and finite", growth)
    require_range(len(seeds) > 0, "seeds", "one at least", "none")
    for cap_w in caps_w:
        require_range(0 < cap_w < math.inf, "caps_w", "above 0 and finite", cap_w)
    if prices.cap_kw_year and settings.power_w is None:
        raise ValueError("`power_w`: the prices have cap_kw_year, so that the cap of today is needed")
    site = Site(cluster, prices)
    today = Candidate(site.today, settings.power_w)
    others = site.candidates(nodes or {}, [*caps_w] or [settings.power_w])
    if base_of(policy) in PRICED:
        settings = replace(settings, least_price=prices.joule_s)
    trace_on = source.elsewhere(cluster, growth)
    study = _Study(site, [*dict.fromkeys([today, *others])], trace_on, seeds, policy, settings, progress)
    best = study.search()
    options = study.options(best)
    chosen = None if best is None else options[best]
    return CapacityPlan(
        options=sorted(options, key=lambda one: (one is not chosen, bool(one.why), one.estimate)),
        best=chosen,
        today=options[0],
        worth={} if best is None else study.costs.worth(best),
        growth=growth,
        seeds=[*seeds],
        policy=policy,
        currency=prices.currency,
        most_mean_h=prices.most_mean_h,
    )


@dataclass
class _Study:
    """Search among candidates, of which the first is today's.

    Attributes
    ----------
    trace_on : callable
        Makes the trace of a cluster and a seed.
    runs : dict
        Replays by candidate, in the order of the seeds; the search is on the first.
    why : dict of int to str
        Candidates that cannot run the jobs.
    open : set of int
        Candidates that may still be better, for all that replays tell.
    """

    site: Site
    candidates: Sequence[Candidate]
    trace_on: Callable[[Cluster, int], Trace]
    seeds: Sequence[int]
    policy: str
    settings: ReplaySettings
    progress: Progress
    runs: dict[int, list[Run]] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._clusters = {one.nodes: self.site.with_nodes(one.nodes) for one in self.candidates}
        most = [max(counts) for counts in zip(*self._clusters, strict=True)]
        largest = self.site.with_nodes(most, flat=True)
        traces = [self.trace_on(largest, seed) for seed in self.seeds]
        self.costs = Costs(self.site, self.candidates, self._clusters, traces)
        used = {trace.pools[p].name for trace in traces for p in np.unique(trace.configurations.pool)}
        for pool, n in zip(self.site.pools, most, strict=True):
            if n and pool not in used:
                told = f"no job of the trace can run on {pool}, as its model has no profile there"
                notice(f"prices: {told}: such nodes stay idle")
        for k, (one, idle_w) in enumerate(zip(self.candidates, self.costs.idle_w.tolist(), strict=True)):
            if one.power_w is not None and one.power_w < idle_w:
                self.why[k] = f"its cap is below the {idle_w:,.0f} W that it draws when idle"

    def search(self) -> int | None:
        """Return the cheapest candidate on all seeds, as far as bounds and replays tell; None: all are late.

        On the first seed candidates are replayed until none promises to be better.
        """
        self._replay(0, self.seeds)
        if 0 in self.why:
            raise ValueError(f"cluster: that of today cannot run the jobs: {self.why[0]}")
        cuts, most = {0}, max(MOST, PART * len(self.candidates) * len(self.seeds))
        self.costs.cut(0)
        while True:
            runs = {k: done[0] for k, done in self.runs.items()}
            expected, least = self.costs.suggested(runs)
            best = min(runs, key=lambda k: self.costs.of(k, [runs[k]]))
            goal = (1 - TOLERANCE) * self.costs.of(best, [runs[best]])
            floor = self.costs.floor(slice(1))
            unknown = [k for k in range(len(floor)) if k not in runs and k not in self.why]
            left = [k for k in unknown if floor[k] < goal]
            beside = self.costs.beside(best, runs[best])
            self.open = {k for k in left if least[k] < goal or k in beside}
            if not left or len(runs) >= most or (len(runs) >= FEWEST and not self.open):
                break
            k = min(self.open or left, key=lambda one: (expected[one], floor[one]))
            if k not in cuts and len(cuts) < MOST_CUTS:
                cuts.add(k)
                self.costs.cut(k)
            else:
                self._replay(k, self.seeds[:1])
        chosen = self._final()
        if chosen is not None and chosen not in cuts:
            self.costs.cut(chosen)
        return chosen

    def _final(self) -> int | None:
        """Replay the cheapest of the first seed on all, or the next if jobs are too late; None at last."""
        cost = {k: self.costs.of(k, done[:1]) for k, done in self.runs.items()}
        for k in sorted((k for k in cost if k == 0 or math.isfinite(cost[k])), key=lambda k: cost[k]):
            self._replay(k, self.seeds)
            if k in self.runs and math.isfinite(self.costs.of(k, self.runs[k])):
                return k
        return None

    def _replay(self, k: int, seeds: Sequence[int]) -> None:
        """Replay a candidate on those seeds that are new to it, or find out why it cannot run the jobs."""
        one, done = self.candidates[k], self.runs.pop(k, [])
        settings = replace(self.settings, power_w=one.power_w)
        try:
            for seed in seeds[len(done) :] if k not in self.why else ():
                traces = {seed: self.trace_on(self._clusters[one.nodes], seed)}
                run = replay_jobs(traces, [self.policy], settings=settings, progress=self.progress)
                ((_, outcome),) = run
                done = [*done, Run.of(outcome, float(self.costs.idle_w[k]))]
        except ValueError as error:  # A job fits nowhere, or not within the cap.
            self.why[k] = str(error)
        if k not in self.why:
            self.runs[k] = done

    def options(self, best: int | None) -> list[Option]:
        """Say what became of each candidate.

        Costs of those that were not replayed on all seeds are moved by as much as these move the best.
        """
        floor, most, moved = self.costs.floor(), math.inf, 0.0
        expected, _ = self.costs.suggested({k: done[0] for k, done in self.runs.items()})
        if best is not None:
            most, first = (self.costs.of(best, self.runs[best][:n]) for n in (None, 1))
            moved = most - first if math.isfinite(first) else 0.0
        options = list[Option]()
        for k, one in enumerate(self.candidates):
            runs = self.runs.get(k, [])
            whole = len(runs) == len(self.seeds)
            cost = self.costs.of(k, runs) if runs else float(expected[k])
            status = "replayed" if runs else "open" if k in self.open else "unlikely"
            status = "cannot win" if not runs and floor[k] >= most else status
            options.append(
                Option(
                    nodes=dict(zip(self.site.pools, one.nodes, strict=True)),
                    power_w=one.power_w,
                    status="cannot run" if k in self.why else status,
                    seeds=len(runs),
                    bound=float(floor[k]),
                    estimate=cost if whole else max(cost + moved, float(floor[k])),
                    why=self.why.get(k, ""),
                    **(self.costs.parts(k, runs) if whole else {}),
                )
            )
        return options
