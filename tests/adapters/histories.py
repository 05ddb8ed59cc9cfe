"""Random histories of a cluster: what happens to it, its cap and us, and what has to be true all the same."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from wattsched.adapters.budget import BELIEVED_S, GRACE_S, Budget, Stated, stated
from wattsched.adapters.correction import Correction
from wattsched.adapters.rounds import Report, UnansweredError
from wattsched.instances.errors import InputError
from wattsched.serve.database import JournalError
from wattsched.serve.journal import Journal

BEGIN_S = 1.8e9
BASE_W, IDLE_W, MOST_W, GPUS = 200.0, 50.0, 400.0, 8
"""Of a node, and of its A100."""
NODES = ("n1", "n2", "n3")
FEED = ("n3",)
"""Nodes of a power domain."""
EACH_W = 350.0
"""What a GPU in use draws beyond an idle one, where a job says nothing of its watts."""
TABLES = {
    f"of{gpus}": {
        "gpus": [gpus] * 2,
        "pool": ["A100"] * 2,
        "rate": [1.0, 0.8],
        "power_w": [gpus * 400.0, gpus * 250.0],
        "frequency_mhz": [1410, 1005],
    }
    for gpus in (1, 2, 4, 8)
}
"""Options of the site."""
HOSTILE: list[Any] = [
    {"weight": 1e6},
    {"wieght": 1},
    {"model": "no-such-model"},
    {"options": {"gpus": [1], "pool": ["A100"], "power_w": [0.0], "rate": [1.0]}},
    {"options": {"gpus": [64], "pool": ["A100"], "power_w": [1.0], "rate": [1.0]}},
    {"options": "none"},
    [],
    "\x1b[2J",
    {"remaining_work": 1e-9},
    {"pools": ["H100"]},
    {"model": "bert", "frequencies_mhz": [1411]},
]

STRANGE = """{"format": "wattsched-signal/1",
"limits": [{"from": "2026-01-01T00:00Z", "power_w": 1.0, "domain": "fed"}]}"""
"""A signal of a power domain that the site does not have."""


class Killed(BaseException):
    """Our process is killed in the midst of something."""


class World(ABC):
    """A cluster, the file with its cap, a clock, a disk, and a process of ours.

    Attributes
    ----------
    true_s, set_s : float
        The time, and by how much the clock is wrong.
    silent : bool
        Whether the cluster does not answer at all.
    flaky : float
        How often one question has no answer.
    kill_after : int
        Changes after which our process is killed; -1 for never.
    refused : bool
        Whether something that was asked for in this round was not done.
    margins : bool
        Whether the caps keep a margin for errors of the watts.
    """

    margins: ClassVar[bool] = False

    def __init__(self, rng: Random) -> None:
        self.rng, self.true_s, self.set_s = rng, BEGIN_S, 0.0
        self.silent, self.flaky, self.kill_after, self.refused = False, 0.0, -1, False
        self.disk_full = False
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.folder = Path(self._folder.name)
        self.fail_safe_w = rng.choice([None, self.idle_w + 4 * EACH_W])
        self.feed_w = len(FEED) * (BASE_W + GPUS * IDLE_W) + rng.choice([2, 5, 8]) * EACH_W
        self.said: Stated | None = None
        self.unknown_since_s = inf
        self.made, self.faults = 0, list[str]()
        self.write_cap(self.idle_w + 16 * EACH_W)
        self.begin()

    idle_w = len(NODES) * (BASE_W + GPUS * IDLE_W)

    @property
    def file(self) -> Path:
        return self.folder / "cap.json"

    def write_cap(
        self, power_w: float, after_s: float = 0.0, until_s: float | None = None, feed: bool = True
    ) -> None:
        """State a cap, from a time on, or until then; a signal may limit the feed, too."""

        def at(s: float) -> str:
            return datetime.fromtimestamp(self.true_s + s, UTC).isoformat()

        document: dict[str, Any] = {"power_w": power_w}
        as_signal: dict[str, Any] = {"format": "wattsched-signal/1"}
        if after_s:
            said = None if self.said is None else self.said[0][""]
            now_w = self.idle_w + 16 * EACH_W if said is None else said.least_from(self.true_s)
            document = {"power_w": now_w, "changes": [{"at": at(after_s), "power_w": power_w}]}
            before = {"from": at(-5), "to": at(after_s), "power_w": now_w}
            as_signal["limits"] = [before, {"from": at(after_s), "power_w": power_w}]
        else:
            as_signal["power_w"] = power_w
        if self.rng.random() < 0.5:
            document = as_signal
            document.setdefault("limits", []).extend(self._feed_limits(at) if feed else ())
        if until_s is not None:
            document["until"] = at(until_s)
        self.file.write_text(json.dumps(document))

    def _feed_limits(self, at: Callable[[float], str]) -> Iterator[dict[str, Any]]:
        """Limits of a signal on the feed: none, one at once, and one that is announced and ends."""
        for _ in range(self.rng.randint(0, 2)):
            after_s, watts = self.rng.choice([-5, 20, 70]), self.rng.randint(0, 8) * EACH_W
            to_s = self.rng.choice([None, after_s + 60])
            yield {
                "domain": "feed",
                "from": at(after_s),
                "to": None if to_s is None else at(to_s),
                "power_w": len(FEED) * (BASE_W + GPUS * IDLE_W) + watts,
            }

    def read_cap(self) -> bool:
        """Whether the cap is known now; what was said last is kept."""
        try:
            self.said = stated(json.loads(self.file.read_text()), "cap.json", ["feed"])
        except (OSError, ValueError, InputError):
            return False
        until = self.said.until
        return until is None or max(self.true_s, self.true_s + self.set_s) < until.timestamp()

    def caps_w(self) -> dict[str, float]:
        """Caps in force, by domain; '' is the site."""
        known = self.read_cap()
        # A process that was started meanwhile does not know what the file said.
        said_w = (
            {} if self.said is None else {n: one.least_from(self.true_s) for n, one in self.said[0].items()}
        )
        cap_w = said_w.get("", inf)
        if not known and self.fail_safe_w is not None and self.true_s > self.unknown_since_s + GRACE_S + 1:
            cap_w = min(cap_w, self.fail_safe_w)
        return {"": cap_w, "feed": min(self.feed_w, said_w.get("feed", inf))}

    def clock(self) -> float:
        return self.true_s + self.set_s

    def monotonic(self) -> float:
        return self.true_s - BEGIN_S

    def begin(self) -> None:
        """Start our process; its clock is right then."""
        self.set_s, self.disk_full = 0.0, False
        budget = Budget(
            file=str(self.file),
            ahead_s=60.0,
            lasting_s=self.rng.choice([0.0, 150.0]),
            fail_safe_w=self.fail_safe_w,
            domains=["feed"],
            clock=self.clock,
            monotonic=self.monotonic,
        )
        budget.cap()
        self.read_cap()
        self.journal = Journal(self.folder / "journal")
        self.rounds = self.new_rounds(budget)
        self.rounds.correction = Correction(0.1) if self.margins else None
        transaction = self.rounds.session._file.transaction

        @contextmanager
        def limited() -> Any:
            if self.disk_full:
                raise JournalError("database or disk is full")
            with transaction() as file:
                yield file

        vars(self.rounds.session._file)["transaction"] = limited

    def restart(self) -> None:
        """End our process, and start another one."""
        self.journal.close()
        self.kill_after = -1
        if not self.read_cap() and self.fail_safe_w is None:
            self.write_cap(self.idle_w + 8 * EACH_W)  # without any it would not start
        self.unknown_since_s, self.said = inf, None
        self.begin()

    def round(self) -> Report | None:
        """One round; None where there was no answer, or we were killed."""
        self.refused = False
        try:
            return self.rounds.round()
        except (UnansweredError, InputError):
            self.refused = True
            return None
        except Killed:
            self.restart()
            return None

    def changed(self) -> None:
        """Note that something was changed, or is about to be: here we may be killed."""
        if self.kill_after == 0:
            raise Killed
        self.kill_after -= self.kill_after > 0

    def asked(self, error: Exception) -> None:
        """Note a question, which may have no answer."""
        if self.silent or self.rng.random() < self.flaky:
            self.refused = True
            raise error

    def require_start(self, gpus_by_node: dict[str, int], power_w: float) -> None:
        """Hold a start against what we know of the cap."""
        added_w = power_w - IDLE_W * sum(gpus_by_node.values())
        drawn, caps, known = self.drawn_w(leaving=True), self.caps_w(), self.read_cap()
        if not known:
            self.faults.append("a job was started while the cap was not known")
        if self.disk_full:
            self.faults.append("a job was started that the journal does not have")
        if added_w > 1e-6 and drawn[""] + added_w > caps[""] + 1e-3:
            self.faults.append(f"a start led to {drawn[''] + added_w} W of {caps['']} W")
        part = sum(gpus for node, gpus in gpus_by_node.items() if node in FEED) / sum(gpus_by_node.values())
        if part * added_w > 1e-6 and drawn["feed"] + part * added_w > caps["feed"] + 1e-3:
            self.faults.append(
                f"a start led to {drawn['feed'] + part * added_w} W of the feed's {caps['feed']} W"
            )

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and jobs with it."""
        self.true_s += seconds
        if self.read_cap():
            self.unknown_since_s = inf
        self.advance()

    def happen(self) -> str:
        """Let one thing happen; what."""
        rng = self.rng
        events = {
            "cut": lambda: self.write_cap(self.idle_w + rng.randint(0, 12) * EACH_W),
            "announced": lambda: self.write_cap(
                self.idle_w + rng.randint(0, 12) * EACH_W, after_s=rng.choice([20, 70, 200])
            ),
            "raise": lambda: self.write_cap(self.idle_w + 24 * EACH_W),
            "expiring": lambda: self.write_cap(self.idle_w + 10 * EACH_W, until_s=rng.choice([30, 90])),
            "no file": lambda: self.file.unlink(missing_ok=True),
            "half a file": lambda: self.file.write_text('{"power_w": 12'),
            "strange domain": lambda: self.file.write_text(STRANGE),
            "clock": self.set_clock,
            "silent": lambda: setattr(self, "silent", not self.silent),
            "flaky": lambda: setattr(self, "flaky", 0.0 if self.flaky else 0.1),
            "restart": self.restart,
            "kill": lambda: setattr(self, "kill_after", rng.randint(0, 3)),
            "disk": lambda: setattr(self, "disk_full", not self.disk_full),
            "node": self.fail_node,
            "jobs": lambda: [self.submit() for _ in range(rng.randint(1, 4))],
            "hostile": lambda: self.submit(rng.choice(HOSTILE)),
            "foreign": self.come_foreign,
            "gone": self.end_foreign,
            "agent": self.change_agents,
            "suspended": self.suspend_as_others,
            "nothing": lambda: None,
        }
        what = rng.choice(list(events))
        events[what]()
        return what

    def set_clock(self) -> None:
        """Set the clock by minutes or hours, or right again."""
        self.set_s = 0.0 if self.set_s else self.rng.choice([-7200.0, -120.0, 120.0, 7200.0])
        self.set_until_s = self.true_s + 0.9 * BELIEVED_S

    def change_agents(self) -> None:
        """Let what sets clocks on a node end, or begin anew, where there is such a thing."""
        return

    def suspend_as_others(self) -> None:
        """Let an administrator suspend a job, or let one go on, where that can be."""
        return

    def mend(self) -> None:
        """Let all that is broken be well again."""
        self.silent, self.flaky, self.kill_after, self.disk_full, self.set_s = False, 0.0, -1, False, 0.0
        self.end_foreign()
        self.mend_nodes()
        self.write_cap(self.idle_w + 24 * EACH_W, feed=False)

    def check(self, report: Report | None, before: str) -> None:
        """Hold what is drawn after a round against the caps in force."""
        if report is None or self.refused:
            return
        self.unknown_since_s = inf if self.read_cap() else min(self.unknown_since_s, self.true_s)
        drawn, caps = self.drawn_w(), self.caps_w()
        for name, cap_w in caps.items():
            if drawn[name] > cap_w + 1e-3 and self.may_stop(name):
                self.faults.append(f"after '{before}' {drawn[name]} W are drawn of {cap_w} W under '{name}'")
            if drawn[name] > cap_w + 1e-3 and not report.alarms:
                self.faults.append(f"after '{before}' the cap of '{name}' is not kept, and nobody is told")
        if not self.read_cap() and not any("the cap is not known" in alarm for alarm in report.alarms):
            self.faults.append("the cap is not known, and nobody is told")
        if abs(self.set_s) > 2 and not any("the clock was set" in alarm for alarm in report.alarms):
            self.faults.append("the clock was set, and nobody is told")

    def close(self) -> None:
        self.journal.close()
        self._folder.cleanup()

    @abstractmethod
    def new_rounds(self, budget: Budget) -> Any:
        """Rounds on it, with the journal."""

    @abstractmethod
    def advance(self) -> None:
        """Let jobs start and end, up to now."""

    @abstractmethod
    def submit(self, said: Any = None) -> None:
        """Submit a job of ours."""

    @abstractmethod
    def submit_long(self) -> None:
        """Submit a job of ours, of one GPU, that may be stopped and does not end by itself."""

    @abstractmethod
    def come_foreign(self) -> None:
        """Let somebody else's job start."""

    @abstractmethod
    def end_foreign(self) -> None:
        """Let those end."""

    @abstractmethod
    def fail_node(self) -> None:
        """Let a node fail, or all be well again."""

    @abstractmethod
    def mend_nodes(self) -> None:
        """Let all nodes be well again."""

    @abstractmethod
    def drawn_w(self, leaving: bool = False) -> dict[str, float]:
        """What is drawn by the model, under each cap, perhaps with what is about to leave."""

    @abstractmethod
    def may_stop(self, name: str) -> list[str]:
        """Jobs of ours that run under a cap and may be stopped."""

    @abstractmethod
    def unfinished(self) -> list[str]:
        """Well-formed jobs of ours that have not ended."""


def added_up(by_node: dict[str, float]) -> dict[str, float]:
    """Watts of nodes under each cap, bases and idle GPUs included."""
    idle_w = BASE_W + GPUS * IDLE_W
    return {
        "": len(NODES) * idle_w + sum(by_node.values()),
        "feed": len(FEED) * idle_w + sum(by_node.get(node, 0.0) for node in FEED),
    }


def history(make: type[World], seed: int, steps: int = 12) -> dict[str, int]:
    """One history; figures of it. Caps keep margins in every other one.

    Raises
    ------
    AssertionError
        With what was not true, the seed and the events.
    """
    rng, make = Random(seed), type("Margins", (make,), {"margins": bool(seed % 2)})
    world, events, rounds, cuts, done = make(rng), list[str](), 0, 0, Counter[str]()
    try:
        for _ in range(rng.randint(2, 6)):
            world.submit()
        for _ in range(steps):
            events.append(world.happen())
            world.pass_time(rng.choice([1.0, 10.0, 30.0]))
            report = world.round()
            rounds += report is not None
            cuts += events[-1] in ("cut", "announced")
            done += Counter({what: len(some) for what, some in report.jobs.items()} if report else {})
            world.check(report, events[-1])
            assert not world.faults, (seed, events, world.faults)
        world.mend()
        for _ in range(60):
            world.pass_time(70.0)
            report = world.round()
            rounds += report is not None
            world.check(report, "all is well")
            if not world.unfinished():
                break
        assert not world.faults, (seed, events, world.faults)
        assert not world.unfinished(), (seed, events, "lost", world.unfinished(), report)
        counts = {"rounds": rounds, "cuts": cuts, "jobs": world.made}
        return counts | {what: done[what] for what in ("change", "stop", "pause", "resume", "signal")}
    finally:
        world.close()
