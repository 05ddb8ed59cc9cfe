"""Tables that a benchmark writes into a page of the documentation, between two markers."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from wattsched.topology.arrays import FloatArray

DOCS = Path(__file__).resolve().parent.parent / "docs"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown table; every column but the first is aligned to the right."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def replace_part(page: Path, name: str, content: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->``.

    Raises
    ------
    ValueError
        If the page lacks one of the two markers.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = page.read_text(encoding="utf-8")
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"{page.name} has no part between '{begin}' and '{end}'")
    page.write_text(f"{before}{begin}\n{content.strip()}\n{end}{after}", encoding="utf-8")


def interval(values: FloatArray, digits: int = 2, sign: str = "") -> str:
    """Mean over the seeds, and half of the 95 % confidence interval of Student's t; `sign` may be ``+``."""
    mean = f"{values.mean():{sign}.{digits}f}"
    if len(values) < 2:
        return mean
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {half:.{digits}f}"


def machine() -> str:
    """Describe the machine in one line."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
