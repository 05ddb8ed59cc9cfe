"""Sessions of a journal for several clients: decisions, background rounds, and streams of them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from wattsched.instances.errors import InputError, shown, validated
from wattsched.report.wording import count
from wattsched.serve.description import SolveRequest
from wattsched.serve.documents import decision_document, session_document
from wattsched.serve.journal import Journal
from wattsched.serve.limits import Limits
from wattsched.serve.metrics import Metrics
from wattsched.serve.recorded import RecordedSession
from wattsched.serve.rounds import MissingRoundError, Round
from wattsched.serve.workers import BusyError, LateError, Workers

T = TypeVar("T")

_log = logging.getLogger("wattsched.serve")

_MARGIN_S = 0.02
"""Seconds of a deadline, at least, that are set aside to record a decision and to answer."""
_LATE, _LATE_S = 0.05, 0.1
"""Part of a deadline, and seconds, by which a decision may be late, as one of a `Session`."""
_HEARTBEAT_S = 15.0


class MissingError(Exception):
    """There is no such session or round."""


class ConflictError(Exception):
    """A request contradicts what is there."""


class Service:
    """Sessions of a journal, for several clients at the same time.

    Its methods are called in one event loop; what takes time is done in threads. The journal is not closed.
    """

    def __init__(self, journal: Journal, limits: Limits | None = None, *, shadow: bool = False) -> None:
        self.limits, self.shadow = limits or Limits(), shadow
        self.metrics = Metrics()
        self.stopping = False
        self.journal = journal
        self._workers = Workers(self.limits.workers, self.limits.queue)
        # By session: seconds between background rounds, what makes these, and what streams wait for.
        self._every_s: dict[str, float | None] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._beside_s: dict[str, float] = {}  # what a round took besides its decision, the last time
        self._streams = 0
        failing = "1 where the newest change could not be written"
        for name, about, value in (
            ("waiting", "Requests and rounds that wait", lambda: len(self._workers)),
            ("shed_rounds", "Background rounds given up", lambda: self._workers.shed),
            ("streams", "Open streams of decisions", lambda: self._streams),
            ("sessions", "Sessions", lambda: len(journal.sessions())),
            ("journal_bytes", "Bytes of the journal in use", journal.used_bytes),
            ("journal_quota_bytes", "Bytes that it may have", lambda: 1e6 * journal.quota_mb),
            ("journal_failing", failing, lambda: bool(journal.fault)),
        ):
            self.metrics.watch(f"wattsched_{name}", about, value)

    async def start(self) -> None:
        """Open the sessions that are there, and go on with their background rounds."""
        for name in self.journal.sessions():
            await self._workers.do(partial(self.journal.open, name))
            self._set_timer(name)

    def end_streams(self) -> None:
        """Take nothing new on, and let streams end."""
        self.stopping = True
        for news in self._news.values():
            news.set()

    async def stop(self) -> None:
        """Finish what was promised."""
        self.end_streams()
        for timer in self._timers.values():
            timer.cancel()
        await self._workers.close()

    def ready(self) -> bool:
        """True if requests are taken on."""
        return not self.stopping and len(self._workers) < self.limits.queue

    async def do(self, do: Callable[[], T], key: str | None = None) -> T:
        """Return what something short returns, done in a thread for a request; once begun, it is waited for.

        Of one key, one is done at a time.
        """
        until = asyncio.get_running_loop().time() + self.limits.deadline_s
        return await self._workers.do(do, key=key, until=until, wait_s=math.inf)

    async def create(self, name: str, document: Any) -> dict[str, Any]:
        """Make a session; one that is there already of the same document is left as it is."""

        def make() -> RecordedSession:
            if name in self.journal.sessions():
                if self.journal.document(name) != document:
                    raise ConflictError(f"there is a session '{name}' of another document")
                return self.journal.open(name)
            return self.journal.create(name, document)

        # A key of its own, which no session has: it does not wait for decisions.
        session = await self.do(make, key=f"{name}/")
        self._set_timer(name)
        return session_document(session, self._every_s.get(name))

    async def describe(self, name: str) -> dict[str, Any]:
        """A session as it is now."""
        session = self.session(name)
        return await self.do(partial(session_document, session, self._every_s.get(name)))

    async def drop(self, name: str, versions: str | None = None) -> dict[str, Any]:
        """Forget a session with all that it decided."""
        session = self.session(name)
        with session.known_as(versions):
            pass  # refused for another version
        self._every_s.pop(name, None)
        self._beside_s.pop(name, None)
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        session.cancel()
        await self.do(partial(self.journal.drop, name), key=f"{name}/")
        self._tell(name)
        return {"dropped": name}

    async def solve(self, name: str, document: Any = None, versions: str | None = None) -> dict[str, Any]:
        """Decide what every job does next: ``deadline_s``, ``gap``, ``prove``, and ``apply`` it or not.

        Before that add or change ``jobs``, and take out those in ``remove``, in the same request.
        """
        asked = validated(SolveRequest, {} if document is None else document)
        deadline_s = self._deadline_s(asked.deadline_s)
        if asked.apply:
            self.require_no_shadow()
        session = self.session(name)
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s

        def decide() -> dict[str, Any]:
            """Decide in a thread, in the time that is left for it."""
            begun_s = loop.time()
            left_s = until - begun_s
            left_s -= max(_MARGIN_S, min(self._beside_s.get(name, 0.0), left_s / 2))
            if left_s <= 0:
                raise LateError
            made = session.solve(**{**dict(asked), "deadline_s": left_s}, versions=versions)
            loop.call_soon_threadsafe(self._decided, name, made)
            document = {**decision_document(made), "applied": asked.apply and made.decision.solved}
            self._beside_s[name] = loop.time() - begun_s - made.decision.time_s.get("total", 0.0)
            return document

        # Where something is changed or applied, the answer says so, be it late.
        wait_s = math.inf if asked.apply or asked.jobs or asked.remove else _LATE * deadline_s + _LATE_S
        return await self._workers.do(decide, key=name, until=until, wait_s=wait_s)

    async def decisions(self, name: str, after: int | None = None) -> AsyncIterator[dict[str, Any] | None]:
        """Decisions from now on, or those after a round; None at first, and from time to time without any."""
        session = self.session(name)
        if self._streams >= self.limits.streams:
            raise BusyError(f"at most {count(self.limits.streams, 'stream')} may be open (--streams)")
        newest = session.last.number if session.last else 0
        # A number beyond the newest one was seen of an earlier session of that name.
        last = newest if after is None else after if after <= newest else 0
        self._streams += 1
        try:
            yield None
            while not self.stopping and self.journal.opened(name) is session:
                news = self._news.setdefault(name, asyncio.Event())
                if session.last is None or session.last.number <= last:
                    try:
                        await asyncio.wait_for(news.wait(), _HEARTBEAT_S)
                    except TimeoutError:  # a sign of life
                        yield None
                    continue
                try:
                    made = await self.do(partial(session.round_after, last))
                except MissingRoundError:  # the session was dropped in this moment
                    continue
                last = made.number
                yield await self.do(partial(decision_document, made))
        finally:
            self._streams -= 1

    def session(self, name: str) -> RecordedSession:
        """A session that is there."""
        if (session := self.journal.opened(name)) is None:
            raise MissingError(f"there is no session {name!r:.120}")
        return session

    def require_no_shadow(self) -> None:
        """Refuse to apply a decision in shadow mode."""
        if self.shadow:
            raise ConflictError("this is shadow mode: decisions are recorded, and none is applied")

    def _deadline_s(self, asked: Any) -> float:
        """Seconds in which a request is answered: those it asks for, at most the limit."""
        if asked is None:
            return self.limits.deadline_s
        if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked > 0:
            raise InputError([f"deadline_s: must be a positive number of seconds, got {shown(asked)}"])
        return min(float(asked), self.limits.deadline_s)

    def _decided(self, name: str, made: Round) -> None:
        """Count a decision, and tell those who listen; in the event loop."""
        result = made.decision.brief
        self.metrics.rounds.labels(result.termination.reason).inc()
        self.metrics.solve_s.observe(result.time_s.get("total", 0.0))
        self._tell(name)

    def _tell(self, name: str) -> None:
        """Wake those who wait for decisions of a session."""
        if (news := self._news.pop(name, None)) is not None:
            news.set()

    def _set_timer(self, name: str) -> None:
        """Begin the background rounds of a session that has some, once."""
        every_s = self._every_s[name] = self.journal.document(name).get("every_s")
        if every_s is not None and name not in self._timers:
            self._timers[name] = asyncio.create_task(self._decide_every(name, every_s))

    async def _decide_every(self, name: str, every_s: float) -> None:
        """Decide again and again; a round that is not begun before the next is due is not asked for twice."""
        session, loop = self.session(name), asyncio.get_running_loop()
        due, round_made = loop.time(), None

        def decide() -> None:
            made = session.solve(deadline_s=min(every_s, self.limits.deadline_s))
            loop.call_soon_threadsafe(self._decided, name, made)

        while True:
            due = max(due + every_s, loop.time())
            await asyncio.sleep(due - loop.time())
            if round_made is not None and not round_made.done():
                continue
            if round_made is not None and not round_made.cancelled() and (error := round_made.exception()):
                _log.error("a background round of '%s' failed: %s", name, error)
            round_made = self._workers.in_background(decide, name)
