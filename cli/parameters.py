"""Options of a command made from the parameters of the function behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def parameter_option(name: str, default: Any, without_default: Callable[[str], Any]) -> click.Option:
    """``--name VALUE`` of the kind that the default has.

    Parameters
    ----------
    without_default : callable
        What reads the value where the default is None.
    """
    return click.Option(
        [f"--{name.replace('_', '-')}"],
        type=without_default if default is None else type(default),
        default=default,
        show_default=default is not None,
    )


def number(text: str) -> int | float:
    """Whole number where the text is one, else a decimal number."""
    try:
        return int(text)
    except ValueError:
        return float(text)
