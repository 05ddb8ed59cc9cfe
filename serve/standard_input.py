"""Lines of standard input, read by a thread that ends with whoever asked for them.

A thread that still waits for input when the interpreter ends aborts the process: it holds the lock of
`sys.stdin`, which the interpreter wants to close. So this one reads the descriptor itself, is woken, and is
waited for.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_AHEAD = 16
"""Lines that are read before they are asked for."""


class StandardInput:
    """Lines as they come.

    Parameters
    ----------
    most : int
        Bytes of a line.
    """

    def __init__(self, most: int) -> None:
        self._most, self._source = most, _Descriptor(sys.stdin.fileno())
        self._thread: threading.Thread | None = None

    async def lines(self, ended: asyncio.Event) -> AsyncIterator[bytes | None]:
        """Lines until the input ends, or the event is set; None for one that is too long."""
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes | None](_AHEAD)
        self._thread = threading.Thread(target=self._read, args=(loop, lines), daemon=True)
        self._thread.start()
        over = asyncio.create_task(ended.wait())
        while True:
            coming = asyncio.create_task(lines.get())
            await asyncio.wait([coming, over], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            line = coming.result()
            if line == b"":
                return
            yield line

    def close(self) -> None:
        """End the thread, when nobody asks for lines any more."""
        self._source.end()
        if self._thread is not None and _Descriptor.endable:
            self._thread.join()

    def _read(self, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
        source, line = io.BufferedReader(self._source), b" "
        while line:
            line = source.readline(self._most + 1)
            told: bytes | None = line
            if len(line) > self._most:
                told = None
                while line and not line.endswith(b"\n"):
                    line = source.readline(self._most)
                line = line or b" "
            if told is None or not told.isspace():
                try:
                    asyncio.run_coroutine_threadsafe(lines.put(told), loop).result()
                except (CancelledError, RuntimeError):  # the loop has ended
                    return


class _Descriptor(io.RawIOBase):
    """A file descriptor; whoever waits for more of it can be told that it has ended."""

    endable = os.name == "posix"
    """Elsewhere one cannot wait for two things, and no signal asks for the end."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._woken, self._wake = os.pipe()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        into = memoryview(buffer).cast("B")
        if self.endable and self._woken in select.select([self._woken, self._number], [], [])[0]:
            return 0
        part = os.read(self._number, len(into))
        into[: len(part)] = part
        return len(part)

    def end(self) -> None:
        """Say so from now on."""
        with suppress(OSError):
            os.close(self._wake)
