"""LPs that grow by generated columns: solved by HiGHS, each time from where the last solve ended."""

from __future__ import annotations

from typing import Any


def solve_growing(highs: Any, what: str) -> None:
    """Solve the LP that a HiGHS object holds.

    Parameters
    ----------
    highs : highspy.Highs
    what : str
        What the LP is over, for the message.

    Raises
    ------
    RuntimeError
        If HiGHS does not find the optimum.
    """
    import highspy

    # The scheduler is global and keeps the thread count of its first use.
    highspy.Highs.resetGlobalScheduler(True)
    highs.run()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS did not solve the LP over {what}: {highs.modelStatusToString(status)}")
