"""The command line: ``wattsched COMMAND ...``. Adding a command is one file and one line here.

Commands are imported when they are called, so that ``wattsched --help`` is quick.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from wattsched.cli.failures import (
    EXIT_CODES,
    exit_code_of,
    leave_at_once,
    noticing_broken_pipes,
    readable_streams,
    require_room,
    telling_notices,
)
from wattsched.cli.outputs import GIVEN
from wattsched.reading.inputs import meant

COMPLETION = "_WATTSCHED_COMPLETE"
"""Environment variable by which a shell asks how a line may be completed."""

# Name -> module (and function) of the command, and what it does.
COMMANDS = {
    "solve": ("solve", "Decide a round: who runs where, at which clock and batch."),
    "what-if": ("what_if", "Say what a round's decision would be after changes."),
    "library": ("library", "Instances to compare solvers by, and the best known of each."),
    "compare": ("compare", "Compare formulations and solvers over instances."),
    "check": ("check", "Check a result against its instance, trusting nobody."),
    "explain": ("explain", "Say why a job waits, and what would make it run."),
    "show": ("show", "Describe an instance or a result."),
    "generate": ("generate", "Generate an instance of a family."),
    "import": ("importing", "Turn a trace into an instance, or records of a scheduler into a trace."),
    "convert": ("convert", "Write a round or its result by row, by column or as Parquet."),
    "export": ("export", "Write the program (.mps, .lp) or topology of an instance."),
    "place": ("place", "Place arriving tasks under policies; curves of allocation and power."),
    "replay": ("replay", "Replay a trace of jobs under policies; completion times and energy."),
    "savings": ("savings", "Say what a cluster would save, and who would be served later."),
    "capacity": ("capacity", "Say which GPUs and power cap to have for a load that grows."),
    "offer": ("offer", "Say what a site can sell: kW less for some time, and what that costs."),
    "defragment": ("defragment", "Find the fewest moves of running jobs after which others fit."),
    "kubernetes": ("kubernetes", "Decide what a Kubernetes cluster runs, round after round."),
    "slurm": ("slurm", "Decide what a Slurm cluster runs, round after round."),
    "fit": ("fit", "Fit a performance profile to measurements."),
    "journal": ("journal", "List the decisions of sessions in a journal, and decide them again."),
    "serve": ("serve", "Serve sessions over HTTP, with a journal."),
    "schema": ("schema", "Print the JSON Schema of a file format."),
}


class CommandLine(click.Group):
    """A group that imports its commands late and turns every failure into readable lines."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Command of that name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = import_module(f"wattsched.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for; of a name that is none, say which was meant."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing and args[0].isidentifier():
            ctx.fail(f"no such command '{args[0]}'{meant(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin so; no command is imported for it."""
        known = [(name, about) for name, (_, about) in COMMANDS.items() if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=about) for name, about in known]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options; the context keeps the moment, as `obj`, and the arguments as they were typed.

        ``--help`` and ``--version`` print already here.
        """
        given = list(args)
        with noticing_broken_pipes():
            made = super().make_context(info_name, args, parent, obj=time.monotonic(), **extra)
        made.meta[GIVEN] = given
        return made

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with noticing_broken_pipes():
            require_room()
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its code; not standalone, return its value, or raise."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        if COMPLETION in os.environ:  # click answers the shell
            return super().main(args, prog_name, complete_var, **extra)
        readable_streams()
        with telling_notices():
            code = exit_code_of(run)
        if args is None:  # of the whole process
            leave_at_once(code)
        raise SystemExit(code)


@click.group(
    cls=CommandLine,
    invoke_without_command=True,
    epilog=f"Exit codes: {', '.join(f'{code} {told}' for code, told in EXIT_CODES.items())}.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(package_name="wattsched", prog_name="wattsched", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Scheduling decisions for GPU clusters, with a bound and the price of every budget."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
