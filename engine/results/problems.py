"""The problems by name: all that the engine, the command line and comparisons know of each.

Adding a formulation or a heuristic is one file in its room and one line here; adding a problem is one value.
Objectives are stated in their problem's rooms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from wattsched.environment.extras import late
from wattsched.formulations import external, own
from wattsched.formulations.counts import Cases
from wattsched.formulations.infeasibility import InfeasibilityProof, ShortRow, describe_limit, is_limit
from wattsched.formulations.model import Model
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import MOST_FAULTS, FormerNameWarning, shown, unknown_objective
from wattsched.reading.inputs import meant
from wattsched.verification.orders import with_objectives
from wattsched.verification.verdict import DecisionT, InstanceT, Rules

if TYPE_CHECKING:
    from wattsched.formulations.sizing.uncertain_round import UncertainRound

DataT = TypeVar("DataT")

Formulation = Callable[[DataT, str, Timer], Model[DecisionT]]
Heuristic = Callable[[DataT, str, Timer], DecisionT | None]


LIMITED = "budgets.objectives"
"""Field of limits on objectives."""

_MOST_RUNS = 20_000
"""Runs of shifting, jobs by options and slots, up to which all of them are tried where columns fail."""


@dataclass(frozen=True)
class Problem(Rules[InstanceT, DecisionT], Generic[InstanceT, DataT, DecisionT]):
    """Definition of a problem: how it is formulated, solved and checked; see also `Rules`.

    Attributes
    ----------
    expand : callable
        Instance to its data in arrays, which formulations and heuristics share.
    formulations : mapping of str to callable
        Name to a builder of the model from data, objective and timer; the default comes first.
    usual : callable, optional
        Instance to the formulation that it is decided by where none is named; else the default one.
    size : callable
        Instance to how many jobs or tasks are to be decided.
    all_decisions : callable
        Data to the name of the formulation of all decisions, where the default one may hold only some of them
        and the data are small enough; else None.
    safety_net : str
        The heuristic, or the solver of the default formulation's program, that has a decision in hand before
        anything else is tried.
    heuristics : mapping of str to callable
        Quick rules from data, objective and timer to a decision or None, published ones among them.
    faults : callable
        Instance to what its fields mean together and cannot, one line each; see `faults_in`.
    strangers : callable
        Instance and decision to what shows at once that the decision is one of another instance.
    contradictions : callable
        Instance to the faults that a file is refused for while it is read; a copy with other fields may have
        such.
    lacking : callable
        Instance to a fault for each field that its objective needs and it does not have.
    left_out : callable
        Data to the jobs that the decision leaves out, and why.
    diagnose : callable
        Data to sentences that say why there is no decision, where a quick look can tell; else none.
    listed : callable
        Decision, or None, to the same with records as a list where they are few.
    describe : callable
        Data and a row that is short to a sentence, or None where the row stands for no limit.
    may_grow : callable, optional
        Whether a row, by its name, is a limit that could be another; see `solvers.infeasibility.short_rows`.
    in_place : callable
        Data to the same where no job is to move whose moves cost something that options do not say; None
        where there is none.
    family : callable
        Data and objective to the family of programs that they are; None where they are one.
    refute : callable
        Data and certificate prices to the proof that there is no decision, or None where they prove none.
    former : mapping of str to str
        Former names of objectives, which are still read, and today's.
    branch : callable, optional
        Data, objective, decision, gap, timer, columns of the model, known prices and the most work to a
        certificate tree that proves the decision, or a better one, within the gap; None for instances that
        are too large.
    adapt : callable, optional
        A user's formulation, as `formulations.external` finds it, to a builder.
    """

    expand: Callable[[InstanceT], DataT]
    formulations: Mapping[str, Formulation[DataT, DecisionT]]
    usual: Callable[[Any], str] | None = None
    size: Callable[[Any], int] = lambda instance: len(instance.jobs)
    all_decisions: Callable[[DataT], str | None] = lambda data: None
    safety_net: str = "greedy"
    heuristics: Mapping[str, Heuristic[DataT, DecisionT]] = field(default_factory=dict)
    faults: Callable[[InstanceT], list[str]] = lambda instance: []
    strangers: Callable[[InstanceT, DecisionT], list[str]] = lambda instance, decision: []
    contradictions: Callable[[InstanceT], Iterable[str]] = lambda instance: ()
    lacking: Callable[[InstanceT], list[str]] = lambda instance: []
    left_out: Callable[[DataT], Mapping[str, str]] = lambda data: {}
    diagnose: Callable[[DataT], list[str]] = lambda data: []
    listed: Callable[[DecisionT | None], DecisionT | None] = lambda decision: decision
    describe: Callable[[DataT, ShortRow], str | None] = describe_limit
    may_grow: Callable[[str], bool] | None = is_limit
    refute: Callable[[DataT, Mapping[str, float]], InfeasibilityProof | None] = lambda data, prices: None
    in_place: Callable[[DataT], DataT | None] = lambda data: None
    family: Callable[[DataT, str], UncertainRound | None] = lambda data, objective: None
    former: Mapping[str, str] = field(default_factory=dict)
    branch: Callable[..., Cases[DecisionT] | None] | None = None
    adapt: Callable[[external.External], Formulation[DataT, DecisionT]] | None = None

    @property
    def default(self) -> str:
        """Name of the default formulation."""
        return next(iter(self.formulations))

    def formulation_of(self, instance: InstanceT, name: str | None) -> str:
        """Name of the formulation that decides an instance, where that of `name` is asked for, or any."""
        return name or (self.default if self.usual is None else self.usual(instance))

    def formulation(self, name: str) -> Formulation[DataT, DecisionT]:
        """Builder of a formulation.

        Parameters
        ----------
        name : str
            One of `formulations`; with `adapt` also an entry point of the group `external.GROUP`, or
            ``path/to/file.py:NAME``, which executes that file.

        Raises
        ------
        ValueError
            If there is none of that name.
        wattsched.InputError
            If a user's formulation cannot be loaded.
        """
        if name in self.formulations:
            return self.formulations[name]
        users = None if self.adapt is None else external.find(name)
        if users is None or self.adapt is None:
            known = self.formulation_names()
            near = meant(name, known)
            message = f"unknown formulation '{name}' of problem '{self.name}'{near}"
            raise ValueError(f"{message}; known: {', '.join(known)}")
        return self.adapt(users)

    def formulation_names(self) -> list[str]:
        """Names that `formulation` takes."""
        users = [] if self.adapt is None else [*external.installed(), "FILE.py:NAME"]
        return [*self.formulations, *users]

    def rule(self, name: str) -> Heuristic[Any, DecisionT] | None:
        """Heuristic of a name, or of a user's function of an instance, ``FILE.py:NAME``; else None.

        Raises
        ------
        wattsched.InputError
            If a user's function cannot be loaded.
        """
        if name in self.heuristics or external.source_of(name) is None:
            return self.heuristics.get(name)
        users = external.find(name)
        if users is None or not own.takes_instance(users):
            return None
        return lambda data, objective, timer: own.rule(users, self.decision, data.instance)

    def objective(self, name: str) -> str:
        """Name of an objective as it is called today; a warning tells of one that was called otherwise.

        Raises
        ------
        ValueError
            For an unknown one; it lists the known ones.
        """
        if name in self.former:
            warnings.warn(f"the objective '{name}' is called '{self.former[name]}' now", FormerNameWarning, 2)
            return self.former[name]
        if name not in self.objectives:
            message = f"unknown objective '{name}' of problem '{self.name}'{meant(name, self.objectives)}"
            raise ValueError(f"{message}; known: {', '.join(self.objectives)}")
        return name

    def faults_in(self, instance: InstanceT, *, made: bool = False) -> list[str]:
        """Faults of an instance, its objective among them; of one `made` in Python also contradictions."""
        own = list(islice(self.contradictions(instance), MOST_FAULTS)) if made else []
        own = own or self.faults(instance)
        objective: str = dict(instance)["objective"]  # the fields of a model, by name
        for name in getattr(dict(instance).get("budgets"), "objectives", {}):
            own = [*unknown_objective(name, self.objectives, LIMITED), *own]
        return own if objective in self.former else [*unknown_objective(objective, self.objectives), *own]


def _sizing() -> Problem[Any, Any, Any]:
    """Definition of `sizing`."""
    from wattsched.formulations.sizing import algebra
    from wattsched.formulations.sizing.left_out import decided_jobs, describe, diagnose
    from wattsched.formulations.sizing.objectives import OBJECTIVES
    from wattsched.instances.sizing.decision import Decision
    from wattsched.instances.sizing.instance import Instance, lacking
    from wattsched.instances.sizing.validity import faults_of, strangers
    from wattsched.verification.sizing.bound import Prover
    from wattsched.verification.sizing.checker import check
    from wattsched.verification.sizing.limits import limits_of

    senses = {objective.name: objective.sense for objective in OBJECTIVES.values()}
    return Problem(
        name="sizing",
        instance=Instance,
        decision=Decision,
        objectives=senses,
        expand=decided_jobs,
        formulations={
            "mckp": late("formulations.sizing.mckp:build"),
            "assignment": late("formulations.sizing.assignment:build"),
            "intervals": late("formulations.sizing.intervals:build"),
        },
        check=check,
        prover=Prover,
        limits=limits_of,
        limited=lambda instance, limits: with_objectives(instance, limits, senses),
        unlike=lambda instance, decisions, differ: instance.model_copy(
            update={"unlike": [*instance.unlike, *decisions], "differ": differ}
        ),
        sharded_prover=late("verification.sizing.shards:ShardedProver"),
        faults=faults_of,
        strangers=strangers,
        contradictions=Instance.contradictions,
        lacking=lacking,
        diagnose=diagnose,
        left_out=lambda known: known.left_out,
        listed=lambda decision: None if decision is None else decision.listed(),
        describe=describe,
        may_grow=None,
        in_place=late("formulations.sizing.rooms:in_place"),
        family=late("formulations.sizing.uncertain_round:family_of"),
        former={"completion": "total-completion", "flow": "work-value"},
        adapt=algebra.adapt,
    )


def _shifting() -> Problem[Any, Any, Any]:
    """Definition of `shifting`."""
    from wattsched.formulations.shifting.data import Horizon
    from wattsched.formulations.shifting.scenarios import data_of, diagnose, refute
    from wattsched.instances.shifting.decision import ShiftingDecision
    from wattsched.instances.shifting.instance import OBJECTIVES, ShiftingInstance, faults_of
    from wattsched.verification.shifting.limits import limits_of
    from wattsched.verification.shifting.scenarios import check, prover_of

    return Problem(
        name="shifting",
        instance=ShiftingInstance,
        decision=ShiftingDecision,
        objectives=OBJECTIVES,
        expand=data_of,
        formulations={
            "schedules": late("formulations.shifting.schedules:build"),
            "time-indexed": late("formulations.shifting.time_indexed:build"),
        },
        usual=lambda instance: "schedules" if instance.scenarios is None else "time-indexed",
        all_decisions=lambda data: (
            "time-indexed" if isinstance(data, Horizon) and data.n_runs <= _MOST_RUNS else None
        ),
        check=check,
        prover=prover_of,
        limits=limits_of,
        limited=late("verification.shifting.limits:limited"),
        heuristics={
            "greedy": late("formulations.shifting.heuristics:greedy"),
            "carbon-blind": late("formulations.shifting.heuristics:carbon_blind"),
        },
        faults=faults_of,
        diagnose=diagnose,
        refute=refute,
        former={"completion": "mean-completion"},
        branch=late("formulations.shifting.branching:branch"),
        adapt=own.adapter(ShiftingDecision),
    )


def _sharing() -> Problem[Any, Any, Any]:
    """Definition of `sharing`."""
    from wattsched.formulations.sharing.data import patterns_of
    from wattsched.instances.sharing.decision import SharingDecision
    from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance, faults_of
    from wattsched.verification.sharing.bound import Prover
    from wattsched.verification.sharing.checker import check
    from wattsched.verification.sharing.limits import limits_of

    return Problem(
        name="sharing",
        instance=SharingInstance,
        decision=SharingDecision,
        objectives=OBJECTIVES,
        expand=patterns_of,
        formulations={
            "patterns": late("formulations.sharing.patterns:build"),
            "matching": late("formulations.sharing.matching:build"),
        },
        limited=lambda instance, limits: with_objectives(instance, limits, OBJECTIVES),
        safety_net="eaco",
        check=check,
        prover=Prover,
        limits=limits_of,
        heuristics={
            "eaco": late("formulations.sharing.heuristics:eaco"),
            "fifo": late("formulations.sharing.heuristics:fifo"),
            "fifo-packed": late("formulations.sharing.heuristics:fifo_packed"),
            "gandiva": late("formulations.sharing.heuristics:gandiva"),
        },
        faults=faults_of,
        adapt=own.adapter(SharingDecision),
    )


def _placement() -> Problem[Any, Any, Any]:
    """Definition of `placement`."""
    from wattsched.formulations.placement.data import window_of
    from wattsched.formulations.placement.heuristics import HEURISTICS
    from wattsched.instances.placement.decision import PlacementDecision
    from wattsched.instances.placement.instance import OBJECTIVES, PlacementInstance
    from wattsched.verification.placement.bound import Prover
    from wattsched.verification.placement.checker import check

    return Problem(
        name="placement",
        instance=PlacementInstance,
        decision=PlacementDecision,
        objectives=OBJECTIVES,
        size=lambda instance: len(instance.tasks),
        expand=window_of,
        formulations={
            "patterns": late("formulations.placement.patterns:build"),
            "assignment": late("formulations.placement.assignment:build"),
        },
        check=check,
        prover=Prover,
        limited=lambda instance, limits: with_objectives(instance, limits, OBJECTIVES),
        heuristics=HEURISTICS,
        adapt=own.adapter(PlacementDecision),
    )


PROBLEMS: dict[str, Callable[[], Problem[Any, Any, Any]]] = {
    "sizing": _sizing,
    "shifting": _shifting,
    "sharing": _sharing,
    "placement": _placement,
}
"""Imported when they are asked for, so that a command loads one problem and not all."""


def problem(name: object) -> Problem[Any, Any, Any]:
    """Problem of a name; a ValueError if there is none."""
    if not isinstance(name, str) or name not in PROBLEMS:
        raise ValueError(f"problem: must be one of {', '.join(PROBLEMS)}, got {shown(name)}")
    return _made(name)


@cache
def _made(name: str) -> Problem[Any, Any, Any]:
    return PROBLEMS[name]()
