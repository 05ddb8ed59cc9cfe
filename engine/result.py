"""The answer of the engine: a decision, its bound, the prices of the budgets, and why it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from wattsched.instances.sizing.decision import Decision
from wattsched.topology.cluster import Strict

if TYPE_CHECKING:
    import pandas as pd

Finite = Annotated[float, Field(allow_inf_nan=False)]


class TerminationReport(Strict):
    """Why the solver stopped; `limit` is what cut it short, `detail` a sentence."""

    reason: Literal["optimal", "feasible", "infeasible", "no_solution", "error"]
    limit: Literal["time", "gap", "nodes"] | None = None
    detail: str = ""


class Certificate(Strict):
    """Row prices of the aggregated program and the Lagrangian bound that they prove.

    Prices are the derivative of the objective by the row's bound, in the objective's own sense;
    rows that are not named have price 0.
    """

    prices: dict[str, Finite]
    bound: Finite


class Totals(Strict):
    """What the decision draws and moves, as the checker recomputes it.

    Attributes
    ----------
    power_w : float
        Site power: running jobs, idle GPUs, node base power.
    energy_j, carbon_g : float
        In the scope of the instance's budgets; carbon needs a carbon intensity.
    gpus_used, gpus_available : int
    restarts, migrations : int
        Running jobs that restart or stop, and those that keep their configuration on other GPUs.
    """

    power_w: Finite
    energy_j: Finite
    carbon_g: Finite | None = None
    gpus_used: int
    gpus_available: int
    restarts: int
    migrations: int


class Size(Strict):
    """Size of what was solved: options of the instance, those dropped as dominated, and the program's size.

    The program's entries are those of its coupling rows; choice groups are not rows.
    """

    options: int
    dropped: int
    columns: int
    rows: int
    nonzeros: int


class Result(Strict):
    """Result of `wattsched.solve`; the file format ``wattsched-result/1``.

    Attributes
    ----------
    objective, bound : float, optional
        In the objective's own sense; for ``min`` the bound is from below, for ``max`` from above.
    gap : float, optional
        ``|objective - bound| / max(1e-9, |objective|)``.
    declined : str
        Why the solver could not take the program at all; a decision is then that of the quick rule which
        `wattsched.solve` has at hand.
    faults : list of str
        What was wrong with the solver's answer: a better decision that failed its check, or a bound that this
        decision disproves. None of it is used; the fault lies in the formulation or the solver.
    checked : bool
        The independent checker found the decision valid.
    prices : dict of str to float
        What one more unit of a row's capacity would improve the objective by, at the margin of the
        linear relaxation (never negative).
    time_s : dict of str to float
        Seconds by phase.
    """

    format: Literal["wattsched-result/1"] = "wattsched-result/1"
    instance: str
    problem: str = "sizing"
    formulation: str
    solver: str
    objective_name: str
    termination: TerminationReport
    sense: Literal["min", "max"]
    objective: Finite | None = None
    bound: Finite | None = None
    gap: Finite | None = None
    declined: str = ""
    faults: list[str] = []
    checked: bool = False
    prices: dict[str, Finite] = {}
    time_s: dict[str, Finite] = {}
    size: Size | None = None
    totals: Totals | None = None
    certificate: Certificate | None = None
    decision: Decision | None = None

    @property
    def solved(self) -> bool:
        """Whether there is a checked decision."""
        return self.decision is not None and self.checked

    def to_frame(self) -> pd.DataFrame:
        """Decision as a table, one row per job; waiting jobs have 0 GPUs.

        Raises
        ------
        ImportError
            Without pandas (``pip install wattsched[pandas]``).
        ValueError
            If there is no decision.
        """
        import pandas as pd

        if self.decision is None:
            raise ValueError(f"the result of '{self.instance}' holds no decision: {self.termination.detail}")
        running = [{**assignment.model_dump(), "waiting": False} for assignment in self.decision.jobs]
        waiting = [{"job": name, "gpus": 0, "waiting": True} for name in self.decision.waiting]
        columns = [
            "job", "waiting", "gpus", "pool", "set", "frequency_mhz", "power_limit_w", "batch_size", "nodes",
        ]  # fmt: skip
        frame = pd.DataFrame([*running, *waiting], columns=columns)
        return frame.set_index("job")

    def prices_frame(self) -> pd.DataFrame:
        """Row prices as a table."""
        import pandas as pd

        return pd.DataFrame({"price": self.prices}).rename_axis("row")
