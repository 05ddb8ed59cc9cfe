"""``wattsched serve``: sessions over HTTP, with a journal."""

from __future__ import annotations

import gc
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import BadInput, reason
from wattsched.cli.files import stray_output_to_stderr
from wattsched.cli.outputs import Command, require_extra
from wattsched.cli.parameters import JOURNAL_QUOTA, Whole, filling, refuse_given
from wattsched.report.wording import printable
from wattsched.serve.limits import Limits

if TYPE_CHECKING:
    from socket import socket

    from fastapi import FastAPI

DEFAULT_PORT = 8765
_JOURNAL_SUFFIXES = ("", "-wal", "-shm", "-journal", "-lock", "-token")


@click.command("serve", cls=Command)
@click.argument("journal_file", metavar="JOURNAL")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=Whole(0, 65535), default=DEFAULT_PORT, help="Port to listen on; 0: a free one.")
@click.option("--tokens", metavar="FILE", help="Bearer tokens that are let in; needed beyond loopback.")
@click.option("--no-token", is_flag=True, help="Let in whoever reaches it: every user of this machine.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A name that it is asked by, as of a proxy."
)
@click.option("--add-token", metavar="NAME", help="Add a client to the file of tokens, print its token, end.")
@click.option("--read-only", is_flag=True, help="With --add-token: a client that changes nothing.")
@click.option("--socket", "file", metavar="FILE", help="Listen on a Unix socket that you alone may use.")
@click.option("--shadow", is_flag=True, help="Decide and record, and let nobody apply a decision.")
@click.option("--kept-rounds", type=Whole(1), default=1000, help="Newest rounds that the journal keeps.")
@click.option("--journal-quota", **JOURNAL_QUOTA)
@filling("limits", Limits)
def command(
    journal_file: str,
    host: str,
    port: int,
    tokens: str | None,
    no_token: bool,
    hosts: tuple[str, ...],
    add_token: str | None,
    read_only: bool,
    file: str | None,
    shadow: bool,
    kept_rounds: int,
    journal_quota: float,
    limits: Limits,
) -> None:
    """Serve the sessions of JOURNAL, a file that is made where it is not there.

    Requests need a token, but over a --socket: that of the file JOURNAL-token, which is made at the first
    start, or those of --tokens. Ctrl-C and SIGTERM end it when all that was promised is done. The description
    of all requests is at /openapi.json, and to be read at /docs.
    """
    if add_token is not None:
        _add_token(tokens, add_token, "read" if read_only else "write")
        return
    if read_only:
        refuse_given(["read_only"], "says what a token may do, and needs --add-token")
    if file is not None:
        if os.path.realpath(file).removeprefix(os.path.realpath(journal_file)) in _JOURNAL_SUFFIXES:
            raise BadInput(f"--socket: '{printable(file)}' is a file of the journal")
        refuse_given(["host", "port", "tokens", "no_token", "hosts"], "cannot be combined with --socket")
    elif no_token and tokens is not None:
        raise BadInput("--no-token: cannot be combined with --tokens")
    elif tokens is None and not is_loopback(host):
        raise BadInput(f"--host {host}: others can reach this, so --tokens FILE has to say who may ask")
    require_extra("serve", "serve")
    from wattsched.serve.app import create
    from wattsched.serve.journal import Journal
    from wattsched.serve.tokens import Tokens

    known = None if tokens is None else Tokens(tokens)
    if known is not None and not len(known):
        raise BadInput(f"--tokens: '{tokens}' has no token, so nobody could ask; add one with --add-token")
    # No journal is made where nobody could ask.
    with (
        _listening(host, port, file) as bound,
        Journal(journal_file, kept_rounds=kept_rounds, quota_mb=journal_quota) as journal,
    ):
        for name in journal.sessions():
            journal.open(name)
        told = []
        if file is not None:
            address = f"unix:{printable(file)}"
        else:
            at = f"[{host}]" if ":" in host else host
            address = f"http://{at}:{bound.getsockname()[1]}"
            if no_token:
                every = "every user and every program of this machine can change what is decided"
                told = [f"WARNING: --no-token: {every}"]
            elif known is None:
                path, known = Tokens.own(journal_file)
                told = [f"Token: {printable(str(path))}, sent as 'Authorization: Bearer TOKEN'"]
        app = create(journal, limits, known, shadow=shadow, hosts=[*hosts, host])
        _serve(app, bound, [f"Listening on {address}", *told])


@contextmanager
def _listening(host: str, port: int, file: str | None) -> Iterator[socket]:
    """Listen at an address, or on the Unix socket of a file, which is deleted at the end."""
    from wattsched.serve.server import listening, listening_in

    try:
        bound = listening(host, port) if file is None else listening_in(file)
    except OSError as error:
        where = f"{host}, port {port}" if file is None else file
        raise BadInput(f"cannot listen on {where}: {reason(error)}") from None
    own = None if file is None else os.lstat(file)
    try:
        with bound:
            yield bound
    finally:
        # Another server may have taken its name meanwhile.
        if file is not None and own is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(own, os.lstat(file)):
                    os.unlink(file)


def _serve(app: FastAPI, bound: socket, told: list[str]) -> None:
    """Print some lines, and answer requests until a signal ends it."""
    from wattsched.serve.server import Server

    # Garbage is looked for among what comes later only: to look at all imports takes a tenth of a second.
    gc.collect()
    gc.freeze()
    with stray_output_to_stderr():
        for line in told:
            click.echo(line, err=True)
        Server(app).run([bound])
    click.echo("Stopped", err=True)


def _add_token(tokens: str | None, name: str, access: str) -> None:
    """Add a client with 'read' or 'write' access to the file of tokens, and print its token."""
    if tokens is None:
        raise BadInput("--add-token: needs --tokens FILE, the file to add it to")
    from wattsched.serve.tokens import add_token

    token = add_token(tokens, name, access)
    click.echo(f"Added '{name}' ({access}) to {tokens}; its token, which is shown once:", err=True)
    click.echo(token)


def is_loopback(host: str) -> bool:
    """True if only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
