"""Options of commands: their types, limits of solvers, and options made of a function or a class."""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from wattsched.cli.completion import completing
from wattsched.cli.failures import BadInput, option_names, refusing
from wattsched.cli.files import is_piped, named_input
from wattsched.cli.outputs import FC, Command, ParamType
from wattsched.reading.inputs import echo, meant

if TYPE_CHECKING:
    from datetime import tzinfo

LARGEST_SEED = 2**32 - 1
MOST_SEEDS = 1000
UNLIMITED_S = 1e8
"""Three years: what runs with a limit Ctrl-C can end at any moment."""


class Number(ParamType):
    """A finite number in a range.

    Parameters
    ----------
    least, above : float, optional
        Lower end, that belongs to the range or does not.
    most, below : float, optional
        Upper end, that belongs to the range or does not.
    word : str, optional
        That is taken instead of a number of seconds.
    infinite : bool
        Infinite numbers are taken, too.
    refused : str, optional
        What is said of a number out of range instead of the end of the range.
    """

    name = "number"

    def __init__(
        self,
        least: float | None = None,
        *,
        above: float | None = None,
        most: float | None = None,
        below: float | None = None,
        word: str | None = None,
        infinite: bool = False,
        refused: str | None = None,
    ):
        self.word, self.infinite, self.refused = word, infinite, refused
        # End of the range, what compares with it, and the message on what is beyond.
        ends = (
            (least, operator.ge, "must be at least {:g}, got"),
            (above, operator.gt, "must be above {:g}, got"),
            (most, operator.le, "must be at most {:,.15g}, got"),
            (below, operator.lt, "must be below {:g}, got"),
        )
        self.ends = [(end, within, told.format(end)) for end, within, told in ends if end is not None]

    def read(self, value: Any) -> Any:
        """Read the number, or leave the word."""
        if self.word is not None and value == self.word:
            return value
        try:
            read = float(value)
        except ValueError:
            told = "not a number" if self.word is None else f"neither a number of seconds nor '{self.word}'"
            raise ValueError(f"'{value}' is {told}") from None
        if math.isinf(read) and str(value).strip("+- ")[0] not in "iI":
            raise ValueError(f"'{value}' is beyond the largest number, 1.8e308")
        if not math.isfinite(read) and not self.infinite:
            raise ValueError(f"'{value}' is not a finite number")
        for end, within, told in self.ends:
            if not within(read, end):
                raise ValueError(f"{read} {self.refused}" if self.refused else f"{told} {value}")
        return read


class Whole(ParamType):
    """A whole number from `least` to `most`."""

    name = "integer"

    def __init__(self, least: float = -math.inf, most: float = math.inf):
        self.least, self.most = least, most

    def read(self, value: Any) -> int:
        """Read the number."""
        try:
            read = int(value)
        except ValueError:
            raise ValueError(f"'{value}' is not a whole number") from None
        if read < self.least:
            raise ValueError(f"must be at least {self.least:,}, got {read:,}")
        if read > self.most:
            raise ValueError(f"must be at most {self.most:,}, got {read:,}")
        return read


class Listed(ParamType):
    """Names between commas, none twice, of what `noun` says; `require` refuses unknown ones."""

    name = "names"

    def __init__(self, noun: str, require: Callable[[str], Any] = str):
        self.noun, self.require = noun, require

    def read(self, value: Any) -> list[str]:
        """Read the names."""
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value)
        if not all(names):
            raise ValueError(f"'{value}' has an empty name between its commas")
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"the {self.noun} '{name}' is named twice")
            self.require(name)
        return names


class Seeds(ParamType):
    """Seeds and ranges of them between commas: ``42-51`` or ``1,7,42-44``."""

    name = "seeds"

    def read(self, value: Any) -> list[int]:
        """Read the seeds."""
        seeds: dict[int, None] = {}
        for part in str(value).split(","):
            ends = re.fullmatch(r"\s*([0-9]{1,20})(?:-([0-9]{1,20}))?\s*", part)
            if not ends:
                raise ValueError(f"'{part}' is neither a seed nor a range such as 42-51")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if last < first:
                raise ValueError(f"'{part}' ends before it begins")
            if last > LARGEST_SEED:
                raise ValueError(f"must be at most {LARGEST_SEED:,}, got {last:,}")
            if len(seeds) + last - first >= MOST_SEEDS:
                raise ValueError(f"'{value}' has more than {MOST_SEEDS:,} seeds")
            for seed in range(first, last + 1):
                if seed in seeds:
                    raise ValueError(f"the seed '{seed}' is named twice")
                seeds[seed] = None
        return list(seeds)


class FileName(ParamType):
    """Name of a file to read, or the copy of a pipe; the empty name stands for the folder that one is in."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the name, and what comes through a pipe or standard input (``-``) until the command ends."""
        name = super().convert(value, param, ctx)
        if ctx is None or ctx.resilient_parsing or not isinstance(name, str) or not is_piped(name):
            return name
        return ctx.with_resource(named_input(name))

    def read(self, value: Any) -> Any:
        """Refuse the empty name."""
        if not value:
            raise ValueError("the file name is empty")
        return str(value)


class Zone(ParamType):
    """Name of a time zone."""

    name = "zone"

    def read(self, value: Any) -> tzinfo:
        """Find it."""
        from zoneinfo import ZoneInfo

        try:
            return ZoneInfo(str(value))
        except (ValueError, OSError, KeyError):
            raise ValueError(f"{echo(value)} is no time zone such as Europe/Berlin or UTC") from None


def pairs_given(ctx: click.Context, param: click.Option, values: tuple[str, ...]) -> dict[str, str]:
    """Pairs such as COLUMN=VALUE, by their first part; the metavar of the option says what they are."""
    pairs = [value.partition("=") for value in values]
    for value, (first, equals, _) in zip(values, pairs, strict=True):
        if not first or not equals:
            raise click.BadParameter(f"'{value}' is not {param.metavar}", ctx, param)
    return {first: second for first, _, second in pairs}


def time_zone_option(default: str) -> Callable[[FC], FC]:
    """``--time-zone`` of a command that reads times which may have none."""
    return click.option("--time-zone", type=Zone(), help=f"Of times without a zone (default: {default}).")


def seeds_option(default: str | None, told: str) -> Callable[[FC], FC]:
    """``--seeds A-B`` of a command that repeats what it does."""
    return click.option("--seeds", type=Seeds(), default=default, metavar="A-B", help=told)


def listed_policies(
    names: Callable[[], Iterable[str]], require: Callable[[str], Any], default: str, told: str
) -> Callable[[FC], FC]:
    """``--policy P,P`` of a command that tries several, by their names and what refuses others."""
    return click.option(
        "--policy",
        "policies",
        default=default,
        metavar="P,P",
        type=Listed("policy", require),
        shell_complete=completing(names),
        help=told,
    )


def file_option(name: str, help: str) -> Callable[[FC], FC]:
    """``--NAME FILE`` of a command that cannot do without the file."""
    return click.option(name, type=FileName(), metavar="FILE", required=True, help=help)


class Described(Command):
    """A command whose help ends with names from registries: titles, and a text or rows of a table each."""

    def __init__(self, *args: Any, sections: Callable[[], Mapping[str, Any]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names."""
        for title, content in self.sections().items():
            with formatter.section(title):
                if isinstance(content, str):
                    formatter.write_text(content)
                else:
                    formatter.write_dl(content)


class Family(click.Group):
    """A group of commands that are made when they are asked for, each of an entry of a registry.

    Parameters
    ----------
    noun : str
        What an entry is.
    known : callable
        Gives the registry.
    make : callable
        Makes the command of an entry.
    rows : callable
        Titles of the table that ``--list`` prints, and its rows.
    """

    def __init__(
        self,
        *args: Any,
        noun: str,
        known: Callable[[], Mapping[str, Any]],
        make: Callable[[str], click.Command],
        rows: Callable[[], tuple[list[str], Sequence[Sequence[str]]]],
        **options: Any,
    ) -> None:
        listing = click.Option(
            ["--list", "as_list"], is_flag=True, help=f"List every {noun}, with what it is."
        )
        options |= {"invoke_without_command": True, "params": [listing]}
        super().__init__(*args, **options)
        self.callback = click.pass_context(self._list)
        self.noun, self.known, self.make, self.rows = noun, known, make, rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the entries."""
        return list(self.known())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Command of an entry."""
        known = self.list_commands(ctx)
        if cmd_name not in known:
            told = f"unknown {self.noun} '{cmd_name}'{meant(cmd_name, known)}"
            raise click.UsageError(f"{told}; known: {', '.join(known)}", ctx)
        return self.make(cmd_name)

    def _list(self, ctx: click.Context, as_list: bool) -> None:
        """Print the entries for ``--list``; without that refuse a line without an entry."""
        if as_list:
            from wattsched.report.terminal import console, table

            table(console(), *self.rows())
            ctx.exit()
        if ctx.invoked_subcommand is None:
            hint = f"'{ctx.command_path} --list' lists them"
            raise click.UsageError(f"a {self.noun} is missing, {hint}", ctx)


def parameter_option(parameter: inspect.Parameter, about: str | None, **given: Any) -> click.Option:
    """``--name VALUE`` of the kind that the parameter's annotation and default tell.

    `about` describes it; what is given goes to `click.Option` instead, `name` being that on the command line.
    """
    default, kind = parameter.default, str(parameter.annotation)
    if kind.startswith("Literal"):
        read: Any = click.Choice(re.findall(r"'(\w+)'", kind.partition("]")[0]))
    else:
        kinds = {"int": Whole(), "float": Number(), "File": FileName()}
        read = next((kinds[word] for word in kinds if word in kind), str)
    if kind == "bool":
        given |= {"is_flag": True, "type": bool}
    names = [given.pop("name", option_name(parameter.name)), parameter.name]
    if default is parameter.empty:
        known: dict[str, Any] = {"required": True}
    else:
        known = {"default": default}
    return click.Option(names, **({"type": read, "help": about} | known | given))


JOURNAL_QUOTA: dict[str, Any] = {
    "type": Number(above=0),
    "default": 1000.0,
    "metavar": "MB",
    "help": "Megabytes that the journal may have; from four fifths on older rounds are given up.",
}
"""Option of the commands that write a journal."""


def filling(
    name: str, kind: Callable[..., Any], without: Sequence[str] = (), /, **given: Mapping[str, Any]
) -> Callable[[FC], FC]:
    """Options for the parameters of a class, of which the command gets a value.

    Parameters
    ----------
    name : str
        Parameter of the command that takes the value.
    kind : type
        Its docstring describes the options. What has no default must be given, and is an argument of the
        command where nothing is said of it.
    without : sequence of str
        Parameters that are no options, and have their defaults.
    **given
        By parameter of the class, what `parameter_option` takes.
    """
    every, told = inspect.signature(kind).parameters, descriptions(kind)
    parameters = {field: one for field, one in every.items() if field not in without}

    def decorate(command: FC) -> FC:
        """Add an option for each parameter, and make a value of the class of what they get."""

        @wraps(command)
        def filled(**values: Any) -> Any:
            own = {field: values.pop(field) for field in parameters}
            with refusing():
                value = kind(**own)
            return command(**values, **{name: value})

        made: Any = filled
        for parameter in reversed(list(parameters.values())):
            if parameter.default is not parameter.empty or parameter.name in given:
                option = parameter_option(
                    parameter, told.get(parameter.name), **given.get(parameter.name, {})
                )
                made = click.option(cls=_ready(option))(made)
        return cast(FC, made)  # click's decorators keep what they get

    return decorate


def _ready(option: click.Option) -> Any:
    """Class of an option that is made already."""
    return lambda names, **attributes: option


def option_name(parameter: str) -> str:
    """Name of a parameter on the command line."""
    return f"--{parameter.replace('_', '-')}"


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return the description of each parameter in a docstring: of a function, or of a class and its bases."""
    told: dict[str, str] = {}
    if isinstance(function, type) and function.__base__ is not None:
        told |= descriptions(function.__base__)
    _, _, section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    section = re.split(r"\n\n?\w+\n-+\n", section)[0]
    for match in re.finditer(r"^(\w[\w, ]*?)(?: :.*)?\n((?:    .*\n?)+)", section, flags=re.MULTILINE):
        text = " ".join(match[2].split()).replace("`", "")
        told |= dict.fromkeys(match[1].split(", "), text)
    return told


def given(parameter: str) -> bool:
    """True if an option of the command that runs was given."""
    return click.get_current_context().get_parameter_source(parameter) == ParameterSource.COMMANDLINE


def refuse_given(parameters: Iterable[str], why: str) -> None:
    """Refuse options that would change nothing."""
    names = option_names()
    for name in parameters:
        if given(name):
            raise BadInput(f"{names[name]} {why}")


@dataclass(frozen=True)
class Limits:
    """Gap, time limit, threads and seed of a solver.

    Parameters
    ----------
    gap : float
        Relative gap that counts as optimal.
    time_limit : float
        Wall-clock seconds; 'inf' is no limit.
    threads, seed : int
        For the solver.
    """

    gap: float = 1e-4
    time_limit: float = 60.0
    threads: int = 1
    seed: int = 0


limit_options = filling(
    "limits",
    Limits,
    gap={"type": Number(0, below=1, infinite=True, refused="is not between 0 and 1")},
    time_limit={
        "type": Number(above=0, infinite=True, refused="is not a positive number of seconds, or 'inf'")
    },
    threads={"type": Whole(1, 2**31 - 1)},
    seed={"type": Whole(0, 2**31 - 1)},
)


prove_option = click.option(
    "--prove",
    type=Number(0),
    metavar="SECONDS",
    help="Seconds to prove case by case what prices alone do not (default: about half a second); 0 for none.",
)


def names_of_problems() -> dict[str, Any]:
    """Names that the options of commands for all problems take, from the registries."""
    from wattsched.results.problems import PROBLEMS, problem
    from wattsched.solvers.registry import descriptions as solvers

    told: dict[str, Any] = {"Solvers, besides the heuristics of the problem": list(solvers().items())}
    for known in map(problem, PROBLEMS):
        rows = [("formulations", known.formulation_names()), ("objectives", known.objectives)]
        rows += [("heuristics", known.heuristics)] if known.heuristics else []
        told[f"Names of {known.name}"] = [(what, ", ".join(names)) for what, names in rows]
    return told
