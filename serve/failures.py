"""What a service says of each failure: a status, whose fault it is, and a sentence."""

from __future__ import annotations

import logging
from typing import Any

from wattsched.instances.errors import InputError
from wattsched.serve.database import JournalError
from wattsched.serve.recorded import ChangedError
from wattsched.serve.rounds import MissingRoundError
from wattsched.serve.service import ConflictError, MissingError
from wattsched.serve.workers import BusyError, LateError

_log = logging.getLogger("wattsched.serve")

STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (MissingRoundError, 404),
    (InputError, 422),
    (MissingError, 404),
    (ConflictError, 409),
    (ChangedError, 412),
    (BusyError, 503),
    (LateError, 503),
    (JournalError, 503),
)
"""Under which status each failure is told."""


def failure_document(error: Exception) -> dict[str, Any]:
    """What is said of a failure."""
    for kind, status in STATUSES:
        if isinstance(error, kind):
            faults = {"faults": error.faults} if isinstance(error, InputError) else {}
            return {"status": status, "error": str(error), **faults}
    _log.error("a request failed", exc_info=error)
    return {"status": 500, "error": f"internal error: {type(error).__name__}"}
