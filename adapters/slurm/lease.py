"""One process acts on a cluster: the one that has a reservation of this name in Slurm, and renews it.

Slurm has no place for a lock; but an operator can make and delete reservations, they outlive slurmctld, and
every node sees them. Ours begins in ten years, so that it keeps no job from a node. A process that finds
another one, before or after it makes its own, exits. One that is not renewed for long is deleted.
"""

from __future__ import annotations

import hashlib
import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from wattsched.adapters.lease import HeldLease, writer_of
from wattsched.adapters.slurm.inventory import records
from wattsched.adapters.slurm.reading import LEASE
from wattsched.adapters.slurm.snapshot import COMMANDS, SlurmError, ask
from wattsched.instances.errors import InputError

_TIMEOUT_S = 10.0


def identity_of(journal: str | Path) -> str:
    """Name of our reservation: this machine and the journal, which has one writer."""
    key = hashlib.sha256(writer_of(journal).encode()).hexdigest()[:8]
    return f"{LEASE}{re.sub(r'[^A-Za-z0-9]', '-', socket.gethostname())[:40]}_{key}"


class _Seen(NamedTuple):
    """End of a reservation, which every renewal changes, when we first saw it, and how often it changed."""

    end: str
    since_s: float
    changes: int


@dataclass
class Lease(HeldLease):
    """A reservation that is held within a ``with``; its name is our identity."""

    duration_s: ClassVar[float] = 60.0
    renewed_s: ClassVar[float] = 10.0
    trusted_s: ClassVar[float] = 25.0  # a command may be under way for 30 s more
    look_s: ClassVar[float] = 2.0
    failure: ClassVar[type[Exception]] = SlurmError

    _renewals: int = 0
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the name of the lease, for messages."""
        return f"the reservation '{self.identity}'"

    def _by_another(self) -> str:
        return f"another process holds the reservation '{self._holder}'"

    def _is_renewed_by_another(self) -> bool:
        return any(one.changes for one in self._seen.values())

    def _renew(self) -> None:
        """Change the end of our reservation, or make it, unless another process renews one."""
        now_s = time.monotonic()
        names = self._read_leases(now_s)
        if self.identity in names:
            # Another duration, in minutes, is another end. A process that starts later sees ours, and exits.
            self._renewals += 1
            _scontrol("update", f"ReservationName={self.identity}", f"Duration={1 + self._renewals % 1000}")
        elif self._others_hold(names, now_s):
            self._held_s = -1e9
            return
        else:
            _make(self.identity)
            if self._others_hold(self._read_leases(now_s), now_s):
                _delete(self.identity)
                return
        self._held_s, self._holder = now_s, ""

    def _give_back(self) -> None:
        _delete(self.identity)

    def _read_leases(self, now_s: float) -> set[str]:
        """Return the names of all leases, ours included, and note which were renewed since the last look."""
        rows = records(ask(*COMMANDS["reservations"], timeout_s=_TIMEOUT_S))
        ends = {row["ReservationName"]: row.get("EndTime", "") for row in rows if "ReservationName" in row}
        ends = {name: end for name, end in ends.items() if name.startswith(LEASE)}
        for name, end in ends.items():
            before = self._seen.get(name)
            if before is None or before.end != end:
                self._seen[name] = _Seen(end, now_s, 0 if before is None else before.changes + 1)
        return set(ends)

    def _others_hold(self, names: set[str], now_s: float) -> bool:
        """Delete leases that are no longer renewed; True if another process holds one."""
        self._holder = ""
        for name in names - {self.identity}:
            if now_s > self._seen[name].since_s + self.duration_s:
                _delete(name)
            else:
                self._holder = name
        return bool(self._holder)


def _make(name: str) -> None:
    """Make a reservation of a name in ten years; an `InputError` where our user may not."""
    node = ask("sinfo", "--noheader", "--Node", "--format=%N", timeout_s=_TIMEOUT_S).split()
    if not node:
        raise SlurmError("sinfo: there are no nodes")
    when, flags = ("StartTime=now+3650days", "Duration=1"), "Flags=MAINT,OVERLAP,IGNORE_JOBS"
    try:
        create = ("create", "reservation", f"ReservationName={name}", *when)
        _scontrol(*create, "Users=root", f"Nodes={node[0]}", flags)
    except SlurmError as error:
        if not re.search("denied|Invalid user", str(error)):
            raise
        text = "--apply needs a user who is Slurm's operator (AdminLevel=Operator, or SlurmUser)"
        raise InputError([f"{error}; {text}"]) from None


def _delete(name: str) -> None:
    _scontrol("delete", f"ReservationName={name}")


def _scontrol(*arguments: str) -> None:
    ask("scontrol", *arguments, timeout_s=_TIMEOUT_S)
