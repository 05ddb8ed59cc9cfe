"""Starting threads in a thread that may be given up.

Until a thread has begun, CPython knows it by the identity of the one that starts it, and what is raised in
that one from outside (`PyThreadState_SetAsyncExc`) may end the new one instead.
"""

from __future__ import annotations

from threading import Lock, Thread

starting = Lock()
"""Held while threads are started, and while one is given up."""


def begin(thread: Thread) -> None:
    """Start a thread."""
    with starting:
        thread.start()
