"""Files of profiles: one of `wattsched fit`, a list of them, or an instance that has some."""

from __future__ import annotations

from pathlib import Path

from pydantic import RootModel

from wattsched.instances.errors import InputError, validated
from wattsched.instances.io import read_json
from wattsched.perfmodels.profile import Profile
from wattsched.perfmodels.profiles import Profiles


def read_profiles(path: str | Path) -> Profiles:
    """Read profiles that take the place of the catalogue's; an `InputError` for faults, and for none."""
    document = read_json(path)
    one = isinstance(document, dict) and "throughput" in document
    told = document.get("profiles") if isinstance(document, dict) and not one else document
    if not one and (not isinstance(told, list) or not told):
        what = "is neither a profile nor a list of them, nor an instance with 'profiles'"
        raise InputError([what], str(path))
    found = validated(RootModel[list[Profile]], [document] if one else told, str(path))
    return Profiles(tuple(found.root))
