"""Where many runs are done: in this process, one after the other, or by the workers of a Dask cluster.

Who has runs to do hands them to an `Executor`, and does not know which of the two it is. So does who has
shards of something large, which stay where they are while functions are called on them.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from wattsched.extras import missing
from wattsched.instances.errors import NoticeWarning
from wattsched.interrupts import later_interrupts
from wattsched.version import __version__

if TYPE_CHECKING:
    from distributed import Client, LocalCluster
    from distributed.deploy import Cluster

T = TypeVar("T")
R = TypeVar("R")

LOCAL = "local"
LOOPBACK = "127.0.0.1"
MOST_PROCESSES = 256
ANSWER_S = 5.0
"""In which a scheduler answers, if there is one."""
GRACE_S = 1.0
"""In which a worker of a local cluster ends by itself; one that is busy does not."""
TRIM = "MALLOC_TRIM_THRESHOLD_"
"""By which Dask has workers return memory at once; passes over arrays take twice as long then."""
LIBRARIES = ("highspy", "ortools", "pyomo", "numpy", "scipy", "distributed")
"""Of which client and workers need the same versions, or their results would not be the same."""
_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


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
        """Call the function with the arguments of each task; number and outcome, as they come in.

        Raises
        ------
        ClusterError
            If the tasks cannot be done where they should be; what the function raises is raised, too.
        """

    def workers(self) -> int:
        """How many tasks are done at once now, at least 1."""

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
        """As `Executor.completed`, in the order of the tasks."""
        return ((number, function(*task)) for number, task in enumerate(tasks))

    def workers(self) -> int:
        """One: this process."""
        return 1

    def kept(self, values: Iterable[Any]) -> Kept:
        """As `Executor.kept`; they stay here."""
        return _Here(list(values))


class _Here:
    """Values in this process."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """As `Kept.each`."""
        return [function(value, *arguments) for value in self._values]


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
        """As `Executor.completed`, in the order in which they end."""
        from distributed import as_completed

        def done(*packed: bytes) -> R:
            from wattsched.executors import do_packed

            outcome: R = do_packed(*packed)
            return outcome

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
        """As `Executor.kept`; what is lost with a worker is made again from bytes that the scheduler has."""
        self.tell_without_workers()
        return _OnWorkers(self, values)

    def submitted(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Future of a call; arguments may be futures."""
        import dask

        # It is told of large arguments, which are known to be large.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self._client.submit(function, *arguments, pure=False)

    def tell_without_workers(self) -> None:
        """Say what is waited for."""
        if not self._client.scheduler_info(n_workers=1)["workers"]:
            told = f"the Dask cluster at {self._address} has no worker yet; waiting for one"
            warnings.warn(told, NoticeWarning, stacklevel=3)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say in a sentence what Dask raises about the cluster."""
        from distributed import KilledWorker

        try:
            yield
        except KilledWorker as error:
            often, last = error.allowed_failures + 1, error.last_worker.address
            told = f"a run lost its worker {often} times, the last time at {last}; did it run out of memory?"
            raise ClusterError(told) from None
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("wattsched"):
                raise
            raise ClusterError("a Dask worker has no wattsched, or an older one; install it there") from None
        except CancelledError:
            told = f"the Dask scheduler at {self._address} is gone"
            raise ClusterError(told) from None


class _OnWorkers:
    """Values that live on the workers of a Dask cluster.

    Each is the outcome of a task whose argument are its bytes, and every call on it a task that depends on
    this one. So Dask does again what is lost with a worker, the value and the call, and nothing else.
    """

    def __init__(self, executor: DaskExecutor, values: Iterable[Any]) -> None:
        self._executor, self._common = executor, _packed(versions())

        def unpacked(*packed: bytes) -> Any:
            from wattsched.executors import do_packed

            return do_packed(*packed)

        same = _packed(_itself)
        self._values = [executor.submitted(unpacked, self._common, same, _packed(value)) for value in values]

    def each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """As `Kept.each`."""

        def called(value: Any, *packed: bytes) -> bytes:
            from wattsched.executors import call_packed

            found: bytes = call_packed(value, *packed)
            return found

        packed = (self._common, *map(_packed, (function, *arguments)))
        futures = [self._executor.submitted(called, value, *packed) for value in self._values]
        with self._executor.explained():
            return [pickle.loads(future.result()) for future in futures]


def _itself(value: T) -> T:
    return value


def in_order(completed: Iterable[tuple[int, R]]) -> Iterator[R]:
    """Outcomes of tasks in the order of their numbers, each as soon as all before it are there."""
    early: dict[int, R] = {}
    due = 0
    for number, outcome in completed:
        early[number] = outcome
        while due in early:
            yield early.pop(due)
            due += 1


def dask_executor(cluster: str | Cluster | Client = LOCAL) -> AbstractContextManager[DaskExecutor]:
    """Executor on a Dask cluster (``pip install 'wattsched[cluster]'``).

    Parameters
    ----------
    cluster : str, Cluster or Client
        ``local`` or ``local:N``: N processes of this machine (default: one for each processor) that listen on
        loopback and end with the context; in a script, under ``if __name__ == "__main__":``. Any other text
        is the address of a scheduler. Clusters and clients of Dask are left as they are.

    Returns
    -------
    context manager of a DaskExecutor

    Raises
    ------
    ClusterError
        If Dask is not installed, or the text is none of these; in the context, if no scheduler answers.
    TypeError
        For anything else.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError(f"a Dask cluster needs {missing('cluster')}") from None
    if isinstance(cluster, Client):
        return nullcontext(DaskExecutor(cluster))
    if isinstance(cluster, str):
        processes = require_address(cluster)
        return _with_scheduler(cluster) if processes is None else _with_processes(processes)
    if not hasattr(cluster, "scheduler_address"):
        told = "an address, or a cluster or client of Dask"
        raise TypeError(f"cluster must be {told}, got {type(cluster).__name__}")
    return _with_client(cluster)


@contextmanager
def _with_client(cluster: str | Cluster) -> Iterator[DaskExecutor]:
    from distributed import Client

    client = None
    try:
        # A client that is interrupted half-made waits for a minute when it is collected.
        with later_interrupts():
            client = Client(cluster, set_as_default=False)
        yield DaskExecutor(client)
    finally:
        if client is not None:
            with later_interrupts():
                client.close()


@contextmanager
def _with_scheduler(address: str) -> Iterator[DaskExecutor]:
    _require_scheduler(address)
    with _with_client(address) as executor:
        yield executor


@contextmanager
def _with_processes(processes: int) -> Iterator[DaskExecutor]:
    from dask.system import CPU_COUNT

    with _local_cluster(processes or CPU_COUNT) as cluster, _with_client(cluster) as executor:
        yield executor


def require_address(text: str) -> int | None:
    """Processes of a local cluster, 0 where their number is not told; None for the address of a scheduler.

    Raises
    ------
    ClusterError
        For any other text.
    """
    name, colon, number = text.partition(":")
    if name == LOCAL and not (colon and not number.isdecimal()):
        if colon and not 1 <= int(number[:5]) <= MOST_PROCESSES:
            raise ClusterError(f"'{text}' is not of 1 to {MOST_PROCESSES} processes")
        return int(number or 0)
    found = _ADDRESS.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= 65_535:
        known = f"'{LOCAL}', '{LOCAL}:N'"
        raise ClusterError(f"'{text}' is neither {known} nor an address such as tcp://host:8786")
    return None


def _require_scheduler(address: str) -> None:
    """Refuse an address at which no scheduler answers: a client would wait for whatever listens there."""
    import asyncio

    from distributed import rpc

    async def kind() -> str:
        async with asyncio.timeout(ANSWER_S), rpc(address, timeout=ANSWER_S) as node:
            return str((await node.identity())["type"])

    try:
        # In a thread: a notebook has an event loop in its own.
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(asyncio.run, kind()).result()
    except OSError:
        raise ClusterError(f"no Dask scheduler answers at '{address}' within {ANSWER_S:g} s") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(f"the address '{address}' cannot be used: {error}") from None
    if found != "Scheduler":
        raise ClusterError(f"'{address}' is a Dask {found.lower()}; the address of its scheduler is wanted")


@contextmanager
def _local_cluster(processes: int) -> Iterator[LocalCluster]:
    import dask
    from distributed import LocalCluster

    cluster = None
    _start_tracker()
    environment = dask.config.get("distributed.nanny.pre-spawn-environ")
    kept = {name: value for name, value in environment.items() if name != TRIM}
    try:
        with later_interrupts(), dask.config.set({"distributed.nanny.pre-spawn-environ": kept}):
            cluster = LocalCluster(
                n_workers=processes,
                threads_per_worker=1,
                host=LOOPBACK,
                # No dashboard; and what Dask opens instead is on any free port.
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:0"},
                # A run may take what it would take without Dask.
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
        yield cluster
    finally:
        if cluster is not None:
            with later_interrupts():
                cluster.sync(_end, cluster)
                cluster.close()


async def _end(cluster: LocalCluster) -> None:
    """End the workers; left to itself, Dask waits for busy ones for four seconds."""
    import asyncio

    await asyncio.gather(*(nanny.close(timeout=GRACE_S) for nanny in cluster.workers.values()))


def _start_tracker() -> None:
    """Start the process that clears up behind killed workers, so that it keeps quiet about it."""
    if os.name != "posix":
        return
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


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
    """Do a task on a worker whose first argument is there already; its outcome as bytes."""
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

    worker, needed = get_worker(), pickle.loads(packed[0])
    for name, wanted in needed.items():
        if (found := versions().get(name)) != wanted:
            told = f"the Dask worker at {worker.address} has {name} {found}, and the client {wanted}"
            raise ClusterError(f"{told}; install the same versions on both")
    if worker.state.nthreads > 1:
        told = f"the Dask worker at {worker.address} has {worker.state.nthreads} threads, whose runs would"
        raise ClusterError(f"{told} hold each other up; start workers of one thread (--nthreads 1)")
    function, *arguments = map(pickle.loads, packed[1:])
    with warnings.catch_warnings():
        # The client has said what is to be said of its inputs.
        warnings.simplefilter("ignore")
        return function(*kept, *arguments)
