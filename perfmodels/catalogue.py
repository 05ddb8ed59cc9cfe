"""The profiles that come with the package, fitted from public measurements."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from wattsched.perfmodels.profile import Profile


@cache
def catalogue() -> tuple[Profile, ...]:
    """All profiles of the package, ordered by model and GPU type; read on the first call."""
    text = files("wattsched.perfmodels").joinpath("catalogue.json").read_bytes()
    return tuple(TypeAdapter(list[Profile]).validate_json(text))


@cache
def _by_name() -> dict[tuple[str, str], Profile]:
    return {(profile.model, profile.gpu_type): profile for profile in catalogue()}


def find(model: str, gpu_type: str) -> Profile | None:
    """Profile of a model on a GPU type, None if the catalogue has none."""
    return _by_name().get((model, gpu_type))


def models() -> tuple[str, ...]:
    """Names of the models in the catalogue, sorted."""
    return tuple(sorted({profile.model for profile in catalogue()}))


def gpu_types() -> tuple[str, ...]:
    """Names of the GPU types in the catalogue, sorted."""
    return tuple(sorted({profile.gpu_type for profile in catalogue()}))
