"""One process acts on a cluster: the one that holds a lease of the cluster's own, and renews it as it runs.

No clock but our own is believed: what another process holds has expired when we have seen it unchanged for as
long as it lasts.
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from wattsched.instances.errors import InputError


def writer_of(journal: str | Path) -> str:
    """Return a name that tells the one writer of a journal from those of others on its machine."""
    path = Path(journal).resolve()
    return f"{path}#{os.stat(path).st_ino}"


@dataclass
class HeldLease(ABC):
    """A lease that is held within a ``with``.

    Parameters
    ----------
    identity : str
        Ours; a lease that has it was left behind by ourselves, and is taken over at once.
    tell : callable
        Takes what an operator should know while we wait.

    Attributes
    ----------
    duration_s : float
        How long one lasts that is not renewed.
    renewed_s, trusted_s : float
        It is renewed so often, and acted upon so long after: what was asked for may be under way beyond that.
    look_s : float
        How often one that another process holds is looked at.
    failure : type of Exception
        What asking the cluster raises where there is no answer.
    """

    duration_s: ClassVar[float]
    renewed_s: ClassVar[float]
    trusted_s: ClassVar[float]
    look_s: ClassVar[float]
    failure: ClassVar[type[Exception]]

    identity: str
    tell: Callable[[str], None]
    # When it was renewed last, by `time.monotonic`, long ago where it is lost; which other process has it.
    _held_s: float = -1e9
    _holder: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take it; wait until it has expired if another process left it behind.

        An `InputError` where another process renews its own, or we may make none; `failure` for no answer.
        """
        self._renew()
        announced = False
        while not self._held:
            if self._is_renewed_by_another():
                raise InputError([f"{self._by_another()}, and renews it: one process acts on a cluster"])
            if not announced:
                announced = True
                self.tell(f"{self._by_another()}; waiting up to {self.duration_s:.0f} s, as it may be dead")
            time.sleep(self.look_s * random.uniform(0.5, 1.5))  # not all at the same moment
            self._renew()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._stop.set()
        assert self._thread is not None  # begun above
        self._thread.join()
        with suppress(self.failure):
            self._give_back()

    def require(self) -> None:
        """Refuse to go on, with `failure`, where it is not held for sure."""
        if not self._held:
            lost = f"{self._by_another()} now" if self._holder else f"{self} could not be renewed"
            raise self.failure(f"{lost}: nothing is changed without it")

    @property
    def _held(self) -> bool:
        return time.monotonic() < self._held_s + self.trusted_s

    def _keep(self) -> None:
        while not self._stop.wait(self.renewed_s):
            with suppress(self.failure, InputError):
                self._renew()

    @abstractmethod
    def __str__(self) -> str:
        """Return the name of the lease, for messages."""

    @abstractmethod
    def _by_another(self) -> str:
        """Say that another process holds it."""

    @abstractmethod
    def _renew(self) -> None:
        """Hold it from now on, if nobody else does."""

    @abstractmethod
    def _is_renewed_by_another(self) -> bool:
        """True if one of another process was renewed while we looked."""

    @abstractmethod
    def _give_back(self) -> None:
        """Let others take it at once."""
