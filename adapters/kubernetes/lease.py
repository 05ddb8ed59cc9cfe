"""One process acts on a cluster: the one that holds a Lease, which it renews while it runs."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.lease import HeldLease, writer_of
from wattsched.instances.errors import InputError

_NOT_FOUND, _CONFLICT = 404, 409


def identity_of(journal: str | Path) -> str:
    """Return our identity: this machine and the journal, which has one writer."""
    return f"{socket.gethostname()}:{writer_of(journal)}"


@dataclass
class Lease(HeldLease):
    """A Lease that is held within a ``with``; while it is not held, `api` changes nothing from then on."""

    duration_s: ClassVar[float] = 30
    renewed_s: ClassVar[float] = 5.0
    trusted_s: ClassVar[float] = 18.0  # a request may be under way for 10 s more
    look_s: ClassVar[float] = 0.5
    failure: ClassVar[type[Exception]] = KubernetesError

    api: Api = field(kw_only=True)
    namespace: str = field(kw_only=True)
    name: str = field(kw_only=True)
    # Holder and time of renewal as they were last, since when they are so, and how often they changed.
    _seen: tuple[Any, ...] = ()
    _seen_s: float = 0.0
    _changes: int = 0

    def __enter__(self) -> Self:
        """Take the Lease as `HeldLease` does; an InputError, too, where there is no such namespace."""
        super().__enter__()
        self.api.before_change = self.require
        return self

    def __str__(self) -> str:
        """Return the name of the Lease, for messages."""
        return f"the Lease {self.namespace}/{self.name}"

    def _by_another(self) -> str:
        return f"'{self._holder}' holds {self}"

    def _is_renewed_by_another(self) -> bool:
        return bool(self._holder) and self._changes > 1  # the first one is that we see it

    def _renew(self) -> None:
        """Write the Lease as ours from now on, unless another process renews it."""
        now_s, found = time.monotonic(), self._found()
        before: Mapping[str, Any] = {} if found is None else found["spec"]
        self._holder = before.get("holderIdentity") or ""
        seen = (self._holder, before.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_s, self._changes = seen, now_s, self._changes + 1
        expired = now_s > self._seen_s + (before.get("leaseDurationSeconds") or self.duration_s)
        if self._holder not in ("", self.identity) and not expired:
            self._held_s = -1e9
            return
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        since = before.get("acquireTime") if self._holder == self.identity else moment
        mine = {"holderIdentity": self.identity, "leaseDurationSeconds": int(self.duration_s)}
        try:
            self._write(found, {**mine, "renewTime": moment, "acquireTime": since or moment})
        except KubernetesError as error:
            if error.status == _CONFLICT:  # another one was quicker
                return
            if error.status == _NOT_FOUND and found is None:
                text = "make it, or name another one by --lease-namespace"
                raise InputError([f"there is no namespace '{self.namespace}' for {self}: {text}"]) from None
            raise
        self._held_s, self._holder = now_s, ""

    def _give_back(self) -> None:
        found = self._found()
        if found is not None and found["spec"].get("holderIdentity") == self.identity:
            self._write(found, {"leaseDurationSeconds": 1})

    def _found(self) -> Any:
        return self.api.call_or_none(self.api.leases.read_namespaced_lease, self.name, self.namespace)

    def _write(self, found: Any, spec: Mapping[str, Any]) -> None:
        """Make the Lease with a `spec`, or replace the one `found`, if it still is as it was."""
        if found is None:
            body = {"metadata": {"name": self.name}, "spec": dict(spec)}
            self.api.call(self.api.leases.create_namespaced_lease, self.namespace, body)
            return
        kept = {"name": self.name, "resourceVersion": found["metadata"]["resourceVersion"]}
        body = {"metadata": kept, "spec": dict(spec)}
        self.api.call(self.api.leases.replace_namespaced_lease, self.name, self.namespace, body)
