"""Speed and draw of jobs that share GPUs in a replay, by the law in docs/elastic.md and docs/sharing.md.

Comments in quotation marks are sentences of these pages. Nothing of the package is imported.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.pages.pages_replay_site import Piece, Row, Site

SLOWER, SLOWER_FULL, POWER = 0.034870127137706576, 0.045827662614167874, 4


def slowdown(jobs: int, load: float) -> float:
    """Factor by which jobs take longer on GPUs that they use to `load` together."""
    # "n jobs take max(L, sigma(n, min(L, 1))) times as long", "1 + (n - 1)(a + b L^p)"
    if jobs == 1:
        return 1.0
    return max(load, 1 + (jobs - 1) * (SLOWER + SLOWER_FULL * min(load, 1.0) ** POWER))


class Sharing:
    """Periods of jobs on GPUs that they may share."""

    def __init__(self, site: Site, pieces: list[Piece], requested: bool):
        self.site, self.pieces, self.requested = site, pieces, requested
        self.jobs = {job["job"]: job for job in site.case["jobs"]}
        self.highest = {pool: self.highest_w(pool) for pool in site.cluster.pools}

    def highest_w(self, name: str) -> float:
        """The most that a configuration of a job of the trace draws above idle on a GPU of a pool."""
        pool, found = self.site.cluster.pools[name], [0.0]
        for table in [
            self.site.case["tables"][name] for name in {job["table"] for job in self.jobs.values()}
        ]:
            for gpus, kind, watts in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
                if pool in self.site.cluster.matching(kind) and self.site.holds(pool, gpus):
                    found.append(watts / gpus - pool.idle_w)
        return max(found)

    def row(self, piece: Piece) -> Row:
        """The configuration of a period; StopIteration where it is none of the job."""
        rows = self.site.rows(self.jobs[piece.job], self.requested)
        here = (piece.pool, len(piece.gpus), piece.clock)
        return next(row for row in rows if (*row["is"][:2], row["frequency_mhz"]) == here)

    def use(self, piece: Piece) -> float:
        # "A configuration's utilisation is its draw above idle over that of a GPU at its highest."
        return self.site.beyond(*self.row(piece)["is"]) / len(piece.gpus) / self.highest[piece.pool]

    def slices(self, piece: Piece) -> Iterator[tuple[float, int, float]]:
        """Seconds of a period, how many jobs hold the GPUs (restarting ones, too), and their load."""
        meeting = (o for o in self.pieces if o.start < piece.end and o.end > piece.start)
        others = [other for other in meeting if other.gpus & piece.gpus]
        times = {t for other in others for t in (other.start, other.end) if piece.works < t < piece.end}
        for begin, end in pairwise(sorted(times | {piece.works, piece.end})):
            held = [other for other in others if other.start <= (begin + end) / 2 < other.end]
            yield end - begin, len(held), sum(map(self.use, held))

    def work(self, piece: Piece) -> float:
        rate = self.row(piece)["rate"]
        return sum(seconds * rate / slowdown(jobs, load) for seconds, jobs, load in self.slices(piece))

    def watts(self, piece: Piece) -> list[tuple[float, float]]:
        """Draw of a period for its job, idle and working, in each of its slices."""
        # "The GPUs draw in proportion to min(L, 1). The idle power is split equally among the jobs, the rest
        # in proportion to their utilisations."
        gpus = len(piece.gpus)
        idle_w = gpus * self.site.cluster.pools[piece.pool].idle_w
        most_w = gpus * self.highest[piece.pool]
        return [
            (idle_w / jobs, idle_w / jobs + most_w * self.use(piece) / max(load, 1.0))
            for _, jobs, load in self.slices(piece)
        ]
