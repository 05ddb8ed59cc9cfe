"""Leases that are taken at the same moment, and left behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from wattsched.adapters.lease import HeldLease
from wattsched.instances.errors import InputError


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
