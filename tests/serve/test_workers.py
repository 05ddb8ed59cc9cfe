"""Which work is begun while other work is under way."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from wattsched.serve import workers
from wattsched.serve.workers import Workers

PATIENCE_S = 30.0
"""Long enough on any machine."""


def test_what_has_a_key_is_done_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_ALONE_S", 1e6)
    done: list[str] = []

    async def work() -> None:
        some, going_on = Workers(4, 10), Event()

        def first() -> None:
            assert going_on.wait(PATIENCE_S)
            done.append("first")

        keyed = [some.do(first, key="a"), some.do(lambda: done.append("second"), key="b")]
        tasks = [asyncio.create_task(one) for one in keyed]
        await asyncio.sleep(0)
        in_background = some.in_background(lambda: done.append("third"), "c")
        await some.do(lambda: done.append("without a key"))
        assert done == ["without a key"]
        going_on.set()
        await asyncio.gather(*tasks, in_background)
        await some.close()

    asyncio.run(work())
    assert done == ["without a key", "first", "second", "third"]


def test_what_takes_long_lets_others_in() -> None:
    async def work() -> list[bool]:
        some, going_on = Workers(2, 10), Event()
        first = some.do(lambda: going_on.wait(PATIENCE_S), key="a")
        found = await asyncio.gather(first, some.do(lambda: bool(going_on.set()), key="b"))
        await some.close()
        return found

    assert asyncio.run(work()) == [True, False]
