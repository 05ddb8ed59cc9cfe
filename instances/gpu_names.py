"""GPU types by the names that schedulers give them, and what stands in for those without measurements."""

from __future__ import annotations

import re
from functools import lru_cache

from wattsched.instances.clusters import GPU_TYPES, spelt_as_known
from wattsched.instances.gpu_parts import GpuPart, part_named, part_of
from wattsched.reading.inputs import meant, notice
from wattsched.topology.cluster import GpuType

BOARD_POWER_W = {
    "A2": 60.0,
    "A10": 150.0,
    "A30": 165.0,
    "A800": 400.0,
    "A6000": 300.0,
    "H20": 400.0,
    "H800": 700.0,
    "L4": 72.0,
    "L40": 300.0,
    "MI100": 300.0,
    "MI210": 300.0,
    "MI250": 280.0,
    "MI250X": 280.0,
    "MI325X": 1000.0,
    "MI350X": 1000.0,
    "MI355X": 1400.0,
}
"""Board limits of the vendors' data sheets, of the variants with most power; none is measured here.

Schedulers count the two dies of an MI250 or MI250X as two GPUs, so each has half of the board's 560 W.
"""

STAND_IN = "A100"
IDLE_PART = 0.1
"""Idle draw as a share of the board limit, assumed for types that are not measured."""


def gpu_type_named(name: str, stand_in: str | None = None) -> tuple[GpuType, str]:
    """GPU type that a scheduler calls so, such as ``nvidia_a100-sxm4-80gb``, and what is assumed of it.

    A part of a board, such as ``a100_1g.5gb``, has its share of the board's watts and speed. A known type as
    `stand_in` counts instead, whatever the name says, of a part for its board; another one is a ValueError.
    """
    part = part_named(name)
    kind, assumed = _board_named(part.board, stand_in)
    if not part.kind:
        return kind, assumed
    board = kind if kind.profile else kind.model_copy(update={"profile": common_name(part.board)})
    of_board = f"the board {assumed}" if assumed else ""
    return part_of(board, part), "; ".join(filter(None, [_share_assumed(part), of_board]))


def _share_assumed(part: GpuPart) -> str:
    """Say what share of its board a part counts as, and by what."""
    by = (
        "number on a board"
        if re.search("SHARED|px_", part.kind, re.I)
        else "compute slices"
        if "g." in part.kind
        else "memory"
    )
    board = common_name(part.board) or "a board"
    return f"counts as {part.share} of {board}, in watts and speed, by its {by}"


def _board_named(name: str, stand_in: str | None) -> tuple[GpuType, str]:
    """GPU type of a whole board that a scheduler calls so, and what is assumed of it."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    memory = next((float(word[:-2]) for word in words if re.fullmatch(r"[0-9]{1,4}gb", word)), None)
    if stand_in is not None:
        if stand_in not in GPU_TYPES:
            raise ValueError(f"stand_ins: '{stand_in}' is not known, choose one of {', '.join(GPU_TYPES)}")
        kind, assumed = _standing_in(stand_in, name, memory), f"counts as {stand_in}, as you say"
    elif (known := _known(words, GPU_TYPES)) is not None:
        kind, assumed = _standing_in(known, name, memory), "" if known == name else f"counts as {known}"
    elif (known := _known(words, BOARD_POWER_W)) is not None:
        most_w, full_w = BOARD_POWER_W[known], GPU_TYPES[STAND_IN].max_power_w or BOARD_POWER_W[known]
        kind = GpuType(
            idle_power_w=round(IDLE_PART * most_w, 1),
            max_power_w=most_w,
            profile=STAND_IN,
            power_factor=most_w / full_w,
            memory_gib=memory,
        )
        assumed = f"as fast as {STAND_IN}, with its watts times {most_w:g}/{full_w:g}"
    else:
        known_names = [*GPU_TYPES, *BOARD_POWER_W]
        # h1oo, with letters for noughts, is an H100.
        near = meant(name, known_names) or meant(name.lower().replace("o", "0"), known_names)
        kind, assumed = _standing_in(STAND_IN, name, memory), f"is not known{near} and counts as {STAND_IN}"
    return kind, assumed


@lru_cache(maxsize=4096)
def recognised_gpu_type(name: str) -> GpuType | None:
    """GPU type that a scheduler calls so, where the name tells it; None where nobody could know its watts."""
    if common_name(part_named(name).board) not in {*GPU_TYPES, *BOARD_POWER_W}:
        return None
    kind, _ = gpu_type_named(name)
    return kind


def stated_gpu_type(text: str) -> tuple[str, GpuType]:
    """GPU type that somebody names: ``H100``, ``A100-1g.5gb``, or ``rtx5090=A100``, which counts as an A100.

    Known names may be written in any case. A notice says what is assumed of it. A type of which nothing is
    known, where it is not said what counts instead, is a ValueError.
    """
    known = sorted({*GPU_TYPES, *BOARD_POWER_W})
    name, equals, stand_in = text.partition("=")
    name, stand_in = spelt_as_known(name, known), spelt_as_known(stand_in)
    measured = ", ".join(GPU_TYPES)
    if not name or (equals and stand_in not in GPU_TYPES):
        raise ValueError(f"gpu_type: '{text}' is not TYPE=KNOWN, with one of {measured}")
    if not equals and common_name(part_named(name).board) not in known:
        told = f"'{name}' is not known{meant(name, known)}, choose one of {', '.join(known)}"
        raise ValueError(f"gpu_type: {told}; or say which of {measured} counts instead, as in {name}=A100")
    kind, assumed = gpu_type_named(name, stand_in if equals else None)
    if assumed:
        notice(f"assumed: GPU type '{name}' {assumed}")
    return name, kind


@lru_cache(maxsize=4096)
def common_name(name: str) -> str:
    """Name of a known GPU type that a scheduler calls so, or its own; of a part ``A100-1g.5gb``."""
    part = part_named(name)
    words = re.findall(r"[a-z0-9]+", part.board.lower())
    known = _known(words, GPU_TYPES) or _known(words, BOARD_POWER_W)
    return "-".join(filter(None, [known, part.kind])) if known else name


def _known(words: list[str], types: dict[str, GpuType] | dict[str, float]) -> str | None:
    return next((name for name in types if name.lower() in words), None)


def _standing_in(known: str, name: str, memory_gib: float | None) -> GpuType:
    """A known type for one of another name, whose memory counts if it is stated."""
    kind = GPU_TYPES[known]
    changes = {"memory_gib": memory_gib or kind.memory_gib, "profile": None if known == name else known}
    return kind.model_copy(update={key: value for key, value in changes.items() if value is not None})
