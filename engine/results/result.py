"""The answer of the engine: a decision, its bound, the prices of the budgets, and why it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from wattsched.instances.errors import InputError, validated
from wattsched.topology.fields import Strict

if TYPE_CHECKING:
    import pandas as pd

Finite = Annotated[float, Field(allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
Count = Annotated[int, Field(ge=0)]


class TerminationReport(Strict):
    """Reason why the solver stopped; `limit` is what cut it short, `detail` a sentence."""

    reason: Literal["optimal", "feasible", "infeasible", "no_solution", "error"]
    limit: Literal["time", "gap", "nodes", "stopped"] | None = None
    detail: str = ""


class SolverAnswer(TerminationReport):
    """Answer of the requested solver alone, before the engine added a decision or a bound to it.

    Attributes
    ----------
    reason, limit, detail
        As in `TerminationReport`: `optimal` if its own objective and bound are within the gap asked for.
    objective, bound, gap : float, optional
        As in `Result`. Its objective is checked where its decision is that of the result, and what the solver
        says of it otherwise; its bound is its word.
    """

    objective: Finite | None = None
    bound: Finite | None = None
    gap: Finite | None = None


class Node(Strict):
    """Node of a certificate tree: a leaf with its prices, or a split with the numbers of its children.

    What `split` says depends on the problem; its inside and its outside are each other's complement.
    """

    prices: dict[str, Finite] | None = None
    split: dict[str, Any] | None = None
    inside: int | None = None
    outside: int | None = None


class Certificate(Strict):
    """Row prices under the names of capacities and budgets, and the bound that they prove.

    Prices are the derivative of the objective by the row's bound, in the objective's own sense;
    rows that are not named have price 0. With a tree, whose root is its first node, the bound is what its
    leaves prove together, and `price_bound` what the prices prove alone.
    """

    prices: dict[str, Finite]
    bound: Finite
    price_bound: Finite | None = None
    tree: list[Node] = []


class ConflictMember(Strict):
    """A limit that contradicts the others of its set, and what would do without it.

    Attributes
    ----------
    limit : str
        Where the instance states it, such as ``budgets.power_w``, ``jobs.NAME.can_wait`` or ``gpus:POOL``.
    value : float, optional
        As the instance states it; None for a demand that is made or not.
    unit : str
    needed : float, optional
        Easier value with which the others hold; None where it was not looked for.
    insufficient : float, optional
        Harder value that is proven not to be enough, as a rule by 0.01 % or one GPU; None where none is.
    enough : bool
        Whether the whole instance has a decision then, and not only the limits of the set.
    decision : object, optional
        A decision with this value, or without this demand: it shows that the set needs the limit.
    certificate : Certificate, optional
        Proof that `insufficient` is.
    """

    limit: str
    value: Finite | None = None
    unit: str = ""
    needed: Finite | None = None
    insufficient: Finite | None = None
    enough: bool = False
    decision: Any = None
    certificate: Certificate | None = None


class Conflict(Strict):
    """Limits and demands that contradict each other: together they leave no decision.

    Attributes
    ----------
    members : list of ConflictMember
    minimal : bool
        Whether each was shown to be needed: without any one of them the others have a decision. False where
        the time for that was over.
    certificate : Certificate, optional
        Proof that the instance has no decision when all other limits are left out.
    """

    members: list[ConflictMember]
    minimal: bool
    certificate: Certificate | None = None


class Size(Strict):
    """Size of the program that was solved; its entries are those of rows, choice groups are no rows.

    `options` counts what the jobs could do, `dropped` those that others of the job dominate; None for
    problems without options.
    """

    columns: Count
    rows: Count
    nonzeros: Count
    options: Count | None = None
    dropped: Count | None = None


class Result(Strict):
    """Result of `wattsched.solve`; the file format ``wattsched-result/2``.

    Attributes
    ----------
    digest : str
        Of the instance (`instances.digest.digest_of`); empty where it was not read in time, and in results of
        the format before.
    objective, bound : float, optional
        In the objective's own sense; for ``min`` the bound is from below, for ``max`` from above.
    gap : float, optional
        ``|objective - bound| / max(1e-9, |objective|)``.
    proven_gap : float, optional
        The same of the certificate's bound, which anybody can verify.
    gap_asked : float, optional
        The gap at which a decision was to count as optimal; None in results of the format before.
    claimed : bool
        Whether the bound, or that there is no decision, is more than the certificate proves: it rests on the
        solver's word.
    decided_by : str
        Who made the decision, where that is not the solver asked for: a heuristic, a solver whose point it
        began with, an earlier decision.
    solver_answer : SolverAnswer, optional
        What the solver asked for found by itself; None where there was an answer without it.
    unsupported : str
        Why the solver could not take the program at all; a decision is then that of the quick rule which
        `wattsched.solve` has at hand.
    faults : list of str
        What was wrong with the solver's answer: a better decision that failed its check, or a bound that this
        decision disproves. None of it is used; the fault lies in the formulation or the solver.
    checked : bool
        The independent checker found the decision valid.
    prices : dict of str to float
        What one more unit of a capacity or budget would improve the linear relaxation by at most (never
        negative): its shadow prices.
    time_s : dict of str to float
        Seconds by phase.
    totals : dict of str to int or float
        What the decision uses, as the checker recomputes it; units are in the names, counts are whole.
    dropped : dict of str to str
        Jobs that wait because they have no option, and why: they fit nowhere, or their deadlines are past.
        The objective, the budgets and the bound are those of the others.
    decision : object, optional
        A decision of the problem.
    conflict : Conflict, optional
        Limits that contradict each other where there is no decision, if such a set was found in time.
    limits : dict of str to float
        Limits on other objectives that were kept besides those of the instance.
    stages : list of Result
        Of objectives in order, the results of those before this one, the first one first.
    tolerance : float, optional
        Share of its value by which each of these may be worse afterwards.
    """

    format: Literal["wattsched-result/2"] = "wattsched-result/2"
    instance: str
    digest: Digest
    problem: str = "sizing"
    formulation: str
    solver: str
    objective_name: str
    termination: TerminationReport
    sense: Literal["min", "max"]
    objective: Finite | None = None
    bound: Finite | None = None
    gap: Finite | None = None
    proven_gap: Finite | None
    gap_asked: Finite | None
    claimed: bool
    decided_by: str = ""
    solver_answer: SolverAnswer | None = None
    unsupported: str = ""
    faults: list[str] = []
    checked: bool = False
    prices: dict[str, Finite] = {}
    time_s: dict[str, Finite] = {}
    size: Size | None = None
    totals: dict[str, int | Finite] = {}
    certificate: Certificate | None = None
    dropped: dict[str, str] = {}
    decision: Any = None
    conflict: Conflict | None = None
    limits: dict[str, Finite] = {}
    stages: list[Result] = []
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @field_validator("decision", mode="before")
    @classmethod
    def _read(cls, decision: Any, others: ValidationInfo) -> Any:
        """Decision of a document as a model of the problem."""
        return _decision(decision, others)

    @field_validator("conflict")
    @classmethod
    def _read_members(cls, conflict: Conflict | None, others: ValidationInfo) -> Conflict | None:
        """Decisions of its members likewise."""
        if conflict is None:
            return None
        read = [
            one.model_copy(update={"decision": _decision(one.decision, others)}) for one in conflict.members
        ]
        return conflict.model_copy(update={"members": read})

    @property
    def absolute_gap(self) -> float | None:
        """``|objective - bound|``, in the unit of the objective; None without either.

        It says more than `gap` where an objective is a difference or a logarithm, which may be near 0.
        """
        return None if self.objective is None or self.bound is None else abs(self.objective - self.bound)

    @property
    def solved(self) -> bool:
        """True if there is a checked decision."""
        return self.decision is not None and self.checked

    def as_proven(self, gap: float = 1e-4) -> Result:
        """The result with the bound of its certificate alone, and with none where it has no certificate.

        `gap` is the relative gap at which the decision counts as optimal.
        """
        proven = None if self.certificate is None else self.certificate.bound
        optimal = self.proven_gap is not None and self.proven_gap <= gap
        ended = TerminationReport(reason="optimal" if optimal else "feasible")
        stated = {"bound": proven, "gap": self.proven_gap, "gap_asked": gap, "claimed": False}
        return self.model_copy(update={**stated, "termination": ended, "solver_answer": None})

    def to_frame(self) -> pd.DataFrame:
        """Decision as a table by job or task; of a job that runs several times, a row for every run.

        Raises
        ------
        ValueError
            If there is no decision.
        """
        import pandas as pd

        from wattsched.report.views import view

        if self.decision is None:
            raise ValueError(f"the result of '{self.instance}' holds no decision: {self.termination.detail}")
        # Whole numbers stay whole where some jobs have none.
        rows = pd.DataFrame(view(self.problem).rows(self.decision)).convert_dtypes()
        return rows.set_index(rows.columns[0])

    def prices_frame(self) -> pd.DataFrame:
        """Prices of capacities and budgets as a table."""
        import pandas as pd

        return pd.DataFrame({"price": self.prices}).rename_axis("row")

    def __repr__(self) -> str:
        """One line; pydantic's would be the whole file."""
        amount = "" if self.objective is None else f", {self.objective_name} {self.objective:.6g}"
        return f"<Result of {self.problem} '{self.instance}': {self.termination.reason}{amount}>"

    def __str__(self) -> str:
        """Summary as the command line prints it."""
        return self._printed().rstrip("\n")

    def _repr_html_(self) -> str:
        """Summary for notebooks."""
        return self._printed(html=True)

    def _printed(self, *, html: bool = False) -> str:
        from wattsched.report.summary import print_result
        from wattsched.report.terminal import recorded

        return recorded(lambda out: print_result(out, self), html=html)


def _decision(decision: Any, others: ValidationInfo) -> Any:
    """Decision as a model of the problem that a result's other fields name."""
    from wattsched.results.problems import problem

    if decision is None or isinstance(decision, BaseModel) or "problem" not in others.data:
        return decision
    try:
        return validated(problem(others.data["problem"]).decision, decision)
    except InputError as error:
        raise ValueError("; ".join(error.faults)) from None
