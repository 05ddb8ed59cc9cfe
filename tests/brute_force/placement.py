"""Fragmentation of one node by its definition, task class by task class."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from wattsched.instances.placement.instance import TargetWorkload


def fragments(target: TargetWorkload, model: str, cpu_free: int, gpu_free: Sequence[int]) -> Fraction:
    """Fragmentation of a node in thousandths of a GPU."""
    classes = target.classes
    total = Fraction(0)
    for m in range(len(target)):
        asked, each = int(classes.gpus[m]), int(classes.gpu_milli[m])
        spec = classes.specs[classes.spec[m]]
        large_enough = [r for r in gpu_free if r >= each]
        if asked == 0 or (spec and model not in spec):
            part = sum(gpu_free)
        elif cpu_free >= classes.cpu_milli[m] and len(large_enough) >= asked:
            part = sum(gpu_free) - sum(large_enough)
        else:
            part = sum(gpu_free)
        total += Fraction(int(target.count[m]), int(target.count.sum())) * part
    return total
