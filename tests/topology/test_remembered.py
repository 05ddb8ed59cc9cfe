"""What is remembered of an object is of that object, whatever became of others in its place."""

from __future__ import annotations

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


def test_what_another_object_left_is_not_taken_for_it(monkeypatch) -> None:
    """A thread that is given up in the middle of forgetting leaves what it found."""
    monkeypatch.setattr("wattsched.topology.remembered._forget", lambda *_: None)

    @remembered
    def value(thing: Thing) -> int:
        return thing.value

    assert all(value(Thing(number)) == number for number in range(200))
    assert weakref.getweakrefcount(Thing(0)) == 0
