"""Parts of the documents of other programs: the fields that are read, also from within objects."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field, create_model, model_validator

from wattsched.instances.errors import shown


class Part(BaseModel):
    """A part of another program's document; fields that it does not name are ignored."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _objects(cls, document: Any) -> Any:
        """Refuse anything but an object where a field is read from within one."""
        for field in cls.model_fields.values():
            path, value = field.validation_alias, document
            for key in path.path[:-1] if isinstance(path, AliasPath) and isinstance(document, dict) else ():
                value = value.get(key)
                if value is None and not field.is_required():
                    break
                if not isinstance(value, dict):
                    wrong = "is missing" if value is None else f"must be an object, got {shown(value)}"
                    raise ValueError(f"{key}: {wrong}")
        return document


@cache
def listing(key: str, row: Any) -> Any:
    """Model of a document with a list of rows."""
    fields: dict[str, Any] = {key: (list[row], ...)}
    return create_model(key, __base__=Part, **fields)


def at(*path: str) -> Any:
    """Read a field from within an object of a document."""
    return Field(validation_alias=AliasPath(*path))
