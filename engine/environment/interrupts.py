"""Interrupts of work from outside: Ctrl-C, which is never lost, nor taken for another error, and a deadline.

Python raises both wherever it happens to be. In a callback of the garbage collector or of a weak reference
they are printed and forgotten, and libraries that are interrupted in their import make them an error of their
own.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_CALLBACK_S = 0.01
"""Seconds in which a callback that has swallowed Ctrl-C has ended; if it has not, it is only tried again."""


PATIENCE_S = 0.9
"""Seconds in which a process ends by itself that was asked to; after them it is ended, whatever it does."""


class GivenUp(BaseException):
    """Raised in the thread of a work whose time is over."""


class _Watch:
    """State of Ctrl-C: whether it ends this process, whether it came, and how often it is held back now."""

    on = False
    came = False
    held = 0


def watch_interrupts() -> None:
    """Let Ctrl-C end this process for sure; for a command alone, which owns its process.

    Where Ctrl-C is ignored, as behind ``nohup``, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        _Watch.on = True
    sys.unraisablehook = _raise_again


def interrupted() -> bool:
    """True if Ctrl-C came, whatever the libraries made of it."""
    return _Watch.came


@contextmanager
def ending_soon(end: Callable[[], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM end this block by `end`, or the process where it has not ended soon after.

    `end` is called in another thread, as a handler may have interrupted who holds a lock that it would take.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # another one handles signals
        return
    over = threading.Event()

    def end_in_time(number: int) -> None:
        end()
        if not over.wait(PATIENCE_S):
            os._exit(128 + number)

    def handle(number: int, _: FrameType | None) -> None:
        threading.Thread(target=end_in_time, args=(number,), daemon=True).start()

    before = {one: signal.signal(one, handle) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        over.set()
        for one, handler in before.items():
            signal.signal(one, handler)


def _interrupt(*_: int | FrameType | None) -> None:
    _Watch.came = True
    if not _Watch.held:
        raise KeyboardInterrupt


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise Ctrl-C once more when the callback that has swallowed it is over."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_later, ())  # here it would be swallowed again
    elif not issubclass(lost.exc_type, GivenUp):  # whose answer nobody waits for any more
        sys.__unraisablehook__(lost)


def _interrupt_later() -> None:
    time.sleep(_CALLBACK_S)
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:  # a true signal, which ends a wait, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def later_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back while processes start: they inherit that, and leave it to this one."""
    if os.name != "posix":
        yield
        return
    from multiprocessing import resource_tracker

    # Started now, or it would let Ctrl-C through when the first process is.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    came_before = _Watch.came
    # The mask is of this thread: another one may take the signal, and Python raises it here all the same.
    _Watch.held += 1
    try:
        yield
    finally:
        _Watch.held -= 1
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if _Watch.on and _Watch.came and not (came_before or _Watch.held):
            raise KeyboardInterrupt
