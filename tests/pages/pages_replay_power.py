"""The draw of a replay at every moment, computed from the periods of its jobs as docs/replay.md says.

Comments in quotation marks are sentences of the page. Nothing of the package is imported.
"""

from collections import defaultdict
from functools import cached_property
from itertools import pairwise
from math import fsum, inf

from tests.pages.pages_replay_site import CLOSE, SAME_S, Piece, Row, Site, close

SHARED = ("gandiva", "eaco")


class Draws:
    """The tables and figures of one replay, and what is wrong with those of its watts."""

    def __init__(self, site: Site, policy: str, tables: dict[str, list[Row]], figures: Row):
        self.site, self.policy, self.figures, self.faults = site, policy.split("+")[0], figures, []
        self.jobs, self.power, self.segments = tables["jobs"], tables["power"], tables["segments"]
        self.shares = self.policy in SHARED
        self.sleeps = "--sleep-after" in site.case["options"]
        name = "--pod-restart" if self.policy == "termination" else "--process-restart"
        self.restart_s = site.case["options"][name]

    def expect(self, right: bool, sentence: str) -> None:
        if not right and len(self.faults) < 8:
            self.faults.append(sentence)

    @cached_property
    def pieces(self) -> dict[str, list[Piece]]:
        """The periods of each job in time, put together from the lines of their nodes and blocks."""
        lines: dict[tuple, list[Row]] = defaultdict(list)
        for line in self.segments:
            lines[line["job"], line["start_s"]].append(line)
        pieces: dict[str, list[Piece]] = defaultdict(list)
        for (job, start), mine in sorted(lines.items()):
            gpus = [(s["node"], s["first_gpu"] + i) for s in mine for i in range(s["gpus"])]
            ends = {(s["end_s"], s["works_s"], s["frequency_mhz"], s["batch_size"]) for s in mine}
            self.expect(len(ends) == 1 and len(set(gpus)) == len(gpus), f"{job} at {start}: lines differ")
            end, works, clock, batch = ends.pop()
            watts = [fsum(s[name] for s in mine) for name in ("idle_w", "power_w")]
            pool = self.site.cluster.pool_of[gpus[0][0]]
            pieces[job].append(Piece(job, start, end, works, frozenset(gpus), clock, batch, *watts, pool))
            even = [s["power_w"] / s["gpus"] for s in mine]
            self.expect(close(min(even), max(even)), f"{job} at {start}: its GPUs draw differently")
        return pieces

    @cached_property
    def moments(self) -> list[float]:
        times = {t for pieces in self.pieces.values() for p in pieces for t in (p.start, p.works, p.end)}
        for awake in self.awake.values() if self.sleeps else ():
            times |= {t for period in awake for t in period}
        times |= set(self.site.limits.moments)
        return sorted(t for t in times | {0.0} if 0 <= t <= self.end)

    @property
    def end(self) -> float:
        return max(pieces[-1].end for pieces in self.pieces.values())

    @cached_property
    def awake(self) -> dict[str, list[tuple[float, float]]]:
        """Times at which nodes are awake: with a job, and as long afterwards (and at first) as asked."""
        after = self.site.case["options"].get("--sleep-after", inf)
        use = {node: [(0.0, 0.0)] for node in self.site.cluster.nodes}
        for p in (p for pieces in self.pieces.values() for p in pieces):
            for node in {node for node, _ in p.gpus}:
                use[node].append((p.start, p.end))
        return {node: joined([(a, b + after) for a, b in sorted(periods)]) for node, periods in use.items()}

    def draws(self, cap: str, promised: bool = False) -> list[float]:
        """The draw under a cap from each moment to the next; `promised`: as the gate adds it up."""
        changes: dict[float, float] = defaultdict(float)
        for p in (p for pieces in self.pieces.values() for p in pieces if p.pool in self.site.pools[cap]):
            begin = p.start if promised else p.works
            beyond = max(0.0, p.power_w - p.idle_w) if promised else p.power_w - p.idle_w
            changes[begin] += beyond * (begin < p.end)
            changes[p.end] -= beyond * (begin < p.end)
        now = self.site.idle[cap]
        if self.sleeps and not promised:
            now += self.sleep_changes(cap, changes)
        found = []
        for moment in self.moments:
            now += changes.get(moment, 0.0)
            found.append(now)
        return found

    def sleep_changes(self, cap: str, changes: dict[float, float]) -> float:
        """Add what nodes draw less while they sleep; return that of all nodes together."""
        everything = 0.0
        for node, awake in self.awake.items():
            if self.site.cluster.pool_of[node] in self.site.pools[cap]:
                of = self.site.cluster.nodes[node]
                free = of["gpus"] - len(of.get("unavailable", []))
                idle_w = self.site.case["cluster"]["gpu_types"][of["gpu_type"]]["idle_power_w"]
                less = self.site.case["options"]["--sleep-power"] - of["base_power_w"] - free * idle_w
                everything += less
                for begin, end in awake:
                    changes[begin] -= less
                    changes[end] += less
        return everything

    def check_power(self) -> None:
        """The draw of the segments is that of the table, and at no moment above a cap."""
        times = [row["time_s"] for row in self.power] + [inf]
        for cap, limit in self.site.caps.items():
            column = "power_w" + (f":{cap}" if cap else "")
            draws, gate, at = self.draws(cap), self.draws(cap, promised=True), 0
            for at_moment, (begin, end) in enumerate(pairwise(self.moments)):
                draw = draws[at_moment]
                if end - begin < 2 * SAME_S:
                    continue
                while times[at + 1] <= begin + SAME_S:
                    at += 1
                now = min(limit, self.site.limits.within(cap, begin, end))
                self.expect(draw <= now * (1 + 1e-9), f"{draw} W from {begin} to {end}, limit {cap!r} {now}")
                self.expect(
                    gate[at_moment] <= now * (1 + 1e-9),
                    f"the gate lets {gate[at_moment]} W pass from {begin} to {end}, limit {cap!r} {now}",
                )
                told = self.power[at][column]
                self.expect(close(told, draw), f"{column} is {told} at {begin}, not {draw}")
                self.expect(times[at + 1] >= end - SAME_S or close(self.power[at + 1][column], told),
                            f"{column} changes at {times[at + 1]}, between {begin} and {end}")  # fmt: skip

    def check_figures(self) -> None:
        lasting = [(b - a) for a, b in pairwise(self.moments)]
        draws = {cap: self.draws(cap)[:-1] for cap in self.site.caps}
        peaks = {
            cap: max(w for w, s in zip(of, lasting, strict=True) if s > SAME_S) for cap, of in draws.items()
        }
        energy = fsum(w * s for w, s in zip(draws[""], lasting, strict=True))
        ends = [record["end_s"] - record["arrival_s"] for record in self.jobs]
        waits = [end - record["held_s"] for end, record in zip(ends, self.jobs, strict=True)]
        gpus = sum(len(pool.free) for pool in self.site.cluster.pools.values())
        gpu_s = fsum(record["gpu_s"] for record in self.jobs)
        right = {
            "jobs": len(self.site.case["jobs"]),
            "energy_j": energy,
            "jobs_energy_j": fsum(record["energy_j"] for record in self.jobs),
            "carbon_g": energy * self.site.case["options"]["--carbon"] / 3.6e6,
            "makespan_s": self.end,
            "jct_mean_s": fsum(ends) / len(ends),
            "queueing_mean_s": fsum(waits) / len(waits),
            "gpu_h": gpu_s / 3600,
            "gpu_utilisation": gpu_s / gpus / self.end,
            "restarts": sum(record["restarts"] for record in self.jobs),
            "migrations": sum(record["migrations"] for record in self.jobs),
            "preemptions": sum(record["preemptions"] for record in self.jobs),
            # "the peak, the highest draw that lasted", "the largest part of a cap that was drawn"
            "peak_w": peaks[""],
        }
        if any(limit < inf for limit in self.site.caps.values()) or self.site.limits.limits:
            right["above_cap_s"] = 0
            self.check_part(draws)
        for name, value in right.items():
            self.expect(
                close(self.figures[name] or 0.0, value), f"{name} is {self.figures[name]!r}, not {value!r}"
            )

    def check_part(self, draws: dict[str, list[float]]) -> None:
        """The figure `cap_used_max`; where limits ramp, a replay may count with the least of a step."""
        limits, parts = self.site.limits, [0.0]
        for cap, limit in self.site.caps.items():
            for watts, (begin, end) in zip(draws[cap], pairwise(self.moments), strict=True):
                if end - begin > SAME_S:
                    parts.append(watts / min(limit, limits.within(cap, begin, end)))
        told = self.figures["cap_used_max"] or 0.0
        right = max(parts) <= told + CLOSE and told <= 1 + CLOSE if limits.ramps else close(told, max(parts))
        self.expect(right, f"cap_used_max is {told!r}, not {max(parts)!r}")


def joined(periods: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Periods in order, overlapping ones as one."""
    found: list[tuple[float, float]] = []
    for begin, end in periods:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
