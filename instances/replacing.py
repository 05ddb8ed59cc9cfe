"""Copies of instances in which values at some paths are others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel

InstanceT = TypeVar("InstanceT", bound=BaseModel)

REMOVED = object()
"""In place of a value of `replaced`: the entry of a mapping is taken out."""


def replaced(instance: InstanceT, values: Mapping[str, Any]) -> InstanceT:
    """Return an instance with other values, in a tree of mappings; entries of lists go by their names."""
    return cast(InstanceT, _replaced(instance, values))


def _replaced(node: Any, tree: Any) -> Any:
    if not isinstance(tree, Mapping):
        return tree
    if isinstance(node, BaseModel):
        return node.model_copy(update={name: _replaced(getattr(node, name), to) for name, to in tree.items()})
    if isinstance(node, Mapping):
        changed = {key: _replaced(value, tree[key]) if key in tree else value for key, value in node.items()}
        return {key: value for key, value in changed.items() if value is not REMOVED}
    return [_replaced(entry, tree[entry.name]) if entry.name in tree else entry for entry in node]
