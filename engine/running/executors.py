"""Executors of many runs: in this process, one after the other, or on the workers of a Dask cluster.

Code that has runs to do hands them to an `Executor`, and does not know which of the two it is. So does code
with shards of something large, which stay where they are while functions are called on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
R = TypeVar("R")


class ClusterError(ValueError):
    """A Dask cluster that cannot be used, or cannot be used any more; the message is one sentence."""


class Kept(Protocol):
    """Values that stay where functions are called on them."""

    def each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Call the function with each value and the arguments; outcomes in the order of the values.

        Raises
        ------
        ClusterError
            As `Executor.completed`.
        """


@runtime_checkable
class Executor(Protocol):
    """Does tasks, all of them calls of one function."""

    def shared(self, value: T) -> T:
        """Give what stands for a value among the arguments of several tasks, so that it travels once."""

    def completed(
        self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, R]]:
        """Call the function with the arguments of each task; number and outcome as they come in."""

    def workers(self) -> int:
        """Return the number of tasks that are done at once now, at least 1."""

    def kept(self, values: Iterable[Any]) -> Kept:
        """Hand values out, on which functions are to be called again and again."""


class SerialExecutor:
    """Does each task in this process, when its outcome is asked for."""

    def shared(self, value: T) -> T:
        """Value itself."""
        return value

    def completed(
        self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, R]]:
        """Yield number and outcome of each task as `Executor.completed`, in the order of the tasks."""
        return ((number, function(*task)) for number, task in enumerate(tasks))

    def workers(self) -> int:
        """One: this process."""
        return 1

    def kept(self, values: Iterable[Any]) -> Kept:
        """Keep values as `Executor.kept`; they stay in this process."""
        return _Here(list(values))


class _Here:
    """Values in this process."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Call a function on each value in this process, as `Kept.each`."""
        return [function(value, *arguments) for value in self._values]


def in_order(completed: Iterable[tuple[int, R]]) -> Iterator[R]:
    """Outcomes of tasks in the order of their numbers, each as soon as all before it are there."""
    early: dict[int, R] = {}
    due = 0
    for number, outcome in completed:
        early[number] = outcome
        while due in early:
            yield early.pop(due)
            due += 1
