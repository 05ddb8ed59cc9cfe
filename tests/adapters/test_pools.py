"""Pools are divided for jobs that may have some nodes only, and never to the harm of others."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.pools import MOST_CUTS, Claim, divided

NAMES = [f"n{i}" for i in range(6)]
HOSTS = st.frozensets(st.sampled_from(NAMES), min_size=1)
CLAIMS = st.lists(
    st.builds(Claim, HOSTS, st.integers(0, 5), st.sampled_from([1, 1, 2, 3, 4]), st.integers(1, 8)),
    max_size=5,
)
POOLS = st.lists(st.sampled_from(["x", "y"]), min_size=6, max_size=6).map(
    lambda kinds: dict(zip(NAMES, kinds, strict=True))
)
FREE = st.none() | st.dictionaries(st.sampled_from(NAMES), st.integers(0, 8))


def room(claim: Claim, parts: dict[str, str], free: dict[str, int] | None) -> bool:
    """Whether one part has as many nodes as a job of several nodes needs."""
    able = [parts[node] for node in claim.hosts if free is None or free.get(node, 0) >= claim.gpus]
    return any(able.count(part) >= claim.nodes for part in able)


@given(POOLS, CLAIMS, st.lists(HOSTS, max_size=3), st.lists(HOSTS, max_size=2), FREE)
def test_parts_of_pools(
    pools: dict[str, str],
    claims: list[Claim],
    together: list[frozenset[str]],
    apart: list[frozenset[str]],
    free: dict[str, int] | None,
) -> None:
    together = [one for one in together if len({pools[node] for node in one}) == 1]
    parts = divided(pools, claims, together=together, apart=apart, free=free)
    # A running job's nodes stay in one pool, and nodes of different pools are never in one.
    assert all(len({parts[node] for node in one}) == 1 for one in together)
    sets = [*(claim.hosts for claim in claims), *apart]
    for one, other in combinations(NAMES, 2):
        if parts[one] == parts[other]:
            assert pools[one] == pools[other]
        # As few parts as can be: what nobody tells apart is not divided.
        elif pools[one] == pools[other]:
            assert any((one in some) != (other in some) for some in sets)
    if all(claim.nodes == 1 for claim in claims):
        for some in sets:
            if not any(node & some and node - some for node in together):
                beyond = {parts[node] for node in NAMES if node not in some}
                assert all(parts[node] not in beyond for node in some)


@given(POOLS, CLAIMS, HOSTS, st.integers(0, 8), st.integers(1, 8), FREE)
def test_a_job_that_comes_later_or_has_no_room_takes_no_room_from_others(
    pools: dict[str, str],
    claims: list[Claim],
    hosts: frozenset[str],
    since_s: int,
    gpus: int,
    free: dict[str, int] | None,
) -> None:
    """Of jobs alone that came before it, or where it has no room now."""
    ready = free is None or any(free.get(node, 0) >= gpus for node in hosts)
    for claim in claims:
        before = divided(pools, [claim], free=free)
        after = divided(pools, [claim, Claim(hosts, since_s, 1, gpus)], free=free)
        if claim.since_s <= since_s or not ready:
            assert room(claim, after, free) >= room(claim, before, free)


def test_many_choices_of_nodes_take_no_time() -> None:
    nodes = {f"n{i}": "x" for i in range(1_000)}
    pins = [Claim(frozenset([f"n{i}"]), i) for i in range(1_000)]
    wide = [Claim(frozenset(nodes), 0, size) for size in range(2, 400)]
    assert len(set(divided(nodes, [*wide, *pins]).values())) <= MOST_CUTS + 1
