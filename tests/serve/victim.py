"""A process that is killed: it changes a session of a journal, and says what was acknowledged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from wattsched.serve.journal import Journal

CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": f"n{i}", "gpu_type": "A", "gpus": 4} for i in range(4)],
}
TABLE = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "rate": [1.0, 1.9, 3.5], "power_w": [200.0, 390.0, 750.0]}
DOCUMENT = {"cluster": CLUSTER, "tables": {"t": TABLE}, "objective": "goodput", "round_s": 60.0}
STANDING = 6
"""Jobs that are there at the same time."""


def jobs(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """Records of jobs that share the table."""
    return [{"name": name, "options": "t", **fields} for name in names]


def body_of(*names: str, **fields: Any) -> dict[str, Any]:
    """What a request says that tells of them."""
    return {"jobs": jobs(*names, **fields)}


def names_after(steps: int) -> list[str]:
    """Jobs after so many steps: in each one comes, and the oldest goes."""
    return [f"j{k}" for k in range(max(0, steps - STANDING), steps)]


def main(path: Path) -> None:
    with Journal(path) as journal:
        session = journal.open("s") if "s" in journal.sessions() else journal.create("s", DOCUMENT)
        budget_w = session.session.to_instance().budgets.power_w
        step = 0 if budget_w is None else int(budget_w - 10_000)
        # What was cut off in the middle of a step begins it again.
        session.upsert(jobs(*names_after(step)))
        names = session.session.to_instance().by_column().names
        session.remove([name for name in names if name not in names_after(step)])
        while True:
            session.upsert(jobs(f"j{step}"))
            if step >= STANDING:
                session.remove([f"j{step - STANDING}"])
            step += 1
            session.update(power_w=10_000.0 + step)
            print("step", step, flush=True)
            if step % 5 == 0:
                made = session.solve(
                    jobs=[{"name": f"j{step - 1}", "weight": 2.0}], apply=True, deadline_s=5.0
                )
                print("applied", made.number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
