"""Sessions whose changes and decisions are in a journal, so that they outlive their process."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from wattsched.documents import instance_of, result_of
from wattsched.instances.errors import InputError, require
from wattsched.instances.io import document_text
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.job import Job, by_column
from wattsched.serve.journal import Action, Journal, Round
from wattsched.session import Session
from wattsched.session_columns import named, plain
from wattsched.session_decision import SessionDecision, decision_of

# After so many changes the session is written as a whole, so that opening it stays quick.
_MOST_CHANGES = 200
# Decisions that are at hand without reading them again.
_MOST_DECISIONS = 8


class RecordedSession:
    """A session in a journal: what it was told is on the disk before a method returns.

    Methods may be called from several threads.

    Attributes
    ----------
    name : str
    session : Session
        To be looked at; changes go through the methods here.
    """

    def __init__(self, journal: Journal, name: str, session: Session) -> None:
        self.journal, self.name, self.session = journal, name, session
        self._lock = RLock()
        self._decisions: OrderedDict[int, SessionDecision] = OrderedDict()

    @classmethod
    def create(cls, journal: Journal, name: str, document: Mapping[str, Any]) -> RecordedSession:
        """Begin a session.

        Parameters
        ----------
        document : mapping
            Arguments of `Session` by name, as JSON has them.

        Raises
        ------
        InputError, ValueError, TypeError
            For arguments that `Session` refuses, and a name that is there already.
        """
        require("name", name, (str,), "a name")
        require("document", document, (Mapping,), "a mapping")
        if not name:
            raise InputError(["name: must not be empty"])
        known = {"cluster", "objective", "capacity", "round_s", "change_cost", "tables", "profiles"}
        known |= {"formulation", "solver"}
        faults = [f"'{field}' is no field of a session" for field in document if field not in known]
        faults += [] if "cluster" in document else ["cluster: is missing"]
        if faults:
            raise InputError(faults)
        made = cls(journal, name, Session(**plain(document)))
        with journal.transaction():
            if name in journal.sessions():
                raise InputError([f"session '{name}' is there already"])
            journal.store(name, made.session.document())
        return made

    @classmethod
    def open(cls, journal: Journal, name: str) -> RecordedSession:
        """Go on with a session as it was after the last change that was acknowledged.

        Raises
        ------
        InputError
            If there is none of that name.
        """
        document = journal.document(name)
        if document is None:
            raise InputError([f"there is no session '{name}'"])
        found = cls(journal, name, Session.of_document(document))
        for kind, content in journal.changes(name):
            found._do(kind, content)
        solved = [one.number for one in journal.rounds(name) if one.summary["objective"] is not None]
        if solved and (last := journal.round(name, solved[-1])) is not None:
            found.session.begin_from(result_of(last[1]))
        return found

    # -- changes --------------------------------------------------------------------------------------

    def upsert(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Add jobs, or change fields of those that are there; all of it or, where it has a fault, nothing.

        Parameters
        ----------
        jobs : sequence of mappings
            As files have jobs; of known ones only ``name`` and what changes.

        Raises
        ------
        InputError
            With every fault.
        """
        self._change("upsert", plain(list(jobs)))

    def remove(self, ids: Sequence[str]) -> None:
        """Take jobs out; an InputError for those that are not there."""
        self._change("remove", named("ids", ids))

    def update(self, **changes: Any) -> None:
        """Change the round as `Session.update` does."""
        self._change("update", plain(changes))

    def apply(self, number: int) -> None:
        """Take the decision of a round for what runs now.

        Raises
        ------
        InputError
            If the round is not kept, or has no decision.
        """
        decision = self.decision(number)
        if not decision.solved:
            raise InputError([f"round {number} has no decision"])
        with self._lock, self.journal.transaction():
            self._change("hold", decision.assignments.document())
            self.journal.mark_applied(self.name, number)

    def _change(self, kind: str, content: Any) -> None:
        """Do something and write it down; where one of the two fails, the session is as it was."""
        with self._lock:
            before = self.session.state
            try:
                self._do(kind, content)
                self._write_down(kind, content)
            except BaseException:
                self.session.restore(before)
                raise

    def _write_down(self, kind: str, content: Any) -> None:
        with self._together():
            try:
                self.journal.append(self.name, kind, content)
            except ValueError as error:
                raise InputError([f"{kind}: {error}"]) from None
            if self.journal.count_changes(self.name) >= _MOST_CHANGES:
                self.journal.store(self.name, self.session.document())

    @contextmanager
    def _together(self) -> Iterator[None]:
        """The transaction that there is, or one for this."""
        if self.journal.writing:
            yield
        else:
            with self.journal.transaction():
                yield

    def _do(self, kind: str, content: Any) -> None:
        match kind:
            case "upsert":
                self._upsert(content)
            case "remove":
                self.session.remove(content)
            case "update":
                self.session.update(**content)
            case "hold":
                held: Any = Decision.model_validate({"jobs": content, "waiting": []}).jobs
                self.session.hold(held)
            case _:
                raise InputError([f"'{kind}' is no change of a session that this version knows"])

    def _upsert(self, jobs: list[Any]) -> None:
        """Jobs with equal fields go together; the caller sees to it that it is all or nothing."""
        faults, alike = list[str](), dict[tuple[str, ...], list[dict[str, Any]]]()
        for i, job in enumerate(jobs):
            if not isinstance(job, dict) or not isinstance(job.get("name"), str):
                faults.append(f"jobs[{i}]: must be an object with a name")
                continue
            faults += [
                f"job '{job['name']}': '{field}' is no field of a job"
                for field in job
                if field not in Job.model_fields
            ]
            alike.setdefault(tuple(sorted(job)), []).append(job)
        if faults:
            raise InputError(faults)
        named("ids", [job["name"] for job in jobs])
        for fields, some in alike.items():
            columns = {field: [job[field] for job in some] for field in fields}
            if "options" in columns:
                columns["options"] = [_options_of(job) for job in some]
            names, held = columns.pop("name"), columns.pop("current", None)
            self.session.upsert(names, held=held, **columns)

    # -- decisions ------------------------------------------------------------------------------------

    def solve(
        self, *, deadline_s: float | None = None, gap: float = 1e-4, prove: float | None = 0.0
    ) -> tuple[Round, SessionDecision]:
        """Decide what every job does next, and keep the round.

        Parameters and errors are those of `Session.solve`.
        """
        decision = self.session.solve(deadline_s=deadline_s, gap=gap, prove=prove)
        result = decision.result
        summary = {
            "reason": result.termination.reason,
            "objective": result.objective,
            "bound": result.bound,
            "gap": result.gap,
            "running": len(decision.assignments),
            "waiting": len(decision.ids) - len(decision.assignments) if decision.solved else None,
            "power_w": result.totals.get("power_w"),
            "restarts": result.totals.get("restarts"),
            "seconds": result.time_s["total"],
        }
        documents = (json.loads(document_text(model)) for model in (decision.instance, result))
        with self._lock:
            made = self.journal.add_round(self.name, summary, *documents)
            self._decisions[made.number] = decision
            while len(self._decisions) > _MOST_DECISIONS:
                self._decisions.popitem(last=False)
        return made, decision

    def decision(self, number: int) -> SessionDecision:
        """Decision of a round; an InputError where that is not kept."""
        with self._lock:
            if number in self._decisions:
                return self._decisions[number]
        found = self.journal.round(self.name, number)
        if found is None:
            raise InputError([f"round {number} of session '{self.name}' is not kept"])
        return decision_of(instance_of(found[0]), result_of(found[1]))

    # -- actions --------------------------------------------------------------------------------------

    def begin_action(self, key: str, document: Mapping[str, Any]) -> bool:
        """Keep that something is about to be done; False where that was begun before.

        Who is killed in between finds it among the `actions` that are unfinished.
        """
        return self.journal.begin_action(self.name, key, document)

    def end_action(self, key: str, outcome: Mapping[str, Any]) -> bool:
        """Keep how it ended; False where it was not begun, or has ended before."""
        return self.journal.end_action(self.name, key, outcome)

    def actions(self, *, unfinished: bool = False) -> list[Action]:
        """What was begun."""
        return self.journal.actions(self.name, unfinished=unfinished)


def _options_of(job: Mapping[str, Any]) -> Any:
    """Options of a job: the name of a table, or one by column, as which rows are read."""
    try:
        return by_column(job["options"])
    except ValueError as error:
        raise InputError([f"job '{job['name']}': options: {error}"]) from None
