"""Which cluster and power cap to have for a load that grows: bounds first, then replays of what is left.

Prices at today's cluster bound the costs of all candidates (`capacity_costs`). The candidate is replayed next
that would cost least if it came to as much over its bound as those before. What is proven to cost more than
the best is left out, and so is at last what would have to come closer to its bound than any replay did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wattsched.instances.errors import require_range
from wattsched.instances.units import S_PER_DAY
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.caps import CapError
from wattsched.replay.jobs.policies import PRICED, base_of, require_policy, shares
from wattsched.replay.jobs.resampling import grown
from wattsched.replay.jobs.trace import Submissions
from wattsched.replaying.candidates import Candidate, Site
from wattsched.replaying.capacity_costs import Costs, Run
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.price_sheet import PriceSheet
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal, Progress, _untold, replay_jobs
from wattsched.report.capacity import CapacityPlan, Option, Status
from wattsched.topology.cluster import Cluster

SEEDS = (0, 1, 2)
"""Seeds by default."""
TOLERANCE = 0.01
"""Part of the cost by which what is not replayed may be cheaper, as far as replays tell."""
MOST_CUTS = 4
"""Candidates for which prices are found."""
FEWEST = 3
"""Candidates that are replayed before what they come to says anything of others."""
FINALISTS = 3
"""Candidates at most that are replayed on all seeds, of those within `TOLERANCE` of the best on the first."""


def capacity(
    source: JobSource,
    cluster: Cluster,
    prices: PriceSheet,
    *,
    nodes: Mapping[str, Sequence[int]] | None = None,
    caps_w: Sequence[float] = (),
    growth: float = 0.0,
    policy: str = "sizing",
    seeds: Sequence[int] | None = None,
    days: float | None = None,
    settings: ReplaySettings | None = None,
    journal: Journal | None = None,
    progress: Progress = _untold,
) -> CapacityPlan:
    """Find the numbers of nodes and the power cap that cost least, for a load that grows.

    Parameters
    ----------
    source : JobSource
        The load of today.
    cluster : Cluster
        That of today, on which its durations were recorded.
    prices : PriceSheet
    nodes : mapping of str to sequence of int, optional
        Numbers of nodes to consider, by pool of the cluster or GPU type of the prices; others stay as today.
    caps_w : sequence of float
        Watts of the caps to consider; default: that of today, `power_w` of the settings.
    growth : float
        Part by which there will be more jobs (`replay.jobs.resampling.grown`).
    policy : str
        That decides; `sizing` and `clairvoyant` know what a joule is worth.
    seeds : sequence of int, optional
        They draw models where the trace does not tell, and the new jobs; default: three.
    days : float, optional
        Days that the trace stands for; default: from the first to the last arrival.
    settings : ReplaySettings, optional
        Its power_w is the cap of today; neither a budget nor sleep is taken.
    journal : Journal, optional
        Where replays are kept, each candidate's in a folder of its own.
    progress : callable
        As for `replay_jobs`.

    Raises
    ------
    ValueError
        For values out of range, prices that lack a pool, policies under which jobs share GPUs, jobs for which
        there is no bound, and jobs that today's cluster cannot run.
    """
    require_types(capacity, locals())
    require_policy(policy)
    settings = settings or ReplaySettings()
    if shares(policy):
        raise ValueError(f"policy: under '{policy}' jobs share GPUs, for which there is no bound")
    if settings.budget is not None or settings.sleep_after_s is not None:
        raise ValueError("settings: neither a budget nor nodes that sleep can be planned with")
    for cap_w in caps_w:
        require_range(0 < cap_w < math.inf, "caps_w", "above 0 and finite", cap_w)
    if prices.cap_kw_year and settings.power_w is None:
        raise ValueError("`power_w`: the prices have cap_kw_year, so that the cap of today is needed")
    site = Site(cluster, prices)
    today = Candidate(site.today, settings.power_w)
    others = site.candidates(nodes or {}, [*caps_w] or [settings.power_w])
    draws = source.draws
    seeds = [*seeds] if seeds is not None else [*(SEEDS if draws or growth else SEEDS[:1])]
    submitted = source.submissions(cluster, seeds if draws else seeds[:1])
    load = {seed: grown(submitted[seed if draws else seeds[0]], growth, seed) for seed in seeds}
    if prices.joule_s and base_of(policy) in PRICED:
        settings = replace(settings, least_price=prices.joule_s)
    if journal is not None:
        given = {"prices": prices.model_dump_json(), "growth": growth, "policy": policy}
        journal = replace(journal, options={**journal.options, **given})
        journal.open(settings)
    seconds = _seconds(load[seeds[0]], days)
    study = _Study(site, [*dict.fromkeys([today, *others])], load, policy, settings, journal, progress)
    return study.plan(seconds, growth)


def _seconds(load: Submissions, days: float | None) -> float:
    """Seconds that a trace stands for."""
    require_range(days is None or 0 < days < math.inf, "days", "above 0 and finite", days)
    seconds = float(np.ptp(load.arrival_s)) if days is None else days * S_PER_DAY
    if seconds <= 0:
        raise ValueError("days: all jobs arrive at once; say how many days they stand for")
    return seconds


@dataclass
class _Study:
    """Search among candidates, of which the first is today's.

    Attributes
    ----------
    load : mapping of int to Submissions
        By seed; the search is on the first.
    runs : dict
        Replays by candidate, then by seed.
    why : dict of int to str
        Candidates that cannot run the jobs.
    """

    site: Site
    candidates: Sequence[Candidate]
    load: Mapping[int, Submissions]
    policy: str
    settings: ReplaySettings
    journal: Journal | None
    progress: Progress
    runs: dict[int, dict[int, Run]] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)

    def plan(self, seconds: float, growth: float) -> CapacityPlan:
        """Search, and replay what is left on all seeds."""
        self._clusters = {one.nodes: self.site.with_nodes(one.nodes) for one in self.candidates}
        self.costs = Costs(self.site, self.candidates, self._clusters, [*self.load.values()], seconds)
        for k, (one, idle_w) in enumerate(zip(self.candidates, self.costs.idle_w.tolist(), strict=True)):
            if one.power_w is not None and one.power_w < idle_w:
                self.why[k] = f"its cap is below the {idle_w:,.0f} W that it draws when idle"
        self._replay(0, [*self.load])
        if 0 in self.why:
            raise ValueError(f"cluster: that of today cannot run the jobs: {self.why[0]}")
        self._search()
        best = self._final()
        options = self._options(best)
        worth, kw_worth = ({}, 0.0) if best is None else self.costs.worth(best)
        order = sorted(range(len(options)), key=lambda k: (k != best, _rank(options[k])))
        return CapacityPlan(
            options=[options[k] for k in order],
            best=None if best is None else options[best],
            today=options[0],
            gpu_worth=worth if self.site.prices.job_s else {},
            kw_worth=kw_worth if self.site.prices.job_s and self.candidates[-1].power_w else None,
            jobs=len(next(iter(self.load.values())).jobs),
            growth=growth,
            days=seconds / S_PER_DAY,
            seeds=[*self.load],
            policy=self.policy,
            currency=self.site.prices.currency,
            most_mean_h=self.site.prices.most_mean_h,
        )

    def _replay(self, k: int, seeds: Sequence[int]) -> None:
        """Replay a candidate on seeds, or find out why it cannot run the jobs."""
        one, done = self.candidates[k], dict(self.runs.get(k, {}))
        settings = replace(self.settings, power_w=one.power_w)
        journal = self.journal and self.journal.within(_folder(one))
        for seed in seeds:
            if seed in done or k in self.why:
                continue
            try:
                trace = self.load[seed].on(self._clusters[one.nodes])
            except ValueError as error:  # A job fits nowhere.
                self.why[k] = str(error)
                continue
            try:
                ((_, outcome),) = replay_jobs(
                    {seed: trace}, [self.policy], settings=settings, journal=journal, progress=self.progress
                )
            except CapError as error:
                self.why[k] = str(error)
                continue
            done[seed] = Run.of(outcome, float(self.costs.idle_w[k]))
        if k not in self.why:
            self.runs[k] = done

    def _search(self) -> None:
        """Replay on the first seed what may be best, until no other candidate promises to be better."""
        cuts, first = {0}, next(iter(self.load))
        self.costs.cut(0)
        while True:
            runs = {k: done[first] for k, done in self.runs.items()}
            expected, least = self.costs.suggested(runs)
            goal = (1 - TOLERANCE) * min(self.costs.of(k, [run]) for k, run in runs.items())
            floor = self.costs.floor()[:, 0]
            unknown = (k for k in range(len(floor)) if k not in runs and k not in self.why)
            left = [k for k in unknown if floor[k] < goal]
            if not left or (len(runs) >= FEWEST and least[left].min() >= goal):
                return
            k = min(left, key=lambda one: (expected[one], floor[one]))
            if k not in cuts and len(cuts) < MOST_CUTS:
                cuts.add(k)
                self.costs.cut(k)
            else:
                self._replay(k, [first])

    def _final(self) -> int | None:
        """Replay the best on all seeds; return the cheapest, None where all are too late."""
        first = next(iter(self.load))
        cost = {k: self.costs.of(k, [done[first]]) for k, done in self.runs.items()}
        order, last = sorted(cost, key=lambda k: cost[k]), list[int]()
        for k in order:
            if last and (len(last) == FINALISTS or cost[k] > (1 + TOLERANCE) * cost[order[0]]):
                break
            self._replay(k, [*self.load])
            if k not in self.why and math.isfinite(self.costs.of(k, [*self.runs[k].values()])):
                last.append(k)
        return min(last, key=lambda k: self.costs.of(k, [*self.runs[k].values()]), default=None)

    def _options(self, best: int | None) -> list[Option]:
        """Say what became of each candidate."""
        floor = self.costs.floor().mean(axis=1)
        first = next(iter(self.load))
        expected, _ = self.costs.suggested({k: done[first] for k, done in self.runs.items()})
        most = math.inf if best is None else self.costs.of(best, [*self.runs[best].values()])
        options = list[Option]()
        for k, one in enumerate(self.candidates):
            runs = [] if k in self.why else [*self.runs.get(k, {}).values()]
            status: Status = "cannot win" if floor[k] >= most else "unlikely"
            status = "cannot run" if k in self.why else "replayed" if runs else status
            options.append(
                Option(
                    nodes=dict(zip(self.site.pools, one.nodes, strict=True)),
                    power_w=one.power_w,
                    status=status,
                    bound=float(floor[k]),
                    estimate=self.costs.of(k, runs) if runs else float(expected[k]),
                    why=self.why.get(k, ""),
                    **self.costs.told(k, runs),
                )
            )
        return options


def _rank(option: Option) -> tuple[bool, bool, float]:
    """Order of candidates: by what is expected, those that cannot run last."""
    return bool(option.why), option.estimate == math.inf, option.estimate


def _folder(one: Candidate) -> str:
    """Name of the folder of a candidate's replays."""
    cap = "none" if one.power_w is None else f"{one.power_w:g}"
    return f"{'-'.join(map(str, one.nodes))}-{cap}"
