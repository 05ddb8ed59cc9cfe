"""Names in the site's file and in options that the cluster does not have, and which ones were meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from wattsched.inputs import meant
from wattsched.instances.errors import InputError


@dataclass(frozen=True)
class Stated:
    """Names of one kind that are stated somewhere, and those that are there.

    Attributes
    ----------
    where : str
        Where they are stated, in words.
    sure : bool
        Whether there are no others; else only one that is spelt nearly like another is told.
    fault : bool
        Whether such a name is a fault at the start of ``--apply``; else it is noted.
    """

    where: str
    names: Collection[str]
    there: Collection[str]
    sure: bool = False
    fault: bool = True


def require_names(stated: Iterable[Stated], note: Callable[[str], None], *, apply: bool) -> None:
    """Refuse names that are not there, or note them where nothing is done.

    Raises
    ------
    InputError
        With every one, and the nearest one that is there.
    """
    faults = list[str]()
    for kind in stated:
        for name in sorted({*kind.names} - {*kind.there}):
            # Names that differ in their numbers alone are siblings, of which one may have gone.
            others = [one for one in kind.there if re.sub(r"\d+", "", one) != re.sub(r"\d+", "", name)]
            near = meant(name, kind.there if kind.sure else others)
            told = f"{kind.where}: '{name}' is not there{near}"
            if (kind.sure or near) and kind.fault and apply:
                faults.append(told)
            elif kind.sure or near:
                note(told)
    if faults:
        raise InputError(faults)
