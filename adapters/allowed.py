"""What comments and annotations may say: the file of the site is the law, and users choose within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from wattsched.inputs import listed
from wattsched.instances.errors import InputError, shown
from wattsched.instances.sizing.job import OptionTable
from wattsched.topology.fields import Count, Name, NonNegative, Strict

if TYPE_CHECKING:
    from wattsched.adapters.options import JobOptions, StatedOptions

MOST_CHARACTERS = 65_536
"""Of a text that is read as JSON; a longer one is none of ours."""


def _ascending(bounds: list[float]) -> list[float]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"must be the least and the most, got {shown(bounds)}")
    return bounds


Range = Annotated[list[NonNegative], Field(min_length=2, max_length=2), AfterValidator(_ascending)]


class Allow(Strict):
    """What users may say of their own jobs, and how much of it.

    Where the site says nothing they choose among its tables, name a model, and may say that a job can be
    stopped.

    Attributes
    ----------
    tables, models : list of str, optional
        Those that may be named; all that there are where nothing is stated.
    own_options : bool
        Whether they may state rows of their own. These count with no less than the watts that tables of the
        site have for the same GPUs and settings, and where there is none with ``max_power_w`` of each GPU.
    own_power_w : bool
        Whether the watts of such rows are believed, down to those of idle GPUs.
    preemptible, pools : bool
        Whether a job may say that it is not to be stopped, and which GPU types it may have.
    weight, restart_s, remaining_work, min_gpus, max_gpus, gpu_counts, batch_sizes, frequencies_mhz, \
power_limits_w : list of two numbers, optional
        The least and the most that may be stated; none may be where there is no range.
    configurations, configurations_per_user : int
        How many configurations a job may have on the GPU types of the cluster, and all jobs of a user.
    characters : int
        Length of what a job says.
    """

    tables: list[Name] | None = None
    models: list[Name] | None = None
    own_options: bool = False
    own_power_w: bool = False
    preemptible: bool = False
    pools: bool = False
    weight: Range | None = None
    restart_s: Range | None = None
    remaining_work: Range | None = None
    min_gpus: Range | None = None
    max_gpus: Range | None = None
    gpu_counts: Range | None = None
    batch_sizes: Range | None = None
    frequencies_mhz: Range | None = None
    power_limits_w: Range | None = None
    configurations: Count = 2_000
    configurations_per_user: Count = 10_000
    characters: Annotated[int, Field(ge=1, le=MOST_CHARACTERS)] = 16_384

    def require_short(self, *texts: str) -> None:
        """Refuse a text before it is read.

        Raises
        ------
        InputError
        """
        if (characters := sum(map(len, texts))) > self.characters:
            told = f"says {characters:,} characters, the site allows {self.characters:,}"
            raise InputError([told])

    def require_few(self, configurations: int) -> None:
        """Refuse a job with too many configurations before there is any.

        Raises
        ------
        InputError
        """
        if configurations > self.configurations:
            told = f"{configurations:,} configurations, the site allows {self.configurations:,} per job"
            raise InputError([told])


def believed(said: JobOptions, options: StatedOptions, kind_of: Callable[[str], str]) -> JobOptions:
    """What a user says, with watts that the site believes.

    Parameters
    ----------
    kind_of : callable
        GPU type of a pool, or of a GPU type itself.

    Raises
    ------
    InputError
        With every field that may not be stated, its value, and what is allowed.
    """
    if faults := list(_faults(said, options.allow)):
        raise InputError(faults)
    if not isinstance(said.options, OptionTable):
        return said
    options.allow.require_few(len(said.options.gpus))
    if options.allow.own_power_w:
        return said
    site_w = dict[tuple[Any, ...], float]()
    for table in options.tables.values():
        for key, power_w in _rows(table, kind_of):
            site_w[key] = max(power_w, site_w.get(key, 0.0))
    watts = [
        max(power_w, site_w[key] if key in site_w else key[0] * options.max_power_w(key[1]))
        for key, power_w in _rows(said.options, kind_of)
    ]
    return said.model_copy(update={"options": said.options.model_copy(update={"power_w": watts})})


def _rows(table: OptionTable, kind_of: Callable[[str], str]) -> Iterator[tuple[tuple[Any, ...], float]]:
    """GPU count, GPU type and settings of every row, and its watts."""
    nothing = [None] * len(table.gpus)
    settings = (table.frequency_mhz, table.power_limit_w, table.batch_size)
    keys = zip(table.gpus, map(kind_of, table.pool), *(one or nothing for one in settings), strict=True)
    return zip(keys, table.power_w, strict=True)


def _faults(said: JobOptions, allow: Allow) -> Iterator[str]:
    for name, value in said:
        if value is None or (name == "preemptible" and value):
            continue
        if name in ("options", "model"):
            names = allow.models if name == "model" else allow.tables
            if isinstance(value, OptionTable) and not allow.own_options:
                yield "options: the site takes no rows of users, but names of its tables"
            elif isinstance(value, str) and names is not None and value not in names:
                yield f"{name}: the site allows {listed(names) or 'none'}, got {shown(value)}"
            continue
        rule, values = getattr(allow, name), value if isinstance(value, list) else [value]
        if not rule:
            fields = ", ".join(["options", "model", *_more(allow)])
            yield f"{name}: may not be stated, got {shown(value)}; the site allows {fields}"
        elif isinstance(rule, list) and (odd := [one for one in values if not rule[0] <= one <= rule[1]]):
            yield f"{name}: the site allows {rule[0]:,g} to {rule[1]:,g}, got {odd[0]:,g}"


def _more(allow: Allow) -> list[str]:
    """Fields besides options and model that may be stated."""
    own = {"tables", "models", "own_options", "own_power_w"}
    limits = {"configurations", "configurations_per_user", "characters"}
    return [name for name, rule in allow if rule and name not in own | limits]
