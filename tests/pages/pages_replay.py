"""What docs/replay.md says of a replay, computed event by event from its trace, cluster and segments.

Comments in quotation marks are sentences of the page. Nothing of the package is imported.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import fsum, inf, isclose
from typing import Any

from tests.pages.pages_cluster import Cluster, power_of_two

Row = dict[str, Any]
CLOSE = 1e-6
SAME_S = 1e-6  # moments closer than this are one
SHARED = ("gandiva", "eaco")
RESTARTS_NOTHING = ("fifo", "backfill", "eaco")


def close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)


@dataclass
class Piece:
    """A period in which a job held GPUs in one configuration."""

    job: str
    start: float
    end: float
    works: float
    gpus: frozenset
    clock: float | None
    batch: float | None
    idle_w: float
    power_w: float
    pool: str = ""

    def same_as(self, other: "Piece") -> bool:
        """Whether going on from the other takes no restart: the same GPUs and batch, without a pause."""
        where = (self.gpus, self.batch) == (other.gpus, other.batch)
        return where and abs(self.start - other.end) < SAME_S


class Site:
    """Caps and draws of a cluster, by the page."""

    def __init__(self, case: Row):
        self.case, self.cluster = case, Cluster({"cluster": case["cluster"], "jobs": []})
        # "of two such limits the lower one counts"
        self.caps = {"": min([x for x in (case["power_w"], case["site_w"]) if x is not None], default=inf)}
        self.reserved, self.pools = {"": 0.0}, {"": set(self.cluster.pools)}
        for domain in case["cluster"]["power_domains"]:
            name = domain["name"]
            self.caps[name], self.reserved[name] = domain["power_cap_w"], domain["reserved_w"]
            self.pools[name] = {p for p in self.cluster.pools if name in self.cluster.feeds[p]}
        self.idle = {
            cap: self.reserved[cap] + self.cluster.standing_w(list(self.pools[cap])) for cap in self.caps
        }

    def fits(self, jobs: list[tuple[str, int, float]]) -> bool:
        """Whether configurations (pool, GPUs, watts) fit together: into blocks and under every cap."""
        for cap, limit in self.caps.items():
            # "the idle draw of all nodes and GPUs, and for each job what its GPUs draw beyond their
            # idle draw (at least 0)"
            beyond = fsum(self.beyond(*job) for job in jobs if job[0] in self.pools[cap])
            if self.idle[cap] + beyond > limit * (1 + 1e-9):
                return False
        return all(
            self.room(pool, [power_of_two(g) for p, g, _ in jobs if p == pool]) for pool in self.cluster.pools
        )

    def beyond(self, pool: str, gpus: int, watts: float) -> float:
        return max(0.0, watts - gpus * self.cluster.pools[pool].idle_w)

    def room(self, pool: str, blocks: list[int]) -> bool:
        """Whether blocks fit into a pool (the theorem of docs/model.md)."""
        of = self.cluster.pools[pool]
        for size in set(blocks):
            whole = size * sum(block <= of.free for block in of.aligned(size))
            if sum(b for b in blocks if b >= size) > whole:
                return False
        return True

    def rows(self, job: Row, requested: bool) -> list[Row]:
        """The configurations of a job in every pool: (pool, GPUs, watts), rate and clock."""
        table = self.case["tables"][job["table"]]
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        return [
            row | {"is": (pool.name, row["gpus"], row["power_w"])}
            for row in rows
            for pool in self.cluster.matching(row["pool"])
            if (row["gpus"] == job["requested_gpus"] or not requested) and pool.holds(row["gpus"])
        ]

    def verdict(self, requested: bool, clocked: bool) -> bool | None:
        """Whether the page refuses a policy (True) or not (False); None where it does not tell."""
        # "a cap below the draw of the idle cluster, and a policy under which some job could not even run
        # alone"
        if any(self.idle[cap] > limit * (1 + 1e-9) for cap, limit in self.caps.items()):
            return True
        if self.case["catalogue"]:
            return None
        certain = True
        for job in self.case["jobs"]:
            rows = self.rows(job, requested)
            fastest = max(row["frequency_mhz"] for row in rows)
            alone = [self.fits([row["is"]]) for row in rows]
            top = [
                fit
                for fit, row in zip(alone, rows, strict=True)
                if clocked or row["frequency_mhz"] == fastest
            ]
            if not any(alone):
                return True
            certain &= all(alone) if requested else any(top)
        return False if certain else None


class Replay:
    """The tables and figures of one replay, and what is wrong with them."""

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

    def check(self) -> list[str]:
        """Return sentences on what is wrong with the replay."""
        names = [job["job"] for job in self.site.case["jobs"]]
        self.expect([job["job"] for job in self.jobs] == names, f"jobs {[j['job'] for j in self.jobs]}")
        for job, record in zip(self.site.case["jobs"], self.jobs, strict=False):
            self.check_job(job, record, self.pieces[job["job"]])
        self.check_places()
        self.check_power()
        self.check_figures()
        return self.faults

    def check_job(self, job: Row, record: Row, pieces: list[Piece]) -> None:
        name = job["job"]
        if not pieces:
            return self.expect(False, f"{name} is lost")
        begin = self.site.case["jobs"][0]["arrival_s"]
        held = fsum(p.end - p.start for p in pieces)
        right = {
            "arrival_s": job["arrival_s"] - begin,
            "first_start_s": pieces[0].start,
            "end_s": pieces[-1].end,
            "held_s": held,
            "restarts": self.check_restarts(name, pieces, record),
            "energy_j": fsum(p.idle_w * (p.works - p.start) + p.power_w * (p.end - p.works) for p in pieces),
        }
        if not self.shares:
            right["gpu_s"] = fsum(len(p.gpus) * (p.end - p.start) for p in pieces)
        for column, value in right.items():
            self.expect(
                close(record[column], value), f"{name}: {column} is {record[column]!r}, not {value!r}"
            )
        self.expect(pieces[0].start >= right["arrival_s"] - SAME_S, f"{name} starts before it arrives")
        for one, two in pairwise(pieces):
            self.expect(one.end <= two.start + SAME_S, f"{name} is in two places at {two.start}")
        if not self.site.case["catalogue"]:
            self.check_work(job, pieces)

    def check_restarts(self, name: str, pieces: list[Piece], record: Row) -> float:
        """How often a job restarts; checks that each takes its time."""
        # "A job restarts when it changes GPU count, pool or batch size, is moved, or continues after a
        # pause."
        restarts, until = 0, -inf
        for before, piece in zip([None, *pieces], pieces, strict=False):
            if before is not None and not piece.same_as(before):
                restarts += 1
                until = piece.start + (0 if self.policy in RESTARTS_NOTHING else self.restart_s)
            works = min(max(until, piece.start), piece.end)
            right = piece.works >= works - SAME_S if self.sleeps else close(piece.works, works)
            self.expect(right, f"{name} works at {piece.works} from {piece.start} on, not at {works}")
        return restarts - record["migrations"]

    def check_work(self, job: Row, pieces: list[Piece]) -> None:
        """Each period is a configuration of the job, and its rates add up to the work of the job."""
        done = 0.0
        for p in pieces:
            rows = [
                row
                for row in self.site.rows(job, requested=False)
                if row["is"][:2] == (p.pool, len(p.gpus)) and row["frequency_mhz"] == p.clock
            ]
            if len(rows) != 1:
                return self.expect(False, f"{job['job']} at {p.start}: {p.pool}, {len(p.gpus)} is no option")
            right = (
                p.power_w <= rows[0]["power_w"] * (1 + CLOSE)
                if self.shares
                else close(p.power_w, rows[0]["power_w"])
            )
            self.expect(right, f"{job['job']} draws {p.power_w}, not {rows[0]['power_w']}")
            idle_w = self.site.cluster.pools[p.pool].idle_w * len(p.gpus)
            self.expect(
                self.shares or close(p.idle_w, idle_w), f"{job['job']} idles at {p.idle_w}, not {idle_w}"
            )
            done += rows[0]["rate"] * (p.end - p.works)
        right = (
            done >= job["work"] * (1 - CLOSE) if self.shares else isclose(done, job["work"], rel_tol=CLOSE)
        )
        self.expect(right, f"{job['job']} did {done!r} of its work {job['work']!r}")

    def check_places(self) -> None:
        """Jobs hold available GPUs in aligned blocks of their own, or in sets of a few jobs."""
        most = {"gandiva": 2, "eaco": 4}.get(self.policy, 1)
        use: dict[tuple, list[tuple[float, int]]] = defaultdict(list)
        for p in (p for pieces in self.pieces.values() for p in pieces):
            pool, size = self.site.cluster.pools[p.pool], power_of_two(len(p.gpus))
            block = next((b for b in pool.aligned(size) if p.gpus <= b), None)
            self.expect(
                block is not None and block <= pool.free, f"{p.job} at {p.start}: no block {sorted(p.gpus)}"
            )
            for gpu in block or p.gpus:
                use[gpu] += [(p.start, 1), (p.end, -1)]
        for gpu, changes in use.items():
            jobs = 0
            for moment, change in sorted(changes):
                jobs += change
                self.expect(jobs <= most, f"{jobs} jobs on {gpu} at {moment}")

    @cached_property
    def moments(self) -> list[float]:
        times = {t for pieces in self.pieces.values() for p in pieces for t in (p.start, p.works, p.end)}
        for awake in self.awake.values() if self.sleeps else ():
            times |= {t for period in awake for t in period}
        return sorted(t for t in times | {0.0} if 0 <= t <= self.end)

    @property
    def end(self) -> float:
        return max(pieces[-1].end for pieces in self.pieces.values())

    @cached_property
    def awake(self) -> dict[str, list[tuple[float, float]]]:
        """When each node is awake: while it has a job, and as long afterwards (and at first) as asked."""
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
            draws, at = self.draws(cap), 0
            for (begin, end), draw in zip(pairwise(self.moments), draws, strict=False):
                if end - begin < 2 * SAME_S:
                    continue
                while times[at + 1] <= begin + SAME_S:
                    at += 1
                self.expect(draw <= limit * (1 + 1e-9), f"{draw} W at {begin}, cap {cap!r} {limit}")
                told = self.power[at][column]
                self.expect(close(told, draw), f"{column} is {told} at {begin}, not {draw}")
                self.expect(times[at + 1] >= end - SAME_S or close(self.power[at + 1][column], told),
                            f"{column} changes at {times[at + 1]}, between {begin} and {end}")  # fmt: skip
            if not self.shares:
                most = max(self.draws(cap, promised=True))
                self.expect(most <= limit * (1 + 1e-9), f"the gate let {most} W pass, cap {cap!r} {limit}")

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
        limited = {cap: limit for cap, limit in self.site.caps.items() if limit < inf}
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
        if limited:
            right |= {"cap_used_max": max(peaks[cap] / limited[cap] for cap in limited), "above_cap_s": 0}
        for name, value in right.items():
            self.expect(
                close(self.figures[name] or 0.0, value), f"{name} is {self.figures[name]!r}, not {value!r}"
            )


def joined(periods: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Periods in order, overlapping ones as one."""
    found: list[tuple[float, float]] = []
    for begin, end in periods:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
