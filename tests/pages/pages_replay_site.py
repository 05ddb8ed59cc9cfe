"""The cluster of a replay with its caps, and the periods of its jobs, as docs/replay.md describes them.

Comments in quotation marks are sentences of the page. Nothing of the package is imported.
"""

from dataclasses import dataclass
from math import fsum, inf, isclose
from typing import Any

from tests.pages.pages_cluster import Cluster, Pool, power_of_two
from tests.pages.pages_replay_signal import Limits

Row = dict[str, Any]
CLOSE = 1e-6
SAME_S = 1e-6  # moments closer than this are one


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
        """True if going on from the other takes no restart: the same GPUs and batch, without a pause."""
        where = (self.gpus, self.batch) == (other.gpus, other.batch)
        return where and abs(self.start - other.end) < SAME_S


class Site:
    """Caps and draws of a cluster, by the page."""

    def __init__(self, case: Row):
        self.case, self.cluster = case, Cluster({"cluster": case["cluster"], "jobs": []})
        self.limits = Limits(case["signal"])
        # "of two such limits the lower one counts"; "limit on the whole site at all times"
        told = [case["power_w"], case["site_w"], self.limits.always]
        self.caps = {"": min([x for x in told if x is not None], default=inf)}
        self.reserved, self.pools = {"": 0.0}, {"": set(self.cluster.pools)}
        for domain in case["cluster"]["power_domains"]:
            name = domain["name"]
            self.caps[name], self.reserved[name] = domain["power_cap_w"], domain["reserved_w"]
            self.pools[name] = {p for p in self.cluster.pools if name in self.cluster.feeds[p]}
        self.idle = {
            cap: self.reserved[cap] + self.cluster.standing_w(list(self.pools[cap])) for cap in self.caps
        }

    def fits(self, jobs: list[tuple[str, int, float]], over_time: dict[str, float] | None = None) -> bool:
        """True if configurations (pool, GPUs, watts) fit together: into blocks and under every cap."""
        for cap, always in self.caps.items():
            limit = min(always, (over_time or {}).get(cap, inf))
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
        """True if blocks fit into a pool (the theorem of docs/model.md)."""
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
            if self.holds(pool, row["gpus"]) and (not requested or self.may_be(job, row["gpus"], pool))
        ]

    def may_be(self, job: Row, gpus: int, pool: Pool) -> bool:
        """True if a policy for requested counts may use a count: in a pool too small for it, any below."""
        asked = job["requested_gpus"]
        return gpus == asked if self.holds(pool, asked) else gpus < asked

    def holds(self, pool: Pool, gpus: int) -> bool:
        return self.room(pool.name, [power_of_two(gpus)])

    def verdict(self, requested: bool, clocked: bool) -> bool | None:
        """True if the page refuses a policy, False if not; None where it does not tell."""
        # "a cap below the draw of the idle cluster, and a policy under which some job could not even run
        # alone"
        if any(self.idle[cap] > limit * (1 + 1e-9) for cap, limit in self.caps.items()):
            return True
        # "A limit below the draw of the idle cluster is refused"
        if any(self.idle[cap] > self.limits.lowest(cap) * (1 + 1e-9) for cap in self.caps):
            return True
        certain = all(self.idle[cap] <= self.limits.stated(cap) for cap in self.caps)
        if self.case["catalogue"]:
            return None
        good = {cap: self.limits.final(cap) for cap in self.caps}
        for job in self.case["jobs"]:
            rows = self.rows(job, requested)
            fastest = max(row["frequency_mhz"] for row in rows)
            alone = [self.fits([row["is"]]) for row in rows]
            ever = [self.fits([row["is"]], good) for row in rows]
            top = [e for e, row in zip(ever, rows, strict=True) if clocked or row["frequency_mhz"] == fastest]
            # The page does not say whether a job is refused that does not fit under a limit that holds for
            # good, but may end before that.
            if not any(alone) or (not any(ever) and job["arrival_s"] >= self.limits.settled()):
                return True
            certain &= all(ever) if requested else any(top)
        return False if certain else None
