"""One process acts on a cluster: the one that holds a Lease, which it renews while it runs.

As with the schedulers of Kubernetes no clock but our own is believed: a Lease has expired when we have seen
it unchanged for as long as it lasts.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.instances.errors import InputError

DURATION_S = 30
"""How long a Lease lasts that is not renewed."""
_RENEWED_S, _TRUSTED_S = 5.0, 18.0
"""It is renewed so often, and acted upon so long after: a request may be under way for 10 s more."""
_LOOK_S = 0.5
_NOT_FOUND, _CONFLICT = 404, 409


def identity_of(journal: str | Path) -> str:
    """Who we are: this machine and the journal, which has one writer."""
    path = Path(journal).resolve()
    return f"{socket.gethostname()}:{path}#{os.stat(path).st_ino}"


@dataclass
class Lease:
    """A Lease that is held within a ``with``.

    Parameters
    ----------
    api : Api
        It changes nothing from then on while the Lease is not held.
    identity : str
        Of this process; a Lease that has it is taken over at once.
    tell : callable
        Takes what an operator should know while we wait.
    """

    api: Api
    namespace: str
    name: str
    identity: str
    tell: Callable[[str], None]
    _held_s: float = -1e9
    _holder: str = ""
    _seen: tuple[Any, ...] = ()
    _seen_s: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take it; wait until it has expired if another process left it behind.

        Raises
        ------
        InputError
            Where another process renews it, or there is no such namespace.
        KubernetesError
            Where there is no answer.
        """
        self._renew()
        seen, told = self._seen, False
        while not self._held:
            if self._seen != seen and self._holder:
                raise InputError([f"{self._by_another()}, and renews it: one process acts on a cluster"])
            if not told:
                told = True
                self.tell(f"{self._by_another()}; waiting up to {DURATION_S} s, as it may be dead")
            time.sleep(_LOOK_S)
            self._renew()
        self.api.before_change = self.require
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._stop.set()
        assert self._thread is not None  # begun above
        self._thread.join()
        with suppress(KubernetesError):
            found = self._found()
            if found is not None and found["spec"].get("holderIdentity") == self.identity:
                self._write(found, {"leaseDurationSeconds": 1})

    def require(self) -> None:
        """Refuse to go on without it.

        Raises
        ------
        KubernetesError
            Where it is not held for sure.
        """
        if not self._held:
            told = f"{self._by_another()} now" if self._holder else f"the {self} could not be renewed"
            raise KubernetesError(f"{told}: nothing is changed without it")

    def __str__(self) -> str:
        """What it is called."""
        return f"Lease {self.namespace}/{self.name}"

    @property
    def _held(self) -> bool:
        return time.monotonic() < self._held_s + _TRUSTED_S

    def _by_another(self) -> str:
        return f"'{self._holder}' holds the {self}"

    def _keep(self) -> None:
        while not self._stop.wait(_RENEWED_S):
            with suppress(KubernetesError, InputError):
                self._renew()

    def _renew(self) -> None:
        """Hold it from now on, if nobody else does."""
        now_s, found = time.monotonic(), self._found()
        before: Mapping[str, Any] = {} if found is None else found["spec"]
        self._holder = before.get("holderIdentity") or ""
        seen = (self._holder, before.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_s = seen, now_s
        expired = now_s > self._seen_s + (before.get("leaseDurationSeconds") or DURATION_S)
        if self._holder not in ("", self.identity) and not expired:
            self._held_s = -1e9
            return
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = {"holderIdentity": self.identity, "leaseDurationSeconds": DURATION_S, "renewTime": moment}
        since = before.get("acquireTime") if self._holder == self.identity else moment
        try:
            self._write(found, {**mine, "acquireTime": since or moment})
        except KubernetesError as error:
            if error.status == _CONFLICT:  # another one was quicker
                return
            if error.status == _NOT_FOUND and found is None:
                told = "make it, or name another one by --lease-namespace"
                raise InputError(
                    [f"there is no namespace '{self.namespace}' for the {self}: {told}"]
                ) from None
            raise
        self._held_s, self._holder = now_s, ""

    def _found(self) -> Any:
        try:
            return self.api.call(self.api.leases.read_namespaced_lease, self.name, self.namespace)
        except KubernetesError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _write(self, found: Any, spec: Mapping[str, Any]) -> None:
        """Make it, or replace it if it still is as it was found."""
        if found is None:
            body = {"metadata": {"name": self.name}, "spec": dict(spec)}
            self.api.call(self.api.leases.create_namespaced_lease, self.namespace, body)
            return
        kept = {"name": self.name, "resourceVersion": found["metadata"]["resourceVersion"]}
        body = {"metadata": kept, "spec": dict(spec)}
        self.api.call(self.api.leases.replace_namespaced_lease, self.name, self.namespace, body)
