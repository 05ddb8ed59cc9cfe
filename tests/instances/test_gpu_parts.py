"""Names of parts of boards, and what these draw: shares add up to the board, whatever it is called."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.slurm.options import SiteOptions
from wattsched.instances.clusters import GPU_TYPES, homogeneous_cluster
from wattsched.instances.gpu_names import common_name, gpu_type_named, recognised_gpu_type, stated_gpu_type
from wattsched.instances.gpu_parts import as_one_type, boards_of, part_named, unused_idle_w


@pytest.mark.parametrize(
    ("name", "known", "share", "memory_gib"),
    [
        ("a100_1g.5gb", "A100-1g.5gb", (1, 7), 5),
        ("nvidia_a100_3g.20gb", "A100-3g.20gb", (3, 7), 20),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-1g.5gb", (1, 7), 5),
        ("a100_1g.5gb+me", "A100-1g.5gb+me", (1, 7), 5),
        ("nvidia_a100_1c.3g.20gb", "A100-1c.3g.20gb", (1, 7), 20),
        ("NVIDIA-H100-NVL-MIG-1g.12gb", "H100-1g.12gb", (1, 7), 12),
        ("h100-7g.80gb", "H100-7g.80gb", (1, 1), 80),
        ("nvidia_a30_2g.12gb", "A30-2g.12gb", (1, 2), 12),
        ("Tesla-T4-SHARED-4", "T4-SHARED-4", (1, 4), 4),
        ("AMD_Instinct_MI300X_OAM-cpx_nps4", "MI300X-cpx_nps4", (1, 8), 24),
        ("mi300x_dpx_nps2", "MI300X-dpx_nps2", (1, 2), 96),
        ("NVIDIA-A100-SXM4-40GB-MIG-2g.10gb-SHARED-3", "A100-2g.10gb-SHARED-3", (2, 21), 10 / 3),
        ("GRID-T4-4Q", "T4-4Q", (1, 4), 4),
        ("GRID-A100D-10C", "A100-D-10C", (1, 8), 10),
        ("GRID-A100-1-5C", "A100-1-5C", (1, 7), 5),
    ],
)
def test_a_part_has_its_share_of_the_board(
    name: str, known: str, share: tuple[int, int], memory_gib: float
) -> None:
    kind, told = gpu_type_named(name)
    board = gpu_type_named(known.partition("-")[0])[0]
    assert common_name(name) == common_name(known) == known
    assert kind.max_power_w == pytest.approx((board.max_power_w or 0) * share[0] / share[1])
    assert kind.idle_power_w == pytest.approx(board.idle_power_w * share[0] / share[1])
    assert kind.speed_factor == pytest.approx(board.speed_factor * share[0] / share[1])
    assert kind.power_factor == pytest.approx(board.power_factor * share[0] / share[1])
    assert kind.memory_gib == pytest.approx(memory_gib)
    assert kind.profile in GPU_TYPES
    assert recognised_gpu_type(name) == kind
    assert f"counts as {Fraction(*share)} of {common_name(part_named(name).board)}" in told


@pytest.mark.parametrize(
    "name", ["nvidia_a100-sxm4-40gb", "A100-80GB", "nvidia_h100_80gb_hbm3", "gpu", "Tesla-T4-SHARED", "L40S"]
)
def test_whole_boards_are_no_parts(name: str) -> None:
    assert (part_named(name).share, part_named(name).board) == (1, name)


def test_a_slice_of_nobody_knows_what_is_told_and_may_be_said() -> None:
    told = gpu_type_named("1g.10gb")[1]
    assert told.startswith("counts as 1/7 of a board")
    # No board but the A30, which has four slices, has 6 GB for each.
    assert [part_named(name).share for name in ("2g.12gb", "1g.12gb")] == [Fraction(1, 2), Fraction(1, 7)]
    assert "is not known and counts as A100" in told
    assert recognised_gpu_type("1g.10gb") is None
    assert gpu_type_named("1g.10gb", "H100")[0].max_power_w == pytest.approx(100)
    with pytest.warns(UserWarning, match="counts as 1/7 of A100"):
        assert stated_gpu_type("a100-1g.5gb")[1].max_power_w == pytest.approx(400 / 7)
    with pytest.raises(ValueError, match=r"'rtx9999-.*' is not known"):
        stated_gpu_type("rtx9999-1g.5gb")


@pytest.mark.parametrize(
    ("kinds", "boards", "unused_w"),
    [
        ({"A100-1g.5gb": 7}, 1, 0),
        ({"A100-3g.20gb": 2}, 1, 50 / 7),
        ({"A100-3g.20gb": 16}, 8, 50 * 8 / 7),
        ({"A100-4g.20gb": 3}, 3, 3 * 50 * 3 / 7),
        ({"A100": 2, "A100-2g.10gb": 3}, 3, 50 / 7),
        ({"T4-SHARED-4": 8}, 2, 0),
        ({"T4-SHARED-4": 3}, 1, 2.5),
        ({"MI300X-cpx_nps4": 9}, 2, 150 * 7 / 8),
    ],
)
def test_what_no_part_has_of_its_board_idles(kinds: dict[str, int], boards: int, unused_w: float) -> None:
    assert sum(boards_of(kinds).values()) == boards
    types = {kind: gpu_type_named(kind)[0] for kind in kinds}
    assert unused_idle_w(kinds, types) == pytest.approx(unused_w)


def test_a_cluster_of_slices_draws_what_its_boards_do() -> None:
    name, kind = "H100-3g.40gb", gpu_type_named("H100-3g.40gb")[0]
    node = homogeneous_cluster(1, 2, name, kind=kind).nodes[0]
    assert node.base_power_w == pytest.approx(200 + 70 / 7)
    node = homogeneous_cluster(1, 56, "H100-1g.10gb", kind=gpu_type_named("H100-1g.10gb")[0]).nodes[0]
    assert node.base_power_w == pytest.approx(1500)


@pytest.mark.parametrize("name", ["a + b", "1 a + b", "0 a + 1 b", " + ", "2 a", "5 x + "])
def test_names_of_no_known_type_count_with_the_most(name: str) -> None:
    assert SiteOptions().gpu_type(name).idle_power_w > 0


@given(
    st.dictionaries(
        st.sampled_from(["a100", *(f"a100_{n}g.{5 * n}gb" for n in (1, 2, 3, 4, 7))]), st.integers(1, 9)
    )
)
def test_slices_of_several_types_have_the_same_share_as_those_of_one(kinds: dict[str, int]) -> None:
    def share(some: dict[str, int]) -> Fraction:
        return sum((number * part_named(kind).share for kind, number in some.items()), Fraction(0))

    found = as_one_type(kinds)
    assert len(found) == min(1, len(kinds))
    assert set(found) <= set(kinds)
    assert share(kinds) <= share(found)
    smallest = min((part_named(kind).share for kind in kinds), default=Fraction(1))
    assert share(found) - share(kinds) < smallest
    if "a100_1g.5gb" in kinds:
        assert share(found) == share(kinds)


def test_gpus_of_different_boards_stay_what_they_are() -> None:
    for kinds in ({"a100": 2, "h100": 1}, {"a100_1g.5gb": 2, "h100_1g.10gb": 1}, {}):
        assert as_one_type(kinds) == kinds


def test_the_model_in_a_long_label_is_found_soon() -> None:
    begin_s = time.process_time()
    assert [part_named("x" * length).model for length in (20, 30_000)] == ["", ""]
    assert part_named("-".join(["x" * 30_000, "a100", "SXM4"])).model == "a100"
    assert time.process_time() - begin_s < 1.0
