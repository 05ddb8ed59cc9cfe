"""The service as JSON lines on standard input and output, for a program that starts us as a child.

A request is a line, ``{"id": 1, "verb": "solve", "session": "s", "body": {"deadline_s": 1}}``, and so is its
answer, ``{"id": 1, "ok": {...}}`` or ``{"id": 1, "status": 422, "error": "...", "faults": [...]}``. What is
asked of one session is done in its order, but ``cancel``, which is done at once; of several sessions, at the
same time. ``watch`` begins in its turn, and answers with a line for every decision from then on. The end of
the input ends the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from wattsched.instances.errors import InputError, shown
from wattsched.instances.io import parse_json
from wattsched.serve.documents import json_bytes
from wattsched.serve.failures import failure_document
from wattsched.serve.service import Service

Verb = Callable[[Service, str, Any], Awaitable[Any]]

VERBS: dict[str, Verb] = {
    "create": lambda service, name, body: service.create(name, body),
    "describe": lambda service, name, _: service.describe(name),
    "now": lambda service, name, _: _parsed(service.now(name)),
    "drop": lambda service, name, _: service.drop(name),
    "update": lambda service, name, body: service.update(name, body),
    "upsert": lambda service, name, body: service.upsert(name, body),
    "remove": lambda service, name, body: service.remove(name, body),
    "jobs": lambda service, name, body: service.jobs(name, *_whole(body, first=0, most=1000)),
    "solve": lambda service, name, body: service.solve(name, body),
    "cancel": lambda service, name, _: service.cancel(name),
    "rounds": lambda service, name, body: service.rounds(name, *_whole(body, most=1000)),
    "round": lambda service, name, body: service.round(name, *_whole(body, number=None)),
    "apply": lambda service, name, body: service.apply(name, *_whole(body, number=None)),
    "instance": lambda service, name, body: _parsed(service.instance(name, *_whole(body, number=None))),
    "result": lambda service, name, body: _parsed(service.result(name, *_whole(body, number=None))),
    "report": lambda service, name, body: service.report(name, *_whole(body, most=100)),
}
"""What may be asked of a session; besides ``sessions`` and ``watch``."""


async def serve_lines(
    service: Service, lines: AsyncIterator[bytes | None], write: Callable[[bytes], None]
) -> None:
    """Answer lines until there are no more.

    Parameters
    ----------
    service : Service
        Is started and stopped here.
    lines : async iterator of bytes
        None for one that is too long.
    write : callable
        Takes an answer, a whole line.
    """
    await service.start()
    turns = defaultdict[Any, asyncio.Lock](asyncio.Lock)
    running: set[asyncio.Task[None]] = set()
    try:
        async for line in lines:
            if len(running) >= service.limits.queue:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(_answered(service, line, write, turns))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        service.end_streams()
        if running:
            await asyncio.wait(running)
        await service.stop()


async def _answered(
    service: Service, line: bytes | None, write: Callable[[bytes], None], turns: Mapping[Any, asyncio.Lock]
) -> None:
    number: Any = None
    try:
        if line is None:
            raise InputError([f"the line is longer than {service.limits.body_mb:g} MB"])
        asked = parse_json(line)
        if not isinstance(asked, Mapping):
            raise InputError([f"a request must be an object, got {shown(asked)}"])
        number = _id_of(asked)
        if strange := [name for name in asked if name not in ("id", "verb", "session", "body")]:
            told = "is not a known field of a line, which has id, verb, session and body"
            raise InputError([f"{name!s:.60}: {told}" for name in strange])
        turn = turns[str(asked.get("session"))]
        if asked.get("verb") == "watch":
            found = service.decisions(_name_of(asked), *_whole(asked.get("body"), after=None))
            async with turn:
                await anext(found)
            async for decision in found:
                if decision is not None:
                    _write(write, {"id": number, "decision": decision})
        at_once = asked.get("verb") in ("cancel", "watch")
        async with contextlib.nullcontext() if at_once else turn:
            _write(write, {"id": number, "ok": await _done(service, asked)})
    except Exception as error:
        _write(write, {"id": number, **failure_document(error)})


async def _done(service: Service, asked: Mapping[str, Any]) -> Any:
    verb = asked.get("verb")
    if verb == "sessions":
        return await service.sessions()
    if verb == "watch":
        return {}
    if not isinstance(verb, str) or verb not in VERBS:
        told = f"choose one of {', '.join(('sessions', *VERBS, 'watch'))}"
        raise InputError([f"verb: {shown(verb)} is not known, {told}"])
    return await VERBS[verb](service, _name_of(asked), asked.get("body"))


async def _parsed(text: Awaitable[str]) -> Any:
    return json.loads(await text)


def _id_of(asked: Mapping[str, Any]) -> Any:
    """What the answer is told apart by: as it was sent, so it is nothing that JSON would write otherwise."""
    told = asked.get("id")
    if isinstance(told, bool | dict | list) or (isinstance(told, float) and not math.isfinite(told)):
        raise InputError([f"id: must be text or a finite number, got {shown(told)}"])
    return told


def _name_of(asked: Mapping[str, Any]) -> str:
    name = asked.get("session")
    if not isinstance(name, str):
        raise InputError([f"session: must be a name, got {shown(name)}"])
    return name


def _whole(body: Any, **defaults: int | None) -> list[Any]:
    """Whole numbers of a request, by name; those without a default have to be there."""
    found = {} if body is None else body
    if not isinstance(found, Mapping):
        raise InputError([f"body: must be an object, got {shown(found)}"])
    faults = [f"body.{name!s:.60}: is not a known field" for name in found if name not in defaults]
    values = {name: found.get(name, default) for name, default in defaults.items()}
    for name, value in values.items():
        if value is None and name == "after":
            continue
        if type(value) is not int or not 0 <= value < 2**53:
            faults.append(f"body.{name}: must be a whole number, got {shown(value)}")
    if faults:
        raise InputError(faults)
    return list(values.values())


def _write(write: Callable[[bytes], None], answer: Mapping[str, Any]) -> None:
    write(json_bytes(answer) + b"\n")
