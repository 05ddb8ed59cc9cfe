"""Bound what comments and annotations may say by the file of the site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, field_validator

from wattsched.instances.errors import InputError, shown
from wattsched.instances.sizing.job import Options, OptionTable, Weight, by_column
from wattsched.reading.inputs import listed
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Strict

MOST_CHARACTERS = 65_536
"""Longest text that is read as JSON, in characters; a longer one is ignored."""


def _ascending(bounds: list[float]) -> list[float]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"must be the least and the most, got {shown(bounds)}")
    return bounds


BoundT = TypeVar("BoundT", bound=float)
Range = Annotated[list[BoundT], Field(min_length=2, max_length=2), AfterValidator(_ascending)]


class JobOptions(Strict):
    """Fields of an instance's job that a comment or the site's file states.

    Settings with which it is slower than ``least_progress`` of its best rate on as many GPUs are not offered.
    """

    options: Options | None = None
    model: Name | None = None
    remaining_work: Positive | None = None
    weight: Weight | None = None
    restart_s: NonNegative | None = None
    least_progress: Annotated[float, Field(gt=0, le=1)] | None = None
    preemptible: bool | None = None
    min_gpus: Count | None = None
    max_gpus: Count | None = None
    pools: list[Name] | None = None
    gpu_counts: list[Count] | None = None
    batch_sizes: list[Count] | None = None
    frequencies_mhz: list[Count] | None = None
    power_limits_w: list[Positive] | None = None

    _by_column = field_validator("options", mode="before")(by_column)


class Allow(Strict):
    """Limits of what users may state of their own jobs.

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
    weight, restart_s, least_progress, remaining_work, min_gpus, max_gpus, gpu_counts, batch_sizes, \
frequencies_mhz, power_limits_w : list of two numbers, optional
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
    weight: Range[NonNegative] | None = None
    restart_s: Range[NonNegative] | None = None
    least_progress: Range[NonNegative] | None = None
    remaining_work: Range[NonNegative] | None = None
    min_gpus: Range[NonNegative] | None = None
    max_gpus: Range[NonNegative] | None = None
    gpu_counts: Range[NonNegative] | None = None
    batch_sizes: Range[NonNegative] | None = None
    frequencies_mhz: Range[NonNegative] | None = None
    power_limits_w: Range[NonNegative] | None = None
    configurations: Count = 2_000
    configurations_per_user: Count = 10_000
    characters: Annotated[int, Field(ge=1, le=MOST_CHARACTERS)] = 16_384

    def require_short(self, *texts: str) -> None:
        """Refuse texts that are too long together, with an `InputError`, before they are read."""
        if (characters := sum(map(len, texts))) > self.characters:
            text = f"says {characters:,} characters, the site allows {self.characters:,}"
            raise InputError([text])

    def require(self, said: JobOptions) -> None:
        """Refuse what may not be stated: an `InputError` tells every such field, and what is allowed."""
        if faults := list(_faults(said, self)):
            raise InputError(faults)
        if isinstance(said.options, OptionTable):
            self.require_few(len(said.options.gpus))

    def require_few(self, configurations: int) -> None:
        """Refuse a job with too many configurations, with an `InputError`, before there is any."""
        if configurations > self.configurations:
            text = f"{configurations:,} configurations, the site allows {self.configurations:,} per job"
            raise InputError([text])


def _faults(said: JobOptions, allow: Allow) -> Iterator[str]:
    """Yield a sentence for each field of `said` that the site does not allow."""
    for name, value in said:
        # Everybody may say that a job can be stopped.
        if value is None or (name == "preemptible" and value):
            continue
        if name in ("options", "model"):
            names = allow.models if name == "model" else allow.tables
            if isinstance(value, OptionTable) and not allow.own_options:
                yield "options: the site takes no rows of users, but names of its tables"
            elif isinstance(value, str) and names is not None and value not in names:
                yield f"{name}: the site allows {listed(names) or 'none'}, got {shown(value)}"
            continue
        if not (rule := getattr(allow, name)):
            fields = ", ".join(["options", "model", *_more(allow)])
            yield f"{name}: may not be stated, got {shown(value)}; the site allows {fields}"
        elif isinstance(rule, list):
            least, most = rule
            values = value if isinstance(value, list) else [value]
            if odd := [one for one in values if not least <= one <= most]:
                yield f"{name}: the site allows {least:,g} to {most:,g}, got {odd[0]:,g}"


def _more(allow: Allow) -> list[str]:
    """Fields besides options and model that may be stated."""
    own = {"tables", "models", "own_options", "own_power_w"}
    limits = {"configurations", "configurations_per_user", "characters"}
    return [name for name, rule in allow if rule and name not in own | limits]
