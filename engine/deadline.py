"""Work that ends on time, whatever it does: it runs in a thread, which is given up when time is over.

Parts look at timers and end by themselves. This is for those that do not: a library's call, a large sort, a
user's formulation that hangs.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import sys
import time
from collections.abc import Callable
from contextvars import copy_context
from threading import TIMEOUT_MAX, Event, Lock, Thread
from typing import Generic, TypeVar

from wattsched.formulations.threads import begin, starting

T = TypeVar("T")

_GLANCE_S = 0.02
# What a thread that was given up may take to notice when the interpreter ends.
_LAST_S = 5.0
_given_up: list[Thread] = []


class GivenUp(BaseException):
    """Raised in the thread of a work whose time is over."""


def _is_news(_: logging.LogRecord) -> bool:
    return not isinstance(sys.exc_info()[1], GivenUp)


# Pyomo logs what interrupts it.
logging.getLogger("pyomo.core").addFilter(_is_news)


def on_time(work: Callable[[], T], time_s: float | None, stop: Event | None = None) -> T | None:
    """Do some work, but for no longer than this.

    Parameters
    ----------
    work : callable
        What it raises is raised here.
    time_s : float, optional
        Wall-clock limit.
    stop : threading.Event, optional
        Ends the wait, too, when it is set.

    Returns
    -------
    object, or None
        What the work returned; None when it was given up. It is then told so by `GivenUp`, as soon as it runs
        Python again.
    """
    thread = _Worker(work)
    try:
        begin(thread)
    except RuntimeError as error:  # what Python calls it when there is no room for a stack
        raise MemoryError(str(error)) from None
    try:
        _wait(thread.done, time_s, stop)
    except BaseException:  # Ctrl-C
        thread.give_up()
        raise
    if thread.failure:
        raise thread.failure[0]
    if thread.outcome:
        return thread.outcome[0]
    thread.give_up()
    return None


class _Worker(Thread, Generic[T]):
    """Thread of some work.

    Attributes
    ----------
    outcome : list
        What the work returned, once it has.
    failure : list of BaseException
        What it raised instead.
    done : threading.Event
    """

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self.outcome: list[T] = []
        self.failure: list[BaseException] = []
        self.done = Event()
        self._work, self._context = work, copy_context()
        self._ending, self._over = Lock(), False

    def run(self) -> None:
        """Do the work."""
        try:
            try:
                self.outcome.append(self._context.run(self._work))
            except GivenUp:
                pass
            except BaseException as error:  # whatever it is, the caller's thread raises it
                self.failure.append(error)
            finally:
                self.done.set()
            with self._ending:
                self._over = True
        except GivenUp:  # on its last way
            pass

    def give_up(self) -> None:
        """Tell the work that its time is over, unless it has just ended."""
        with starting, self._ending:
            if self.ident is not None and not self._over:
                ident, told = ctypes.c_ulong(self.ident), ctypes.py_object(GivenUp)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, told)
        _given_up[:] = [*(one for one in _given_up if one.is_alive()), self]


def _wait(done: Event, time_s: float | None, stop: Event | None) -> None:
    """Wait until the work is done, time is over, or somebody says stop."""
    if stop is None:
        done.wait(None if time_s is None else min(time_s, TIMEOUT_MAX))
        return
    end = None if time_s is None else time.monotonic() + time_s
    while not stop.is_set() and (end is None or time.monotonic() < end):
        if done.wait(_GLANCE_S if end is None else max(0.0, min(_GLANCE_S, end - time.monotonic()))):
            return


def left() -> bool:
    """Whether a thread that was given up still runs."""
    return any(thread.is_alive() for thread in _given_up)


@atexit.register
def _let_end() -> None:
    """A library that comes back to an interpreter that is gone would abort the process."""
    end = time.monotonic() + _LAST_S
    for thread in _given_up:
        thread.join(max(0.0, end - time.monotonic()))
