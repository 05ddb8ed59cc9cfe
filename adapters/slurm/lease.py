"""One process acts on a cluster: the one that has a reservation of this name in Slurm, and renews it.

Slurm has no place for a lock; but an operator can make and delete reservations, they outlive slurmctld, and
are seen from everywhere. Ours is ten years away, so that no job is kept from anything. Who finds another one,
before or after its own is made, goes. One that is not renewed was left behind, and is deleted.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from wattsched.adapters.slurm.inventory import records
from wattsched.adapters.slurm.reading import LEASE
from wattsched.adapters.slurm.snapshot import COMMANDS, SlurmError, ask
from wattsched.instances.errors import InputError

DURATION_S = 60.0
"""So long one is seen unchanged before it counts as left behind; by no clock but our own."""
_RENEWED_S, _TRUSTED_S = 10.0, 25.0
"""It is renewed so often, and acted upon so long after: a command may be under way for 30 s more."""
_LOOK_S, _ASKED_S = 2.0, 10.0


def identity_of(journal: str | Path) -> str:
    """Name of our reservation: this machine and the journal, which has one writer."""
    path = Path(journal).resolve()
    key = hashlib.sha256(f"{path}#{os.stat(path).st_ino}".encode()).hexdigest()[:8]
    return f"{LEASE}{re.sub(r'[^A-Za-z0-9]', '-', socket.gethostname())[:40]}_{key}"


@dataclass
class Lease:
    """A reservation that is held within a ``with``.

    Parameters
    ----------
    identity : str
        Its name; one that has it was left behind by ourselves, and is taken over at once.
    tell : callable
        Takes what an operator should know while we wait.
    """

    identity: str
    tell: Callable[[str], None]
    _held_s: float = -1e9
    _holder: str = ""
    _renewals: int = 0
    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take it; wait until it has expired if another process left it behind.

        Raises
        ------
        InputError
            Where another process renews its own, or we may make none.
        SlurmError
            Where there is no answer.
        """
        self._renew()
        seen, told = dict(self._seen), False
        while not self._held:
            before = {name: end for name, (end, _) in seen.items()}
            if any(before.get(name, end) != end for name, (end, _) in self._seen.items()):
                raise InputError([f"{self._by_another()}, and renews it: one process acts on a cluster"])
            if not told:
                told = True
                self.tell(f"{self._by_another()}; waiting up to {DURATION_S:.0f} s, as it may be dead")
            time.sleep(_LOOK_S * random.uniform(0.5, 1.5))
            seen |= {name: one for name, one in self._seen.items() if name not in seen}
            self._renew()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._stop.set()
        assert self._thread is not None  # begun above
        self._thread.join()
        with suppress(SlurmError):
            _delete(self.identity)

    def require(self) -> None:
        """Refuse to go on without it.

        Raises
        ------
        SlurmError
            Where it is not held for sure.
        """
        if not self._held:
            lost = f"{self._by_another()} now" if self._holder else f"'{self.identity}' could not be renewed"
            raise SlurmError(f"{lost}: nothing is changed without a reservation of ours")

    @property
    def _held(self) -> bool:
        return time.monotonic() < self._held_s + _TRUSTED_S

    def _by_another(self) -> str:
        return f"another process holds the reservation '{self._holder}'"

    def _keep(self) -> None:
        while not self._stop.wait(_RENEWED_S):
            with suppress(SlurmError, InputError):
                self._renew()

    def _renew(self) -> None:
        """Hold it from now on, if nobody else does."""
        now_s = time.monotonic()
        there = self._found(now_s)
        if self.identity in there:
            # Who comes later sees ours, and goes.
            self._renewals += 1
            _scontrol("update", f"ReservationName={self.identity}", f"Duration={1 + self._renewals % 1000}")
        elif self._others(there, now_s):
            self._held_s = -1e9
            return
        else:
            _make(self.identity)
            if self._others(self._found(now_s), now_s):
                _delete(self.identity)
                return
        self._held_s, self._holder = now_s, ""

    def _found(self, now_s: float) -> dict[str, str]:
        """Reservations of our kind, and their ends, which change with every renewal."""
        rows = records(ask(*COMMANDS["reservations"], timeout_s=_ASKED_S))
        found = {row["ReservationName"]: row.get("EndTime", "") for row in rows if "ReservationName" in row}
        found = {name: end for name, end in found.items() if name.startswith(LEASE)}
        for name, end in found.items():
            if self._seen.get(name, ("", 0.0))[0] != end:
                self._seen[name] = end, now_s
        return found

    def _others(self, there: dict[str, str], now_s: float) -> bool:
        """Whether others hold one; what was left behind is deleted."""
        self._holder = ""
        for name in there.keys() - {self.identity}:
            if now_s > self._seen[name][1] + DURATION_S:
                _delete(name)
            else:
                self._holder = name
        return bool(self._holder)


def _make(name: str) -> None:
    node = ask("sinfo", "--noheader", "--Node", "--format=%N", timeout_s=_ASKED_S).split()
    if not node:
        raise SlurmError("sinfo: there are no nodes")
    flags = ("Users=root", f"Nodes={node[0]}", "Flags=MAINT,OVERLAP,IGNORE_JOBS")
    try:
        _scontrol(
            "create", "reservation", f"ReservationName={name}", "StartTime=now+3650days", "Duration=1", *flags
        )
    except SlurmError as error:
        if not re.search("denied|Invalid user", str(error)):
            raise
        raise InputError(
            [f"{error}; --apply needs a user who is Slurm's operator (AdminLevel=Operator, or SlurmUser)"]
        ) from None


def _delete(name: str) -> None:
    _scontrol("delete", f"ReservationName={name}")


def _scontrol(*words: str) -> None:
    ask("scontrol", *words, timeout_s=_ASKED_S)
