"""Files of sites that believe their users, for tests of what else there is."""

from __future__ import annotations

from typing import Any

RANGED = (
    "weight restart_s remaining_work min_gpus max_gpus gpu_counts batch_sizes frequencies_mhz power_limits_w"
)
EVERYTHING: dict[str, Any] = {
    **dict.fromkeys(("own_options", "own_power_w", "preemptible", "pools"), True),
    **{name: [0, 1e12] for name in RANGED.split()},
}
"""Users may say everything."""


def trusting(fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """The same with other fields of the file."""
    return {"allow": EVERYTHING, **(fields or {})}
