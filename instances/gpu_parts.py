"""Parts of GPU boards that a scheduler hands out: slices, AMD's partitions, replicas of a shared GPU, vGPUs.

A part is taken to have the share of its board's compute in watts, speed and memory too: of a MIG slice its
compute slices (sevenths; quarters of an A30), of a partition or a replica one over their number, of a vGPU
its frame buffer's share. Watts of boards that are in no part stay with the server.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

from wattsched.topology.cluster import GpuType

_MIG = re.compile(
    r"(?<![a-z0-9])(?:mig[-_.])?((?:([1-7])c\.)?([1-7])g\.(\d{1,3})gb(?:[+.-](?:me|gfx|all))*)(?![a-z0-9])",
    re.I,
)
_VGPU = re.compile(r"(?<![a-z0-9])([a-z]+\d+s?)-?(d?)-((?:(\d)-)?(\d{1,3})[abcq])(?![a-z0-9])", re.I)
_PARTITION = re.compile(r"(?<![a-z0-9])([sdtqc])px_nps\d(?![a-z0-9])", re.I)
_SHARED = re.compile(r"[-_]shared[-_](\d{1,4})(?![a-z0-9])", re.I)
_MODEL = re.compile(r"(?<![a-z])[a-z]+\d+[a-z]*", re.I)

MIG_SLICES, _QUARTERED, _QUARTER_GB = 7, ("a30",), 6
"""Compute slices of a board, boards that have four, and the memory of one of these, which no other has."""
_PARTITIONS = {"s": 1, "d": 2, "t": 3, "q": 4, "c": 8}
"""Partitions of a board by AMD's mode; ``cpx`` makes one of each compute die, of which an MI300A has six."""
_FRAME_BUFFER_GIB = {
    **{"t4": 16, "p100": 16, "v100": 16, "v100d": 32, "a10": 24, "a30": 24, "l4": 24, "a40": 48},
    **{"a100": 40, "a100d": 80, "h100": 80, "l40": 48, "l40s": 48},
}
"""Memory of boards as the names of vGPUs call them: an A100D has 80 GB."""
SEVERAL = " + "
"""Joins the types of a node that has several, each after its count: ``4 a100 + 14 a100_1g.5gb``."""


@dataclass(frozen=True)
class GpuPart:
    """Part of a board that a name tells, or the whole board.

    Attributes
    ----------
    board : str
        Name without what tells the part.
    kind : str
        What tells it, such as ``1g.5gb`` or ``SHARED-4``; empty for a whole board.
    share : Fraction
        Of the board's compute.
    memory_gib : float, optional
        None where the name does not tell it.
    """

    board: str
    kind: str = ""
    share: Fraction = Fraction(1)
    memory_gib: float | None = None

    @property
    def model(self) -> str:
        """Model of the board in small letters, such as ``a100``; empty where the name tells none."""
        found = _MODEL.search(self.board)
        return found[0].lower() if found else ""


@lru_cache(maxsize=4096)
def part_named(name: str) -> GpuPart:
    """Part of a board that a scheduler calls so, such as ``a100_1g.5gb`` or ``Tesla-T4-SHARED-4``."""
    part = _slice_named(name)
    if (found := _SHARED.search(part.board)) is None or int(found[1]) < 1:
        return part
    replicas = int(found[1])
    return GpuPart(
        _without(part.board, *found.span()),
        "-".join(filter(None, [part.kind, f"SHARED-{replicas}"])),
        part.share / replicas,
        None if part.memory_gib is None else part.memory_gib / replicas,
    )


def has_parts(kinds: Iterable[str]) -> bool:
    """True if some of these GPU types are parts of boards."""
    return any(part_named(kind).kind for kind in kinds)


def _slice_named(name: str) -> GpuPart:
    """MIG slice, partition or vGPU of a name; else the whole board."""
    if found := _MIG.search(name):
        board, slices = _without(name, *found.span()), int(found[2] or found[3])
        quartered = any(word in _QUARTERED for word in re.findall("[a-z0-9]+", board.lower()))
        quartered |= not board and int(found[4]) == _QUARTER_GB * slices
        share = min(Fraction(1), Fraction(slices, 4 if quartered else MIG_SLICES))
        return GpuPart(board, found[1], share, float(found[4]))
    if found := _PARTITION.search(name):
        board, mode = _without(name, *found.span()), found[1].lower()
        each = 6 if mode == "c" and "mi300a" in board.lower() else _PARTITIONS[mode]
        return GpuPart(board, found[0] if each > 1 else "", Fraction(1, each))
    if (found := _VGPU.search(name)) and (whole_gib := _FRAME_BUFFER_GIB.get((found[1] + found[2]).lower())):
        slices, memory_gib = int(found[4] or 0), int(found[5])
        share = min(Fraction(1), Fraction(slices, MIG_SLICES) if slices else Fraction(memory_gib, whole_gib))
        kind = "-".join(filter(None, found.group(2, 3)))
        return GpuPart(found[1], kind, share, float(memory_gib)) if share else GpuPart(name)
    return GpuPart(name)


def _without(name: str, begin: int, end: int) -> str:
    return "-".join(filter(None, [name[:begin].strip("-_. "), name[end:].strip("-_. ")]))


def part_of(board: GpuType, part: GpuPart) -> GpuType:
    """GPU type of a part of a board: by its share, but for memory that its name tells."""
    if not part.kind:
        return board
    share, most_w, limits_w = float(part.share), board.max_power_w, board.power_limits_w
    memory_gib = part.memory_gib or (None if board.memory_gib is None else board.memory_gib * share)
    changes = {
        "idle_power_w": board.idle_power_w * share,
        "max_power_w": None if most_w is None else most_w * share,
        "power_limits_w": None if limits_w is None else [limit_w * share for limit_w in limits_w],
        "speed_factor": board.speed_factor * share,
        "power_factor": board.power_factor * share,
        "memory_gib": memory_gib,
    }
    return board.model_copy(update={name: value for name, value in changes.items() if value is not None})


def joined(kinds: Mapping[str, int]) -> str:
    """Type of a node with GPUs of some types; see `SEVERAL`."""
    several = SEVERAL.join(f"{number} {kind}" for kind, number in kinds.items())
    return several if len(kinds) > 1 else next(iter(kinds))


def host_of(node: str) -> str:
    """Machine of a node, which may be one kind of its GPUs alone: ``n1`` of ``n1/a100_1g.5gb`` and ``n1``."""
    return node.partition("/")[0]


def boards_of(kinds: Mapping[str, int]) -> dict[str, int]:
    """Least number of boards, by model, that hold so many GPUs of each type.

    Their compute has to suffice, and for each type the number of its parts that fit on a board.
    """
    share, least = defaultdict[str, Fraction](Fraction), defaultdict[str, int](int)
    for kind, number in kinds.items():
        part = part_named(kind)
        share[part.model] += number * part.share
        least[part.model] = max(least[part.model], ceil(number / (1 // part.share)))
    return {model: max(ceil(share[model]), least[model]) for model in share}


AS_ONE_TYPE = "slices of several types to slices of one, with their share of boards in all"


def as_one_type(kinds: Mapping[str, int]) -> dict[str, int]:
    """Number of GPUs by type, where slices of several types of a board are as many of one of these types.

    That is the smallest, of which they have at least the same share in all.
    """
    parts = {kind: part_named(kind) for kind in kinds}
    if len({part.model for part in parts.values()}) != 1 or not has_parts(kinds):
        return dict(kinds)
    least = min(parts, key=lambda kind: parts[kind].share)
    share = sum(number * parts[kind].share for kind, number in kinds.items())
    return {least: ceil(share / parts[least].share)}


def unused_idle_w(kinds: Mapping[str, int], types: Mapping[str, GpuType]) -> float:
    """Idle watts of a node's boards that are in none of its parts; `kinds` are its GPUs by type.

    Of types that tell other watts of the same board, the least count.
    """
    if not has_parts(kinds):
        return 0.0
    left: dict[str, Fraction | int] = {**boards_of(kinds)}
    board_w: dict[str, float] = {}
    for kind, number in kinds.items():
        part = part_named(kind)
        left[part.model] -= number * part.share
        whole_w = types[kind].idle_power_w / float(part.share)
        board_w[part.model] = min(whole_w, board_w.get(part.model, whole_w))
    return sum(float(left[model]) * idle_w for model, idle_w in board_w.items())
