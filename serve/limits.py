"""Limits of a service, and of the rate at which a client may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, fields

from wattsched.instances.errors import require_range

_MOST_CLIENTS = 10_000
"""Clients whose rate is remembered; those that were quiet for longest are forgotten first."""


@dataclass(frozen=True)
class Limits:
    """Limits of a service; what is beyond them is refused at once.

    Parameters
    ----------
    body_mb : float
        Megabytes of a request.
    rate : float
        Requests per second of one client, on average; one that was quiet may send twice as many in a second.
    queue : int
        Requests that wait for a worker.
    deadline_s : float
        Seconds in which a request is answered, where it does not say so itself; and most that it may ask for.
    workers : int
        Decisions and changes that are made at the same time, each in a thread.
    streams : int
        Streams of decisions that are open at the same time.
    connections : int
        Open connections; beyond them those without a whole request give way.
    per_address : int
        Open connections of one address, likewise.
    """

    body_mb: float = 20.0
    rate: float = 1000.0
    queue: int = 256
    deadline_s: float = 30.0
    workers: int = 2
    streams: int = 64
    connections: int = 512
    per_address: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            require_range(0 < value < 1e9, field.name, "positive", value)


class Rate:
    """Requests per second of each client."""

    def __init__(self, per_s: float) -> None:
        self._per_s, self._most = per_s, 2 * per_s
        # By client the requests that it had left, and when.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Count a request: 0, or the seconds after which the client may ask again."""
        now_s = time.monotonic()
        left, then_s = self._left.pop(client, (self._most, now_s))
        left = min(self._most, left + (now_s - then_s) * self._per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
        self._left[client] = (left - 1 if wait_s == 0.0 else left, now_s)
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return wait_s
