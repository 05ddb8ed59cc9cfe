"""What `check` says of a file: valid, or not and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattsched.cli.failures import CHECK_FAILED


def print_verdict(faults: Sequence[str], valid: Iterable[str]) -> int:
    """Print the faults, or what is to be said of a file without any, and return the exit code."""
    from wattsched.cli.terminal import console, line
    from wattsched.cli.wording import count

    out = console()
    if faults:
        line(out, ("not valid", "bold red"), f": {count(len(faults), 'fault')}")
    else:
        line(out, ("valid", "bold green"))
    for words in faults or valid:
        line(out, f"{words}", indent=2)
    return CHECK_FAILED if faults else 0
