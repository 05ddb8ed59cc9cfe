"""Actions on jobs: release them on nodes, requeue them, take a release back. Each may be done twice.

Slurm holds the truth. Every action begins from a fresh look at the queue and names the run of the job that it
is for, so one that was cut off is either seen as done or simply done again. The journal keeps what was begun.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wattsched.adapters.slurm.load import Load
from wattsched.adapters.slurm.options import Launch, Ours, gpu_settings, launch_of
from wattsched.adapters.slurm.reading import MARK, SlurmJob, marked
from wattsched.adapters.slurm.running import Running, Start
from wattsched.adapters.slurm.snapshot import SlurmError, ask
from wattsched.instances.gpu_parts import host_of
from wattsched.instances.io import write_atomically
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.serve.recorded import RecordedSession

_WRITE_S = 5.0
"""Seconds within which Slurm has to take a reason."""
_AT_ONCE = 8
"""Commands that Slurm is given at once."""
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Names of nodes that a settings file may have, in quotes of a shell."""


class _Asked(NamedTuple):
    """Commands of an action, its key in the journal and what is said of it there."""

    key: str
    about: Mapping[str, Any]
    commands: Sequence[tuple[str, ...]]


@dataclass
class Actions:
    """Actions on a real Slurm.

    Parameters
    ----------
    journal : RecordedSession
    settings : Path, optional
        Folder of a file for each job that was released with a clock or a power limit, for the prolog.
    require : callable
        Raises a `SlurmError` where nothing may be changed now.
    """

    journal: RecordedSession
    settings: Path | None = None
    number: int = 0
    require: Callable[[], None] = lambda: None
    # Settings as we wrote them last.
    _written: dict[int, str] = field(default_factory=dict)

    def give_way(self, load: Any, cap_w: Mapping[str, float]) -> bool:
        """Take back what may start and has no room or no watts any more: a release starts at once."""
        return False

    def start(self, start: Start) -> str:
        """Pin a held job to its nodes and release it; '' or, where Slurm refused, why."""
        job, launch = start.job, start.launch
        if refused := self._write_settings(job.id, settings_text(launch)):
            return refused
        about = launch.model_dump(exclude_none=True)
        return self._ask_of_job("start", job, launch.run, about, *_release(job, launch))

    def change(self, changes: Mapping[int, tuple[Running, Launch]]) -> dict[int, str]:
        """Change clocks and power limits of running jobs, by number; return for each '' or why not.

        What is lowered goes into the files of all jobs first, so that no agent waits for Slurm: until the
        admin comment says so, the watts before count. What is raised counts first.
        """
        texts = {number: settings_text(launch, one.job) for number, (one, launch) in changes.items()}
        asked = list[_Asked]()
        for number, (one, launch) in changes.items():
            if launch.power_w < one.launch.power_w:
                self._write_settings(number, texts[number])
            about = launch.model_dump(exclude_none=True, include={"power_w", *SETTINGS})
            kind = "lower" if launch.lowering else "raise"
            asked.append(self._of_job(kind, one.job, launch.run, about, _comment(one.job.id, launch)))
        outcomes = dict(zip(changes, self._ask_all(asked), strict=True))
        return {number: no or self._write_settings(number, texts[number]) for number, no in outcomes.items()}

    def send(self, kind: str, start: Start, why: str) -> str:
        """Do what a kind says ("suspend", "resume" or "signal") to a job; '' or why not.

        The mark that it was us is written first, and removed last.
        """
        job, signal = start.job, start.launch.checkpoint_signal or ""
        command = ["scontrol", kind]
        if kind == "signal":
            to = ["--batch"] if signal.startswith("B:") else []
            command = ["scancel", f"--signal={signal.removeprefix('B:')}", *to]
        both = [_comment(job.id, start.launch), (*command, str(job.id))]
        order = -1 if kind == "resume" else 1
        return self._ask_of_job(kind, job, job.restarts, {"why": why}, *both[::order])

    def write_settings(self, load: Load) -> list[str]:
        """Tell agents which GPUs running jobs have, and which settings; return why that could not be done."""
        texts = {
            number: settings_text(one.launch, one.job)
            for number, one in load.ours.items()
            if one.job.running and one.answered
        }
        return [*{refused for item in texts.items() if (refused := self._write_settings(*item))}]

    def confirm(self, load: Load) -> None:
        """Let the watts before a change not count any more for jobs that have the new settings for sure.

        Nor does the mark of a pause for jobs that run.
        """
        commands = [
            _comment(number, one.launch.model_copy(update=gone))
            for number, one in load.ours.items()
            if one.job.running and ((one.settled and one.launch.lowering) or one.launch.paused_s is not None)
            for gone in [{"lowering": None if one.settled else one.launch.lowering, "paused_s": None}]
        ]
        self._outcomes([[command] for command in commands])

    def stop(self, job: SlurmJob, why: str) -> str:
        """Requeue a running job and hold it; '' or why not.

        Without ``Incomplete`` Slurm would requeue a job that has just ended, too, and run it twice.
        """
        command = ("scontrol", "requeuehold", "Incomplete", str(job.id))
        return self._ask_of_job("stop", job, job.restarts, {"why": why}, command)

    def hold(self, job: SlurmJob, why: str) -> str:
        """Take back the release of a job that did not start; '' or why not."""
        return self._ask_of_job("hold", job, job.restarts, {"why": why}, ("scontrol", "uhold", str(job.id)))

    def recount(self) -> str:
        """Have Slurm count the GPUs in use by its jobs; '' or why not.

        Of the commands of 22.05 only this one does; it reads slurm.conf again, too.
        """
        key, commands = f"recount-round{self.number}", [("scontrol", "reconfigure")]
        return self._ask_all([_Asked(key, {"action": "recount"}, commands)])[0]

    def give_back(self, jobs: Iterable[SlurmJob], ours: Ours) -> dict[int, str]:
        """Leave our jobs to Slurm, and return them, each with why Slurm refused, '' where it did not.

        What waits for us is released as its user asked for it.
        """
        found = dict[int, str]()
        for job in jobs:
            waits = job.pending and job.held and ours.has(job) and not job.odd
            said = marked(job.admin_comment)
            if not waits and not isinstance(said, dict):
                continue
            fields = [f"JobId={job.id}", "AdminComment="]
            if waits and (job.required or launch_of(job) is not None):
                fields += [f"ReqNodeList={','.join(sorted(job.needs.nodes))}", "TresFreq=", "StartTime=now"]
            paused = job.suspended and "paused_s" in said
            commands: list[tuple[str, ...]] = [("scontrol", "resume", str(job.id))] * paused
            commands += [("scontrol", "update", *fields)]
            commands += [("scontrol", "release", str(job.id))] if waits else []
            found[job.id] = self._ask_of_job("give back", job, job.restarts, {}, *commands)
        self.forget(())
        return found

    def forget(self, present: Iterable[int]) -> None:
        """Remove settings of jobs that are not on nodes any more."""
        present = set(present)
        self._written = {number: text for number, text in self._written.items() if number in present}
        if self.settings is not None and self.settings.is_dir():
            names = set(map(str, present))
            for file in self.settings.iterdir():
                if file.name.isdigit() and file.name not in names:
                    file.unlink(missing_ok=True)

    def write_reason(self, job: SlurmJob, reason: str) -> bool:
        """Write why a held job waits into its admin comment, beside what is there of ours.

        False where nothing may be changed now; a refusal by Slurm is passed over.
        """
        said = marked(job.admin_comment) or {}
        if said.get("waits") != reason:
            try:
                self.require()
            except SlurmError:
                return False
            comment = json.dumps({MARK: {**said, "waits": reason}})
            with suppress(SlurmError):
                ask("scontrol", "update", f"JobId={job.id}", f"AdminComment={comment}", timeout_s=_WRITE_S)
        return True

    def _ask_of_job(
        self, kind: str, job: SlurmJob, run: int, about: Mapping[str, Any], *commands: tuple[str, ...]
    ) -> str:
        """Give commands, with a key for this run of a job and this round in the journal; '' or why not."""
        return self._ask_all([self._of_job(kind, job, run, about, *commands)])[0]

    def _of_job(
        self, kind: str, job: SlurmJob, run: int, about: Mapping[str, Any], *commands: tuple[str, ...]
    ) -> _Asked:
        key = f"{job.id}-{job.submit_s:.0f}-run{run}-{kind}-round{self.number}"
        return _Asked(key, {"action": kind, "job": job.id, **about}, commands)

    def _ask_all(self, asked: Iterable[_Asked]) -> list[str]:
        """Give the commands of several jobs at once, each with a line in the journal before and after."""
        self.require()
        with ExitStack() as stack:
            found, commands = list[dict[str, str]](), list[Sequence[tuple[str, ...]]]()
            for one in asked:
                starts = one.about["action"] in ("start", "raise", "resume")
                found.append(stack.enter_context(self.journal.acting(one.key, one.about, starts=starts)))
                commands.append(one.commands)
            outcomes = self._outcomes(commands)
            for record, outcome in zip(found, outcomes, strict=True):
                record["outcome"] = outcome or "done"
        return outcomes

    def _outcomes(self, commands: Sequence[Sequence[tuple[str, ...]]]) -> list[str]:
        """Give commands to Slurm, each sequence in its order; return for each '' or why one was refused."""

        def outcome(some: Sequence[tuple[str, ...]]) -> str:
            try:
                for command in some:
                    self.require()
                    ask(*command)
            except SlurmError as error:
                return str(error)
            return ""

        if len(commands) < 2:
            return [outcome(some) for some in commands]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [*pool.map(outcome, commands)]

    def _write_settings(self, number: int, text: str) -> str:
        """Write the settings of a job, where they are other ones; '' or why they cannot be written."""
        if self.settings is None or self._written.get(number) == text:
            return ""
        try:
            self.settings.mkdir(parents=True, exist_ok=True)
            write_atomically(self.settings / str(number), text.encode(), mode=0o644)
        except OSError as error:
            return f"its settings cannot be written: {(error.strerror or str(error)).lower()}"
        self._written[number] = text
        return ""


def may_be_told(job: SlurmJob) -> bool:
    """True if we may write into the admin comment of a job why it waits.

    Not if somebody else has written there. What Slurm itself holds is left alone: with any change it would be
    released, and tried again.
    """
    free = not job.admin_comment or isinstance(marked(job.admin_comment), dict)
    return job.pending and job.reason.startswith("JobHeld") and free


def _comment(number: int, launch: Launch) -> tuple[str, ...]:
    """Return the command that writes a launch into the admin comment of a job."""
    return "scontrol", "update", f"JobId={number}", f"AdminComment={launch.text()}"


def _release(job: SlurmJob, launch: Launch) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The two commands: all that is to be changed in one, then the release."""
    kind = f":{job.request.gpu_type}" if job.request.gpu_type else ""
    each = launch.gpus // len(launch.nodes)
    # What was asked for by the job as a whole cannot be changed by the node, nor the other way round.
    whole = job.request.per == "job"
    gpus = f"TresPerJob=gres:gpu{kind}:{launch.gpus}" if whole else f"Gres=gpu{kind}:{each}"
    fields = [
        f"JobId={job.id}",
        f"ReqNodeList={','.join(sorted(map(host_of, launch.nodes)))}",
        f"NumNodes={len(launch.nodes)}",
        gpus,
        f"AdminComment={launch.text()}",
        # A requeued job is not eligible for two minutes otherwise.
        "StartTime=now",
    ]
    if launch.frequency_mhz is not None:
        fields.append(f"TresFreq=gpu:{launch.frequency_mhz}")
    return ("scontrol", "update", *fields), ("scontrol", "release", str(job.id))


def settings_text(launch: Launch, job: SlurmJob | None = None) -> str:
    """Settings of a job for the prolog and the agents, lines that a shell can read; watts are per GPU.

    Once it runs (`job`), agents are told its GPUs on each node. Odd names of nodes are left out.
    """
    gpus = {} if job is None else {node: own for node, own in job.gpus.items() if _PLAIN.fullmatch(node)}
    named = [f"{node}:{','.join(map(str, own))}" for node, own in gpus.items()]
    lines = {
        "WATTSCHED_RUN": launch.run if job is None else job.restarts,
        **gpu_settings(launch),
        "WATTSCHED_BATCH_SIZE": "" if launch.batch_size is None else launch.batch_size,
        "WATTSCHED_GPUS": f"'{' '.join(named)}'",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
