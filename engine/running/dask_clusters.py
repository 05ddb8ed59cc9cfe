"""Dask clusters: processes of this machine, or a scheduler at an address."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

from wattsched.environment.extras import missing
from wattsched.environment.interrupts import later_interrupts
from wattsched.running.dask_workers import DaskExecutor
from wattsched.running.executors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster
    from distributed.deploy import Cluster

LOCAL = "local"
LOOPBACK = "127.0.0.1"
MOST_PROCESSES = 256
ANSWER_S = 5.0
"""Seconds in which a scheduler answers, if there is one."""
GRACE_S = 1.0
"""Seconds in which a worker of a local cluster ends by itself; one that is busy does not."""
TRIM = "MALLOC_TRIM_THRESHOLD_"
"""Variable by which Dask has workers return memory at once; passes over arrays take twice as long then."""
_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


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
        message = "an address, or a cluster or client of Dask"
        raise TypeError(f"cluster must be {message}, got {type(cluster).__name__}")
    return _with_client(cluster)


@contextmanager
def _with_client(cluster: str | Cluster) -> Iterator[DaskExecutor]:
    """Executor by a client of its own to a cluster, or to the scheduler at an address."""
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
    """Return the processes of a local cluster, 0 for no number; None for the address of a scheduler.

    A ClusterError for any other text.
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
    """Dask cluster of so many processes of this machine, which ends with the block."""
    import dask
    from distributed import LocalCluster

    cluster = None
    _start_tracker()
    environment = dask.config.get("distributed.nanny.pre-spawn-environ")
    without_trim = {name: value for name, value in environment.items() if name != TRIM}
    try:
        with later_interrupts(), dask.config.set({"distributed.nanny.pre-spawn-environ": without_trim}):
            cluster = LocalCluster(
                n_workers=processes,
                threads_per_worker=1,
                host=LOOPBACK,
                # No dashboard; the server that Dask starts in its place uses any free port.
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:0"},
                # No limit of memory, as without Dask.
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
