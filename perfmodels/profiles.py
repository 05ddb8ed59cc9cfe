"""Lookup of profiles: those that a user gives, then those of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from wattsched.perfmodels.profile import Profile, catalogue, find, models


@dataclass(frozen=True)
class Profiles:
    """Profiles by model and GPU type; those given, of equal ones the first, replace the catalogue's."""

    given: tuple[Profile, ...] = ()

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Profile]:
        return {(profile.model, profile.gpu_type): profile for profile in reversed(self.given)}

    def find(self, model: str, gpu_type: str, stand_in: str | None = None) -> Profile | None:
        """Profile of a model on a GPU type, or on the type that stands in for it; None if there is none."""
        own, name = self._by_name, stand_in or gpu_type
        return own.get((model, gpu_type)) or own.get((model, name)) or find(model, name)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models, sorted."""
        return tuple(sorted({*models(), *(profile.model for profile in self.given)}))

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """Names of the GPU types, sorted."""
        return tuple(sorted({profile.gpu_type for profile in (*catalogue(), *self.given)}))

    @cached_property
    def training(self) -> tuple[str, ...]:
        """Those of models that are trained, not served: what a job of which nothing is told may run.

        Not those that the catalogue has on one GPU count alone, which say nothing of other jobs.
        """
        several = (profile for profile in catalogue() if len(profile.gpu_counts) > 1)
        trained = (one.model for one in (*several, *self.given) if one.task == "training")
        return tuple(sorted({*trained}))


CATALOGUE = Profiles()
"""Nothing but the catalogue."""
