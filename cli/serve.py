"""``wattsched serve``: sessions over HTTP, or as JSON lines, with a journal."""

from __future__ import annotations

import gc
import ipaddress
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import BadInput, reason
from wattsched.cli.files import stray_output_to_stderr
from wattsched.cli.outputs import Command, require_extra
from wattsched.cli.parameters import Whole, filling, refuse_given
from wattsched.serve.limits import Limits

if TYPE_CHECKING:
    from socket import socket

    from wattsched.serve.journal import Journal
    from wattsched.serve.tokens import Tokens

DEFAULT_PORT = 8765


@click.command("serve", cls=Command)
@click.argument("journal_file", metavar="JOURNAL")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0: a free one.",
)
@click.option("--tokens", metavar="FILE", help="Bearer tokens that are let in; needed beyond loopback.")
@click.option("--add-token", metavar="NAME", help="Add a client to the file of tokens, print its token, end.")
@click.option("--read-only", is_flag=True, help="With --add-token: a client that changes nothing.")
@click.option("--stdio", is_flag=True, help="JSON lines on standard input and output instead of HTTP.")
@click.option("--shadow", is_flag=True, help="Decide and record, and let nobody apply a decision.")
@click.option(
    "--kept-rounds",
    type=Whole(1),
    default=1000,
    show_default=True,
    help="Newest rounds that the journal keeps.",
)
@filling("limits", Limits)
def command(
    journal_file: str,
    host: str,
    port: int,
    tokens: str | None,
    add_token: str | None,
    read_only: bool,
    stdio: bool,
    shadow: bool,
    kept_rounds: int,
    limits: Limits,
) -> None:
    """Serve the sessions of JOURNAL, a file that is made where it is not there.

    Ctrl-C and SIGTERM end it when all that was promised is done. The description of all requests is at
    /openapi.json, and to be read at /docs.
    """
    if add_token is not None:
        _add_token(tokens, add_token, "read" if read_only else "write")
        return
    if read_only:
        refuse_given(["read_only"], "says what a token may do, and needs --add-token")
    if stdio:
        refuse_given(["host", "port", "tokens"], "cannot be combined with --stdio")
    elif tokens is None and not is_loopback(host):
        raise BadInput(f"--host {host}: others can reach this, so --tokens FILE has to say who may ask")
    require_extra("serve", "serve")
    from wattsched.serve.journal import Journal
    from wattsched.serve.tokens import Tokens

    known = None if tokens is None else Tokens(tokens)
    if known is not None and not len(known):
        raise BadInput(f"--tokens: '{tokens}' has no token, so nobody could ask; add one with --add-token")
    # No journal is made where nobody could ask.
    listening = nullcontext() if stdio else _listening(host, port)
    with listening as bound, Journal(journal_file, kept_rounds=kept_rounds) as journal:
        for name in journal.sessions():
            journal.open(name)
        if bound is None:
            _serve_lines(journal, limits, shadow)
        else:
            _serve_http(journal, limits, known, shadow, host, bound)


def _listening(host: str, port: int) -> socket:
    from wattsched.serve.server import listening

    try:
        return listening(host, port)
    except OSError as error:
        raise BadInput(f"cannot listen on {host}, port {port}: {reason(error)}") from None


def _serve_http(
    journal: Journal, limits: Limits, tokens: Tokens | None, shadow: bool, host: str, bound: socket
) -> None:
    from wattsched.serve.app import create
    from wattsched.serve.server import Server

    app = create(journal, limits, tokens, shadow=shadow)
    _keep_what_is_loaded()
    at = f"[{host}]" if ":" in host else host
    with stray_output_to_stderr():
        click.echo(f"Listening on http://{at}:{bound.getsockname()[1]}", err=True)
        Server(app).run([bound])
    click.echo("Stopped", err=True)


def _serve_lines(journal: Journal, limits: Limits, shadow: bool) -> None:
    from wattsched.serve.server import run_lines
    from wattsched.serve.service import Service

    _keep_what_is_loaded()
    # What libraries print must not come between the answers.
    with os.fdopen(os.dup(1), "wb") as output, stray_output_to_stderr():
        run_lines(Service(journal, limits, shadow=shadow), output)


def _keep_what_is_loaded() -> None:
    """Look for garbage among what comes later only: to look at all imports takes a tenth of a second."""
    gc.collect()
    gc.freeze()


def _add_token(tokens: str | None, name: str, access: str) -> None:
    if tokens is None:
        raise BadInput("--add-token: needs --tokens FILE, the file to add it to")
    from wattsched.serve.tokens import add_token

    token = add_token(tokens, name, access)
    click.echo(f"Added '{name}' ({access}) to {tokens}; its token, which is shown once:", err=True)
    click.echo(token)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
