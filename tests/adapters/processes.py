"""Other processes: waiting for what they do, and leases that they take at the same moment or leave behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from wattsched.adapters.lease import HeldLease
from wattsched.instances.errors import InputError


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What a function finds, as soon as it does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come")


def left_behind(held: HeldLease) -> None:
    """End renewals without giving it back, as a kill does."""
    held._stop.set()
    assert held._thread is not None
    held._thread.join()


def entered_together(several: Sequence[HeldLease]) -> list[str]:
    """Why those that were refused are, when all try at the same moment."""
    refused = list[str]()

    def enter(one: HeldLease) -> None:
        try:
            one.__enter__()
        except InputError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=enter, args=(one,)) for one in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused
