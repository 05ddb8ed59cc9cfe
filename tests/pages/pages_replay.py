"""The figures of a replay by docs/replay.md, computed event by event from its trace, cluster and segments.

Comments in quotation marks are sentences of the page. Nothing of the package is imported.
"""

from collections import defaultdict
from functools import cached_property
from itertools import pairwise
from math import fsum, inf, isclose

from tests.pages.pages_cluster import power_of_two
from tests.pages.pages_replay_power import Draws
from tests.pages.pages_replay_sharing import Sharing
from tests.pages.pages_replay_site import CLOSE, SAME_S, Piece, Row, close

REQUESTED = ("fifo", "backfill", "srtf", "tiresias-2dlas", "gavel-max-min", "gandiva", "eaco")
RESTARTED = ("fifo", "backfill", "eaco")
"""Policies that restart a job only where a limit falls; the page does not name their restart time."""


class Replay(Draws):
    """The tables and figures of one replay, and what is wrong with them."""

    def check(self) -> list[str]:
        """Return sentences on what is wrong with the replay."""
        names = [job["job"] for job in self.site.case["jobs"]]
        told = [[job["job"] for job in self.jobs], [name for name in names if self.pieces[name]]]
        if told != [names, names]:
            return [f"jobs are lost, or in another order: {told}"]
        for job, record in zip(self.site.case["jobs"], self.jobs, strict=True):
            self.check_job(job, record, self.pieces[job["job"]])
        self.check_places()
        self.check_power()
        self.check_figures()
        return self.faults

    def check_job(self, job: Row, record: Row, pieces: list[Piece]) -> None:
        name = job["job"]
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
        elif self.policy in ("fifo", "backfill") and len(self.site.cluster.pools) == 1:
            # "a job alone in its default configuration takes exactly as long as recorded"
            worked = fsum(p.end - p.works for p in pieces)
            self.expect(close(worked, job["duration"]), f"{name} takes {worked} s, not {job['duration']}")

    def check_restarts(self, name: str, pieces: list[Piece], record: Row) -> float:
        """Count how often a job restarts; check that each takes its time."""
        # "A job restarts when it changes GPU count, pool or batch size, is moved, or continues after a
        # pause."
        restarts, until = 0, -inf
        for before, piece in zip([None, *pieces], pieces, strict=False):
            if before is not None and not piece.same_as(before):
                restarts += 1
                until = piece.start + self.restart_s
            works = min(max(until, piece.start), piece.end)
            right = piece.works >= works - SAME_S if self.sleeps else close(piece.works, works)
            if self.policy in RESTARTED and not right:
                # "For the policy's restart time (`--process-restart` or `--pod-restart`)", whichever
                works = min(piece.start + self.site.case["options"]["--pod-restart"], piece.end)
                right = piece.works >= works - SAME_S if self.sleeps else close(piece.works, works)
            self.expect(right, f"{name} works at {piece.works} from {piece.start} on, not at {works}")
        return restarts - record["migrations"]

    def check_work(self, job: Row, pieces: list[Piece]) -> None:
        """Each period is a configuration of the job, and its rates add up to the work of the job."""
        done = 0.0
        for p in pieces:
            try:
                watts = [watts for watts in self.sharing.watts(p) if p.end - p.works > SAME_S]
                done += self.sharing.work(p)
            except StopIteration:
                return self.expect(False, f"{job['job']} at {p.start}: {p.pool}, {len(p.gpus)} is no option")
            for idle_w, power_w in watts:
                right = close(p.idle_w, idle_w) and close(p.power_w, power_w)
                told = (p.idle_w, p.power_w)
                self.expect(right, f"{job['job']} draws {told} from {p.start} on, not {(idle_w, power_w)}")
        right = isclose(done, job["work"], rel_tol=CLOSE)
        self.expect(right, f"{job['job']} did {done!r} of its work {job['work']!r}")

    @cached_property
    def sharing(self) -> Sharing:
        every = [piece for pieces in self.pieces.values() for piece in pieces]
        return Sharing(self.site, every, self.policy in REQUESTED)

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
