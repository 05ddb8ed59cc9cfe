"""``--dask [ADDRESS]``: a command's runs go to the workers of a Dask cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from wattsched.cli.failures import DEBUG, BadInput, refusing
from wattsched.cli.files import stray_output_to_stderr
from wattsched.cli.outputs import FC, ParamType
from wattsched.running.dask_clusters import LOCAL, dask_executor, require_address
from wattsched.running.dask_workers import DaskExecutor
from wattsched.running.executors import ClusterError


class Address(ParamType):
    """Address of a scheduler, or how many processes a local cluster has."""

    name = "address"

    def read(self, value: Any) -> str:
        """Refuse what is neither."""
        require_address(value)
        return str(value)


def dask_option(what: str) -> Callable[[FC], FC]:
    """``--dask [ADDRESS]`` of a command, which spreads what it names."""
    return click.option(
        "--dask",
        metavar="[ADDRESS]",
        type=Address(),
        is_flag=False,
        flag_value=LOCAL,
        help=f"Spread {what} over a Dask cluster: a scheduler's address, or local[:N], N processes here.",
    )


@contextmanager
def spread(address: str | None) -> Iterator[DaskExecutor | None]:
    """Executor at the address that ``--dask`` gives, None without."""
    if address is None:
        yield None
        return
    with ExitStack() as stack:
        if not os.environ.get(DEBUG):
            # What matters of what Dask logs is raised, too.
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
        # Workers of this machine print to what is standard output when they start.
        with stray_output_to_stderr(), refusing():
            executor = stack.enter_context(dask_executor(address))
        try:
            yield executor
        except ClusterError as error:
            raise BadInput(str(error)) from None
