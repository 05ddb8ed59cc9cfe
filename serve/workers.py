"""Threads that decide and record, and what waits for them: requests first, background rounds after them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_ALONE_S = 0.02
"""Seconds in which nothing else of a key is begun. Python computes one thing at a time in a process, so two
short decisions that take turns are both ready later than one after the other; a long one lets others in."""


class BusyError(Exception):
    """There is too much to do; nothing of what was asked was done."""

    def __init__(self, told: str = "there is too much to do; nothing of this was done") -> None:
        super().__init__(told)


class LateError(Exception):
    """There was no time left before it was begun, or it was not ready in time."""

    def __init__(self, told: str = "there was no time left for this; nothing of it was done") -> None:
        super().__init__(told)


@dataclass(eq=False)
class _Work:
    """Something to do in a thread; of one `key`, one at a time."""

    do: Callable[[], Any]
    key: str | None
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Workers:
    """Threads, and two queues for them; all of its methods are called in the event loop.

    What has a key is begun when nothing else of a key is under way, or when that takes longer than a moment.
    When the queue is full, the oldest background round is given up for a request; where there is none, the
    request is refused. What was taken on is done.
    """

    def __init__(self, threads: int, most_waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="wattsched")
        self._all, self._free = threads, threads
        self._most = most_waiting
        self._requests: deque[_Work] = deque()
        self._background: deque[_Work] = deque()
        self._busy: set[str] = set()  # keys of what is under way
        self._alone: _Work | None = None  # what is in its first `_ALONE_S`: nothing else with a key is begun
        self.shed = 0  # background rounds that were given up

    def __len__(self) -> int:
        return len(self._requests) + len(self._background)

    async def do(
        self, do: Callable[[], T], *, key: str | None = None, until: float | None = None, wait_s: float = 0.0
    ) -> T:
        """Do something for a request, and return what it returns.

        Parameters
        ----------
        do : callable
        key : str, optional
            Of one key, one is done at a time.
        until : float, optional
            Time of the event loop after which it is not begun any more.
        wait_s : float
            Seconds beyond that for what was begun; inf for a change, which is not left halfway known.

        Raises
        ------
        BusyError
            Where the queue is full.
        LateError
            Where it was not begun, or not ready, in time.
        """
        work = self._taken(self._requests, do, key)
        left_s = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        try:
            await asyncio.wait([work.done], timeout=left_s)
            if not work.done.done() and work not in self._requests:
                await asyncio.wait([work.done], timeout=None if wait_s == math.inf else wait_s)
        finally:
            if not_begun := work in self._requests:  # nobody waits for it any more
                self._requests.remove(work)
        if not work.done.done():
            raise LateError if not_begun else LateError("this was not ready in time")
        result: T = work.done.result()
        return result

    def in_background(self, do: Callable[[], Any], key: str) -> asyncio.Future[Any]:
        """Do something when no request waits; the future is cancelled when it is given up."""
        return self._taken(self._background, do, key).done

    async def close(self) -> None:
        """Do what was taken on, and end the threads."""
        while self._background:
            self._background.popleft().done.cancel()
        while self._requests or self._free < self._all:
            await asyncio.sleep(0.01)
        self._threads.shutdown()

    def _taken(self, queue: deque[_Work], do: Callable[[], Any], key: str | None) -> _Work:
        """Put something into a queue; where there is too much, in place of the oldest background round."""
        if len(self) >= self._most:
            if not self._background:
                raise BusyError
            self._background.popleft().done.cancel()
            self.shed += 1
        queue.append(work := _Work(do, key))
        self._begin()
        return work

    def _begin(self) -> None:
        """Begin what may be begun, as long as a thread is free."""
        loop = asyncio.get_running_loop()
        while self._free and (work := self._next()) is not None:
            self._free -= 1
            if work.key is not None:
                self._busy.add(work.key)
                self._alone = work
                loop.call_later(_ALONE_S, self._let_others, work)
            running = loop.run_in_executor(self._threads, work.do)
            running.add_done_callback(partial(self._ended, work))

    def _next(self) -> _Work | None:
        """Take the first of the queues that may be begun, requests before background rounds."""
        for queue in (self._requests, self._background):
            for work in queue:
                if work.key is None or (self._alone is None and work.key not in self._busy):
                    queue.remove(work)
                    return work
        return None

    def _let_others(self, work: _Work) -> None:
        """Begin more beside what takes long."""
        if self._alone is work:
            self._alone = None
            self._begin()

    def _ended(self, work: _Work, ended: asyncio.Future[Any]) -> None:
        """Hand on what some work returned or raised, and begin the next."""
        self._free += 1
        self._busy.discard(work.key or "")
        self._alone = None if self._alone is work else self._alone
        if not work.done.done():
            if (error := ended.exception()) is not None:
                work.done.set_exception(error)
                work.done.exception()  # it may be that nobody waits for it any more
            else:
                work.done.set_result(ended.result())
        self._begin()
