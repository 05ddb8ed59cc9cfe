"""Files of sites that believe their users, decisions on rounds, and odd values: for both adapters."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import wattsched
from wattsched.adapters.plan import left_for

RANGED = (
    "weight restart_s least_progress remaining_work min_gpus max_gpus gpu_counts batch_sizes frequencies_mhz "
    "power_limits_w"
)
EVERYTHING: dict[str, Any] = {
    **dict.fromkeys(("own_options", "own_power_w", "preemptible", "pools"), True),
    **{name: [0, 1e12] for name in RANGED.split()},
}
"""Users may say everything."""


def trusting(fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """The same with other fields of the file."""
    return {"allow": EVERYTHING, **(fields or {})}


ODD = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    st.lists(st.text(max_size=5), max_size=3),
)
"""What a field of a document may hold that was written by a machine that is out of order."""


def session_of(round: Any, cap_w: float, objective: str = "goodput") -> wattsched.Session:
    """A session of a round under a cap, without its jobs."""
    options = round.load.options
    tenants = left_for(options.tenants, round.kept, 300.0, options.carbon_g_per_kwh)
    session = wattsched.Session(round.cluster, objective=objective, tenants=tenants)
    session.update(power_w=cap_w)
    return session


def tell_job(session: wattsched.Session, job: dict[str, Any]) -> None:
    """Tell a session of a job of a round."""
    fields = {name: [value] for name, value in job.items() if name not in ("name", "current")}
    session.upsert([job["name"]], held=[job["current"]] if "current" in job else None, **fields)


def decided(round: Any, cap_w: float) -> Any:
    """The decision on a round under a cap."""
    session = session_of(round, cap_w)
    for job in round.jobs:
        tell_job(session, job)
    return session.solve(deadline_s=5.0)
