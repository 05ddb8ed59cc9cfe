"""Running jobs of ours on a Slurm cluster, their settings and pauses, and starts of jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from wattsched.adapters.agents import FRESH_S, JobReport
from wattsched.adapters.options import Row
from wattsched.adapters.plan import Kept
from wattsched.adapters.rounds import start_text
from wattsched.adapters.slurm.inventory import SlurmNode
from wattsched.adapters.slurm.options import Launch, gpu_settings
from wattsched.adapters.slurm.reading import RUNNING, SUSPENDED, Site, SlurmJob
from wattsched.instances.gpu_parts import part_named
from wattsched.instances.sizing.option_rows import SETTINGS


@dataclass(frozen=True)
class Running:
    """A job of ours that has GPUs, or was released and is about to get them."""

    job: SlurmJob
    launch: Launch
    gpus: dict[str, list[int]]
    site: Site

    @property
    def site_nodes(self) -> list[SlurmNode]:
        """Its nodes."""
        return [self.site.nodes[node] for node in self.gpus]

    @property
    def counts(self) -> dict[str, int]:
        """Count its GPUs by node."""
        return {node: len(gpus) for node, gpus in self.gpus.items()}

    @property
    def kept(self) -> Kept:
        """Return what it uses of the quotas of its account."""
        return Kept(self.job.account, self.launch.gpus, self.power_w)

    @property
    def power_w(self) -> float:
        """Watts that count: the most of those before a change, until it is `settled` for this run of it."""
        launch = self.launch
        if self.paused:
            return launch.paused_w or 0.0
        sure = self.settled or (not launch.lowering and launch.run == self.job.restarts)
        return launch.power_w if sure else max(launch.power_w, launch.before_w or 0.0)

    @property
    def paused(self) -> bool:
        """True if we have suspended it, and nobody else has."""
        return self.job.suspended and self.launch.paused_s is not None

    @property
    def node_w(self) -> dict[str, float]:
        """Return the watts that its GPUs draw, by node."""
        return {node: self.power_w / self.launch.gpus * len(gpus) for node, gpus in self.gpus.items()}

    @property
    def answered(self) -> bool:
        """True if agents of all its nodes report, and can change settings of its GPUs: whole ones."""
        whole = all(one.name == one.host and not part_named(one.gpu_type).kind for one in self.site_nodes)
        return whole and self.gpus.keys() <= self.site.reports.keys()

    @cached_property
    def reports(self) -> list[JobReport | None]:
        """Reports of the agents of its nodes on this run of it, None for each without one."""
        found = [self.site.reports[node].jobs.get(str(self.job.id)) for node in self.gpus if self.answered]
        return [one if one is not None and one.run == self.job.restarts else None for one in found]

    @property
    def adjustable(self) -> bool:
        """True if it runs, and agents of all its nodes can change its settings: none has failed to.

        Slurm tells no GPUs of some jobs that started while slurmctld did, and agents can know none.
        """
        failed = any(one is not None and one.failed for one in self.reports)
        told = all(self.job.gpus.get(node) for node in self.gpus)
        return self.job.running and self.answered and told and not failed

    @cached_property
    def settled(self) -> bool:
        """True if the agents of all its nodes report that its GPUs have the settings of its launch."""
        asked = gpu_settings(self.launch)
        return self.adjustable and all(one is not None and gpu_settings(one) == asked for one in self.reports)

    @property
    def since_s(self) -> float:
        """Since when it draws what its launch states; infinite where that is not certain."""
        changed_s = self.launch.changed_s
        if not self.job.running or (changed_s is not None and not self.settled):
            return inf
        return self.job.start_s if changed_s is None else max(self.job.start_s, changed_s + FRESH_S)

    def pause(self) -> Start:
        """Return the job as it is once it is suspended now."""
        now_s = self.site.time_s
        job = replace(self.job, states=frozenset([SUSPENDED]), suspended_s=now_s)
        return Start(job, self.launch.model_copy(update={"paused_s": now_s}))

    def resume(self) -> Start:
        """Return the job as it is once it goes on now: as it was, but for the time of the pause."""
        now_s, paused_s = self.site.time_s, self.site.time_s - self.job.suspended_s
        start_s = self.job.start_s + paused_s
        job = replace(self.job, states=frozenset([RUNNING]), start_s=start_s, suspended_s=now_s)
        changed_s = self.launch.changed_s and self.launch.changed_s + paused_s
        return Start(job, self.launch.model_copy(update={"paused_s": None, "changed_s": changed_s}))

    @property
    def silent(self) -> bool:
        """True if this run of it has still to be signalled before it is stopped."""
        return self.launch.checkpoint_signal is not None and self.launch.signalled_run != self.job.restarts

    @property
    def grace_left_s(self) -> float:
        """Seconds until its grace is over, which begins with its signal."""
        since_s = self.site.time_s if self.silent else self.launch.signalled_s or 0.0
        return max(0.0, (self.launch.grace_s or 0.0) - (self.site.time_s - since_s))

    @property
    def awaited(self) -> bool:
        """True if it will count with fewer watts, as its agents can lower its settings and have not yet."""
        return self.adjustable and self.power_w > self.launch.power_w

    def changed(self, row: Row, rate: float) -> Start:
        """Change its settings to those of a row; it has worked at a rate so far."""
        launch, now_s = self.launch, self.site.time_s
        settings: dict[str, Any] = dict.fromkeys(SETTINGS) | row.settings
        before_w, lowering = max(self.power_w, launch.before_w or 0.0), row.power_w < self.power_w or None
        watts = {"power_w": row.power_w, "before_w": before_w, "lowering": lowering}
        times = {"changed_s": now_s, "done_work": launch.work_at(self.job, now_s, rate)}
        return Start(self.job, launch.model_copy(update=settings | watts | times))


@dataclass(frozen=True)
class Start:
    """A job to be released, or a running one whose settings are to be changed."""

    job: SlurmJob
    launch: Launch

    @property
    def name(self) -> int:
        """Its number."""
        return self.job.id

    def __str__(self) -> str:
        """Describe a start: its GPUs by node, its settings, and its watts."""
        return start_text(self.launch.nodes, self.launch, self.launch.power_w)
