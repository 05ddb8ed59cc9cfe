"""Fields from within objects of other programs' documents."""

from __future__ import annotations

from typing import Annotated

import pytest

from wattsched.adapters.parts import Part, at
from wattsched.instances.errors import InputError, validated


class Row(Part):
    name: str
    used: Annotated[int | None, at("memory", "used")] = None


@pytest.mark.parametrize(
    ("document", "used"),
    [
        ({"name": "a"}, None),
        ({"name": "a", "memory": None}, None),
        ({"name": "a", "memory": {}}, None),
        ({"name": "a", "memory": {"used": 3, "more": 1}}, 3),
    ],
)
def test_what_is_not_there_has_its_default(document: object, used: int | None) -> None:
    assert validated(Row, document).used == used


@pytest.mark.parametrize("memory", [3, "3", [3], True])
def test_what_is_no_object_is_refused_and_not_passed_over(memory: object) -> None:
    with pytest.raises(InputError, match="memory: must be an object"):
        validated(Row, {"name": "a", "memory": memory})
