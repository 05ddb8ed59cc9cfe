"""Connections of the server: how many may be open, and how long one may take to ask and to read."""

from __future__ import annotations

import logging
import os
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""Seconds from an answer, or the beginning of a connection, to the end of the next head."""
READ_S = 20.0
"""Seconds after which a reader is dropped that takes nothing of its answer."""
SPARE = 32
"""Connections beyond the limits that are still told so, and whether the process lives."""

_OTHER_FILES = 64
"""Files of the process besides its connections: journal, libraries, pipes."""


class Connection(H11Protocol):
    """A connection; where there are too many, one without a whole request gives way, the oldest first.

    Where all of them have one, the new one is answered by a 503, but for whether the process lives.
    """

    _since_s = 0.0
    _read_s = 0.0
    _unread = 0

    def connection_made(self, transport: Any) -> None:
        """Make room, or be answered by a 503."""
        super().connection_made(transport)
        self._since_s = self._read_s = self.loop.time()
        application: Any = self.config.app
        limits, most = application.state.service.limits, application.state.connections
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        others = [one for one in others if not one.transport.is_closing()]
        address = None if self.client is None else self.client[0]
        own = [one for one in others if one.client is not None and one.client[0] == address]
        if len(own) >= min(limits.per_address, most):
            self._make_room(own, len(own) - min(limits.per_address, most))
        elif len(others) >= most:
            self._make_room(others, len(others) - most)

    def _make_room(self, others: list[Connection], beyond: int) -> None:
        idle = [one for one in others if not one.working]
        if idle:
            min(idle, key=lambda one: one._since_s).transport.abort()
        elif beyond < SPARE:
            self.app_state = {**self.app_state, "crowded": True}
        else:
            self.transport.abort()

    @property
    def working(self) -> bool:
        """True if a whole request has come and is not answered."""
        return self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since_s = self.loop.time()
        super().on_response_complete()

    def expire(self) -> None:
        """Drop a connection whose head does not come to its end, or whose answer nobody reads."""
        now_s, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._read_s = now_s
        self._unread = unread
        asking = self.cycle is None or self.cycle.response_complete
        late = asking and not unread and now_s > self._since_s + HEAD_S
        if late or now_s > self._read_s + READ_S:
            self.transport.abort()


def affordable(connections: int) -> int:
    """Return how many of these connections the limit on open files allows, raising it where needed."""
    if os.name != "posix":
        return connections
    import resource

    needed = connections + SPARE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < needed:
        soft = needed if hard < 0 else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if 0 <= soft < needed:
        connections = max(1, soft - SPARE - _OTHER_FILES)
        told = "'ulimit -n' allows %d open files, and so %d connections"
        logging.getLogger("wattsched.serve").warning(told, soft, connections)
    return connections
