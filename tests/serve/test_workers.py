"""Which work is begun while other work is under way."""

from __future__ import annotations

import asyncio
import math
from threading import Event

import pytest

from wattsched.serve import workers
from wattsched.serve.workers import LateError, Workers

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


def test_only_what_was_begun_may_be_late() -> None:
    async def work() -> None:
        some, going_on = Workers(1, 10), Event()
        asyncio.get_running_loop().call_later(0.2, going_on.set)

        async def late(wait_s: float) -> bool:
            until = asyncio.get_running_loop().time() + 0.01
            return await some.do(lambda: going_on.wait(PATIENCE_S), until=until, wait_s=wait_s)

        begun, waiting = asyncio.create_task(late(math.inf)), asyncio.create_task(late(math.inf))
        with pytest.raises(LateError, match="no time left for this; nothing of it was done"):
            await waiting
        assert not going_on.is_set()
        assert await begun
        going_on.clear()
        asyncio.get_running_loop().call_later(0.2, going_on.set)
        with pytest.raises(LateError, match="not ready in time"):
            await late(0.0)
        await some.close()

    asyncio.run(work())
