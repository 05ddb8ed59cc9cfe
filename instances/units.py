"""Units in which instances count, and results are told."""

from __future__ import annotations

J_PER_KWH = 3_600_000
S_PER_H = 3_600
S_PER_DAY = 86_400
