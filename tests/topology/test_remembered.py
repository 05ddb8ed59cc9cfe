"""What is remembered of an object is of that object, whatever became of others in its place."""

from __future__ import annotations

import sys
import weakref

from wattsched.topology.remembered import remembered


class Thing:
    """What a weak reference can point to."""

    def __init__(self, value: int) -> None:
        self.value = value


def test_each_object_is_looked_at_once_and_forgotten_with_it() -> None:
    seen: list[int] = []

    @remembered
    def value(thing: Thing) -> int:
        seen.append(thing.value)
        return thing.value

    things = [Thing(number) for number in range(5)]
    assert [value(thing) for thing in things * 2] == [*range(5), *range(5)]
    assert seen == [*range(5)]
    for number in range(200):  # in the place of the one before, as a rule
        assert value(Thing(number)) == number


def test_to_forget_runs_nothing_that_the_end_of_a_thread_could_interrupt() -> None:
    """What is raised in a callback is lost: the thread would go on, and what it found would stay."""

    @remembered
    def value(thing: Thing) -> int:
        return thing.value

    thing, called = Thing(1), list[str]()
    value(thing)
    held = weakref.ref(thing)
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del thing
    finally:
        sys.setprofile(None)
    assert held() is None
    assert called == []
