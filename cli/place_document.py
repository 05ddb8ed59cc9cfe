"""Curves of placement policies as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattsched.replay.placement.bounds import Distances
    from wattsched.replay.placement.curves import Curves
    from wattsched.topology.arrays import FloatArray

DECIMALS = 6


def document(curves: Mapping[str, Curves], beyond: Distances | None) -> str:
    """JSON with one curve per line."""
    policies = []
    for policy, of in curves.items():
        arrays = {
            "arrived": of.arrived,
            "allocated_pct": of.allocated_pct,
            "grar": of.grar,
            "eopc_w": of.eopc_w,
            "eopc_cpu_w": of.eopc_cpu_w,
            "eopc_gpu_w": of.eopc_gpu_w,
            "frag_pct": of.frag_pct,
            "failed": of.failed,
        }
        policies.append(_object(policy, arrays))
    bounds = []
    if beyond is not None:
        curves_of_any = {
            "arrived": beyond.arrived,
            "allocated_pct": beyond.allocated_pct,
            "eopc_w": beyond.eopc_w,
        }
        bounds = [_line(name, array, "  ") for name, array in curves_of_any.items()]
        bounds.append(_object("floor_w", beyond.floor_w))
    inside = "{\n" + ",\n".join(bounds) + "\n }" if bounds else "{}"
    return '{\n "policies": {\n' + ",\n".join(policies) + f'\n }},\n "bound": {inside}\n}}\n'


def _object(name: str, arrays: Mapping[str, FloatArray]) -> str:
    lines = [_line(key, array, "   ") for key, array in arrays.items()]
    return f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }"


def _line(name: str, array: FloatArray, indent: str) -> str:
    """One curve; null where it is infinite."""
    values = [round(value, DECIMALS) if math.isfinite(value) else None for value in array.tolist()]
    return f"{indent}{json.dumps(name)}: {json.dumps(values)}"
