"""Recipes of the library's instances: a generator and its seed, or a public trace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field

from wattsched.files.exchange import import_trace, read_cluster
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.generators import generate
from wattsched.library.frozen import frozen
from wattsched.topology.fields import Name, Strict

DATA = "WATTSCHED_DATA"
"""Environment variable: the folder of public traces."""


class MissingDataError(Exception):
    """A public trace is not there."""


class Generated(Strict):
    """An instance of a family of `wattsched generate`.

    Attributes
    ----------
    generate : str
        The family.
    options : dict
        As `wattsched.generate` takes them, the seed among them.
    budgets : dict of str to float
        In place of the generator's.
    fields : dict
        Other fields of the instance that are set, such as a carbon intensity.
    """

    generate: Name
    options: dict[str, int | float | str]
    budgets: dict[str, float] = Field(default_factory=dict)
    fields: dict[str, float] = Field(default_factory=dict)

    def made(self, name: str) -> Any:
        """Make the instance, under a name."""
        made: Any = generate(self.generate, **dict[str, Any](self.options))
        if self.budgets or self.fields:
            kept = {**dict(made.budgets), **self.budgets}
            stated = {field: value for field, value in kept.items() if value is not None}
            made = type(made).model_validate({**dict(made), **self.fields, "budgets": stated})
        return frozen(made, name)


class Imported(Strict):
    """A round or a window of a public trace.

    Attributes
    ----------
    trace : str
        Its format, as `wattsched import` knows it.
    files : list of str
        In the folder of public traces.
    options : dict
        As `wattsched.import_trace` takes them.
    nodes, gpus_per_node, gpu_type : optional
        Of a cluster of equal nodes.
    cluster : str, optional
        Of a file there.
    origin, licence : str
        Who published the trace, and under which licence.
    """

    trace: Name
    files: list[str]
    options: dict[str, int | float | str] = Field(default_factory=dict)
    nodes: int | None = None
    gpus_per_node: int = 8
    gpu_type: Name = "A100"
    cluster: str | None = None
    origin: str
    licence: str

    def made(self, name: str) -> Any:
        """Make the instance, under a name; a MissingDataError where the trace is not there."""
        paths, options = [_path(file) for file in self.files], dict[str, Any](self.options)
        if self.cluster is not None:
            options["cluster"] = read_cluster(_path(self.cluster))
        elif self.nodes is not None:
            options["cluster"] = homogeneous_cluster(self.nodes, self.gpus_per_node, self.gpu_type)
        return frozen(import_trace(self.trace, *paths, **options), name)


Recipe = Generated | Imported


def _path(file: str) -> Path:
    """Path of a file that there is in the folder of public traces."""
    folder = os.environ.get(DATA)
    if not folder:
        raise MissingDataError(f"set {DATA} to the folder of public traces, for {file}")
    path = Path(folder) / file
    if not path.exists():
        raise MissingDataError(f"{DATA} has no {file}")
    return path
