"""Parts of the documents of other programs: the fields that are read, also from within objects."""

from __future__ import annotations

from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field, model_validator

from wattsched.instances.errors import shown


class Part(BaseModel):
    """A part of another program's document; fields that it does not name are ignored."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _objects(cls, document: Any) -> Any:
        """Refuse anything but an object where a field is read from within one."""
        for field in cls.model_fields.values():
            if isinstance(path := field.validation_alias, AliasPath):
                value = document
                for key in path.path[:-1]:
                    value = value.get(key) if isinstance(value, dict) else None
                    if value is not None and not isinstance(value, dict):
                        raise ValueError(f"{key} must be an object, got {shown(value)}")
        return document


def at(*path: str) -> Any:
    """Read an optional field from within an object of a document."""
    return Field(validation_alias=AliasPath(*path))
