"""Equal instances have equal digests, however their files are written; others have others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

import wattsched
from wattsched.instances.digest import digest_of
from wattsched.instances.generators import FAMILIES, generate
from wattsched.instances.io import document_text

families = pytest.mark.parametrize("family", sorted(FAMILIES))


def rewritten(value: Any, choice: Random) -> Any:
    """The same with fields in another order, and whole numbers with or without a point."""
    if isinstance(value, dict):
        fields = list(value.items())
        choice.shuffle(fields)
        return {name: rewritten(item, choice) for name, item in fields}
    if isinstance(value, list):
        return [rewritten(item, choice) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@families
def test_the_file_does_not_matter(family: str, tmp_path: Path) -> None:
    made = generate(family, jobs=4, seed=3)
    other = made.model_copy(update={"objective": "something"})
    assert digest_of(other) == digest_of(made)
    full = rewritten(json.loads(made.model_dump_json()), Random(1))
    for name, text in (("bare.json", document_text(made)), ("full.json.gz", json.dumps(full, indent=3))):
        content = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        read = wattsched.read_instance(tmp_path / name)
        assert read == made
        assert digest_of(read) == digest_of(made)


@families
def test_every_number_and_name_matters(family: str) -> None:
    made = generate(family, jobs=3, seed=3)
    content = json.loads(document_text(made))
    known = {digest_of(made), digest_of(type(made).model_construct(**content))}
    places = list(leaves(content))
    for place in Random(1).sample(places, min(60, len(places))):
        changed = json.loads(document_text(made))
        *path, last = place
        within = changed
        for step in path:
            within = within[step]
        value = within[last]
        within[last] = value + "x" if isinstance(value, str) else value + 1
        try:
            other = type(made).model_validate_json(json.dumps(changed))
        except ValidationError:  # it is an instance no more, and its parts are told apart all the same
            other = type(made).model_construct(**changed)
        digest = digest_of(other)
        assert (digest in known) == (place == ("objective",)), place
        known.add(digest)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Paths to the numbers and texts of a document."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if entries is None:
        return [] if isinstance(value, bool) or value is None else [path]
    return [leaf for key, entry in entries for leaf in leaves(entry, (*path, key))]


def test_parts_cannot_be_taken_for_each_other() -> None:
    made = generate("uniform", jobs=1)
    texts = (["ab", "c"], ["a", "bc"], ["abc"], ["a", "b", "c"], [], ["ab", 1.0], [1.0, "ab"], [[1.0], 2.0])
    digests = {digest_of(made.model_copy(update={"jobs": jobs})) for jobs in texts}
    assert len(digests) == len(texts)
