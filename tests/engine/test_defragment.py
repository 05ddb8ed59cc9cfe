"""Fewest moves against brute force, and steps that find their room."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings

from tests.brute_force.rearrangements import fewest_moves, pool_name
from tests.brute_force.sizing_places import kinds, may_be_had
from tests.strategies.effort import examples
from tests.strategies.rearrangements import crowded_rounds
from wattsched import defragment
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.moves import rearrangement_faults

ROUNDS = int(os.environ.get("WATTSCHED_REARRANGEMENTS", examples(100)))


@settings(max_examples=ROUNDS, deadline=None)
@given(crowded_rounds())
def test_the_moves_are_the_fewest(crowded: tuple[Instance, int, int]) -> None:
    instance, size, count = crowded
    pools = {
        pool_name(instance, kind): size
        for kind, nodes in kinds(instance).items()
        if may_be_had(instance, kind, nodes, size)
    }
    if not pools:
        with pytest.raises(ValueError, match="no pool has room"):
            defragment(instance, size=size, count=count)
        return
    found = defragment(instance, size=size, count=count)
    assert found.moves == fewest_moves(instance, [pools] * count)
    assert found.reason == ("infeasible" if found.moves is None else "optimal")
    assert found.proven_bound <= (found.moves or 0)
    assert not rearrangement_faults(instance, found)
