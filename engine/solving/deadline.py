"""Work that ends on time, whatever it does: it runs in a thread, which is given up when time is over.

Parts look at timers and end by themselves. This is for those that do not: a library's call, a large sort, a
user's formulation that hangs.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import sys
import time
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from threading import TIMEOUT_MAX, Event, Lock, Thread
from typing import Any, Generic, TypeVar

from wattsched.environment.interrupts import GivenUp
from wattsched.formulations.threads import begin, starting

T = TypeVar("T")
U = TypeVar("U")

_GLANCE_S = 0.02
# Until then who waited has returned.
_NOTICE_S = 0.05
# What a thread that was given up may take to notice when the interpreter ends.
_LAST_S = 5.0
# What imports may take before they are interrupted all the same.
_IMPORT_S = 60.0
_IMPORTING = "<frozen importlib."
_given_up: list[Thread] = []


def _is_news(_: logging.LogRecord) -> bool:
    return not isinstance(sys.exc_info()[1], GivenUp)


# Pyomo logs what interrupts it.
logging.getLogger("pyomo.core").addFilter(_is_news)


def nothing() -> None:
    """Do nothing, afterwards or to end a work."""


def on_time(
    work: Callable[[], T],
    time_s: float | None,
    otherwise: Callable[[], U],
    stop: Event | None = None,
    afterwards: Callable[[], None] = nothing,
    on_stop: Callable[[], None] = nothing,
    stopping_s: float = 0.0,
) -> T | U:
    """Do some work, but for no longer than this.

    Parameters
    ----------
    work : callable
        What it raises is raised here.
    time_s : float, optional
        Wall-clock limit.
    otherwise : callable
        Makes the answer when the work is given up.
    stop : threading.Event, optional
        Ends the wait, too, a moment after it is set.
    afterwards : callable
        What is then to be done besides, in another thread.
    on_stop : callable
        Tells the work to end by itself in that moment.
    stopping_s : float
        How long that is.

    Returns
    -------
    object
        What the work returned, or what there is otherwise. When it is given up it is told so by `GivenUp`,
        as soon as it runs Python again, and a moment after this has returned: to forget what it has made may
        stop every thread for tenths of a second.
    """
    end = None if time_s is None else time.monotonic() + time_s
    may_end = stop is not None and not stop.is_set()  # what is to stop before it begins has found nothing
    thread = _Worker(work)
    try:
        _have_reaper()
        begin(thread)
    except RuntimeError as error:  # what Python calls it when there is no room for a stack
        raise MemoryError(str(error)) from None
    try:
        _wait(thread.done, end, stop)
        if may_end and stop is not None and stop.is_set() and not thread.done.is_set():
            on_stop()
            moment = time.monotonic() + stopping_s
            _wait(thread.done, moment if end is None else min(end, moment), None)
    except BaseException:  # Ctrl-C
        thread.give_up(afterwards)
        raise
    if thread.failure:
        raise thread.failure[0]
    if thread.outcome:
        return thread.outcome[0]
    answer = otherwise()
    thread.give_up(afterwards)
    return answer


class _Worker(Thread, Generic[T]):
    """Thread of some work.

    Attributes
    ----------
    outcome : list
        What the work returned, once it has.
    failure : list of BaseException
        What it raised instead.
    done : threading.Event
        Set when the work has ended.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self.outcome: list[T] = []
        self.failure: list[BaseException] = []
        self.done = Event()
        self._work, self._context = work, copy_context()
        self._ending, self._over = Lock(), False  # held while it is told; whether that came too late

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
                # All that was made hangs on it: it is forgotten here, not where threads are counted.
                del self._work
            with self._ending:
                self._over = True
        except GivenUp:  # on its last way
            pass

    def give_up(self, afterwards: Callable[[], None]) -> None:
        """Let another thread tell the work, in a moment, that its time is over, and do `afterwards`."""
        _given_up[:] = [*(one for one in _given_up if one.is_alive()), self]
        _endings.put((time.monotonic() + _NOTICE_S, self, afterwards))

    def tell_later(self) -> None:
        """Raise `GivenUp` in the work as soon as it imports nothing."""
        end, reached = time.monotonic() + _IMPORT_S, False
        while not reached:
            self.done.wait(_GLANCE_S)
            with starting:
                reached = self.tell(at_once=time.monotonic() > end)

    def tell(self, *, at_once: bool = False) -> bool:
        """Raise `GivenUp` in the work, unless it is importing: half a module would stay for everybody else.

        Returns whether it has been told, or has ended.
        """
        with self._ending:
            if self.ident is None or self._over:
                return True
            if not at_once and _imports(self.ident):
                return False
            ident, error = ctypes.c_ulong(self.ident), ctypes.py_object(GivenUp)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)
            return True


_endings: SimpleQueue[tuple[float, _Worker[Any], Callable[[], None]]] = SimpleQueue()
_reaping, _reaper = Lock(), Thread()


def _have_reaper() -> None:
    """Start the thread that ends works, if it does not run, as in a process that was forked.

    To start one when a call's time is over would take too long.
    """
    global _reaper
    with _reaping:
        if not _reaper.is_alive():
            _reaper = Thread(target=_end_works, daemon=True)
            begin(_reaper)


def _end_works() -> None:
    """Raise `GivenUp` in works whose callers have returned by now, and do what is to be done afterwards."""
    while True:
        moment, worker, afterwards = _endings.get()
        worker.done.wait(max(0.0, moment - time.monotonic()))
        with starting:
            reached = worker.tell()
        afterwards()
        if not reached:
            begin(Thread(target=worker.tell_later, daemon=True))


def _imports(thread_id: int) -> bool:
    """True if a thread is in the middle of an import."""
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            return True
        frame = frame.f_back
    return False


def _wait(done: Event, end: float | None, stop: Event | None) -> None:
    """Wait until the work is done, the monotonic clock has reached the end, or `stop` is set."""
    most_s = TIMEOUT_MAX if stop is None else _GLANCE_S
    while stop is None or not stop.is_set():
        left_s = most_s if end is None else min(most_s, end - time.monotonic())
        if left_s <= 0.0 or done.wait(left_s):
            return


class Uncollected:
    """While one of these is entered, Python looks for no cyclic garbage: that stops every thread.

    Among the objects of 20,000 jobs it takes .1 to .3 s, which calls of a few seconds do not have.
    """

    _lock = Lock()
    _entered = 0
    _was_enabled = False

    def __enter__(self) -> None:
        kind = type(self)
        with kind._lock:
            if kind._entered == 0:
                kind._was_enabled = gc.isenabled()
                gc.disable()
            kind._entered += 1

    def __exit__(self, *_: object) -> None:
        kind = type(self)
        with kind._lock:
            kind._entered -= 1
            if kind._entered == 0 and kind._was_enabled:
                gc.enable()


def left() -> bool:
    """True if a thread that was given up still runs."""
    return any(thread.is_alive() for thread in _given_up)


@atexit.register
def _let_end() -> None:
    """A library that comes back to an interpreter that is gone would abort the process."""
    end = time.monotonic() + _LAST_S
    for thread in _given_up:
        thread.join(max(0.0, end - time.monotonic()))
