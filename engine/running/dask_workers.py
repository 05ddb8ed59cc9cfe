"""Runs that the workers of a Dask cluster do, as bytes between versions that are the same."""

from __future__ import annotations

import pickle
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from wattsched.environment.version import __version__
from wattsched.instances.errors import NoticeWarning
from wattsched.running.executors import ClusterError, Kept

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")

LIBRARIES = ("highspy", "ortools", "pyomo", "numpy", "scipy", "distributed")
"""Libraries of which client and workers need the same versions, or their results would differ."""


class DaskExecutor:
    """Has the workers of a Dask cluster do the tasks, all that there are and all that come later.

    A task whose worker is lost is done again by another one. Functions and arguments travel as bytes: the
    scheduler needs no wattsched, and a worker without it can say so.
    """

    def __init__(self, client: Client) -> None:
        self._client, self._address = client, client.scheduler.address

    def shared(self, value: T) -> T:
        """Future of the value: a task of its own, so that it is not lost with a worker either."""
        future: T = self.submitted(bytes, _packed(value))
        return future

    def completed(
        self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, R]]:
        """Yield number and outcome of each task as in `Executor.completed`, the first to end first."""
        from distributed import as_completed

        done = _by_value("do_packed")
        self.tell_without_workers()
        common = _packed(versions()), _packed(function)
        number_of = {
            self.submitted(done, *common, *map(_packed, task)): number for number, task in enumerate(tasks)
        }
        with self.explained():
            for future in as_completed(list(number_of), loop=self._client.loop):
                number, outcome = number_of[future], future.result()
                # Held, it would be done again if its worker were lost.
                del number_of[future], future
                yield number, outcome

    def workers(self) -> int:
        """Threads of all workers that there are, or workers that a cluster has asked for, if these are more.

        Those of a batch system come when they come, and rounds are divided before.
        """
        info = self._client.scheduler_info(n_workers=-1)["workers"]
        asked = len(getattr(self._client.cluster, "plan", ()))
        return max(1, asked, sum(int(worker["nthreads"]) for worker in info.values()))

    def kept(self, values: Iterable[Any]) -> Kept:
        """Keep values on workers as in `Executor.kept`; the scheduler can make lost ones again."""
        self.tell_without_workers()
        return _OnWorkers(self, values)

    def submitted(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Future of a call; arguments may be futures."""
        import dask

        # Dask warns of large arguments, which are known to be large.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self._client.submit(function, *arguments, pure=False)

    def tell_without_workers(self) -> None:
        """Warn that a worker is waited for, if there is none."""
        if not self._client.scheduler_info(n_workers=1)["workers"]:
            message = f"the Dask cluster at {self._address} has no worker yet; waiting for one"
            warnings.warn(message, NoticeWarning, stacklevel=3)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say in a sentence what Dask raises about the cluster."""
        from distributed import KilledWorker

        try:
            yield
        except KilledWorker as error:
            often, last = error.allowed_failures + 1, error.last_worker.address
            message = (
                f"a run lost its worker {often} times, the last time at {last}; did it run out of memory?"
            )
            raise ClusterError(message) from None
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("wattsched"):
                raise
            raise ClusterError("a Dask worker has no wattsched, or an older one; install it there") from None
        except CancelledError:
            message = f"the Dask scheduler at {self._address} is gone"
            raise ClusterError(message) from None


class _OnWorkers:
    """Values that live on the workers of a Dask cluster.

    Each is the outcome of a task whose argument are its bytes, and every call on it a task that depends on
    this one. So Dask does again what is lost with a worker, the value and the call, and nothing else.
    """

    def __init__(self, executor: DaskExecutor, values: Iterable[Any]) -> None:
        self._executor, self._common = executor, _packed(versions())
        unpacked, same = _by_value("do_packed"), _packed(_itself)
        self._values = [executor.submitted(unpacked, self._common, same, _packed(value)) for value in values]

    def each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Call a function on each value where it is kept, as `Kept.each`."""
        called = _by_value("call_packed")
        packed = (self._common, *map(_packed, (function, *arguments)))
        futures = [self._executor.submitted(called, value, *packed) for value in self._values]
        with self._executor.explained():
            return [pickle.loads(future.result()) for future in futures]


def _by_value(name: str) -> Callable[..., Any]:
    """One of the functions below, which a worker imports when it calls it, and a scheduler never."""

    def called(*arguments: Any) -> Any:
        from importlib import import_module

        return getattr(import_module("wattsched.running.dask_workers"), name)(*arguments)

    return called


def _itself(value: T) -> T:
    return value


@cache
def versions() -> Mapping[str, str]:
    """Versions of what results depend on."""
    found = {"Python": platform.python_version().rpartition(".")[0], "wattsched": __version__}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "none"
    return found


def _packed(value: Any) -> Any:
    """Bytes of a value; a future stays, of which they will be."""
    import cloudpickle
    from distributed import Future

    return value if isinstance(value, Future) else cloudpickle.dumps(value)


def call_packed(value: Any, *packed: bytes) -> bytes:
    """Do a task, packed as for `do_packed`, on a worker that has its first argument; the outcome as bytes."""
    outcome: bytes = _packed(do_packed(*packed, kept=(value,)))
    return outcome


def do_packed(*packed: bytes, kept: tuple[Any, ...] = ()) -> Any:
    """Do a task on a worker, if it can do what the client would: versions, function and arguments.

    Raises
    ------
    ClusterError
        If the worker has another version of anything, or several threads.
    """
    from distributed import get_worker

    (needed, *call), worker = packed, get_worker()
    for name, wanted in pickle.loads(needed).items():
        if (found := versions().get(name)) != wanted:
            message = f"the Dask worker at {worker.address} has {name} {found}, and the client {wanted}"
            raise ClusterError(f"{message}; install the same versions on both")
    if worker.state.nthreads > 1:
        message = f"the Dask worker at {worker.address} has {worker.state.nthreads} threads, whose runs would"
        raise ClusterError(f"{message} hold each other up; start workers of one thread (--nthreads 1)")
    function, *arguments = map(pickle.loads, call)
    with warnings.catch_warnings():
        # The client has said what is to be said of its inputs.
        warnings.simplefilter("ignore")
        return function(*kept, *arguments)
