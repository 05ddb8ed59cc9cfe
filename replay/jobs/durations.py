"""Which policies decide by how long jobs take, which no scheduler knows in advance."""

from __future__ import annotations

from typing import Literal

KNOWS: dict[str, Literal["yes", "no"]] = {
    "sizing": "yes",
    "clairvoyant": "yes",
    "elastic": "yes",
    "elastic-makespan": "yes",
    "elastic-progress": "yes",
    "elastic-completion": "yes",
    "fifo": "no",
    "backfill": "yes",
    "sidecar": "yes",
    "termination": "yes",
    "srtf": "yes",
    "tiresias-2dlas": "no",
    "optimus": "yes",
    "elasticflow": "no",
    "gavel-max-min": "no",
    "sia": "no",
    "gandiva": "no",
    "eaco": "no",
    "powerflow": "yes",
    "greenflow": "yes",
}
"""By policy, whether it reads the work that jobs have left. None knows only the limits that users state."""
