"""What trials start is stopped with them, however they are ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let the first signal that asks for the end be a KeyboardInterrupt; the end itself is left in peace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        for one in _ENDINGS:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {one: signal.signal(one, end) for one in _ENDINGS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
