"""Keep standard output for what was asked for."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stray_output_to_stderr() -> Iterator[None]:
    """Send what native libraries print to file descriptor 1 to standard error meanwhile.

    HiGHS prints a line now and then even when it is told not to.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        # One of the two is closed: there is nothing to keep apart.
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        # The C library has a buffer of its own, which must go out before descriptor 1 is back.
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
