"""How many examples the tests try: all of them in ``make check``, a twentieth in ``make test``."""

from __future__ import annotations

import os

CHECK = bool(os.environ.get("CHECK"))
"""True in ``make check``."""


def examples(count: int) -> int:
    """Return how many of `count` examples to try: a twentieth in ``make test``, but 5 at least."""
    return count if CHECK else min(count, max(5, count // 20))
