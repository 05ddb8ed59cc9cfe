"""Names that a reader of some format may take for something else."""

from __future__ import annotations

import random

_WORDS = r"""
inf infinity inference infer-7 info nan nancy free st s.t. subject to such that end bounds bound min max
minimize maximise gen generals int integers bin binary sos sos1 sos2 semi cost constant rhs rng bnd objsense
rows columns endata marker intorg 'marker' e12 1e5x 0x1f 1.5 .5 -3 +inf 3job x0 x1 r0 x0_x1 low a_low
null none true 1,5 -5 =cmd|'/C'!A1 @SUM(A1) +1+1 -1+1 '=1 ''=1 '-5 "quoted" <script>alert(1)</script>
<img/src=x/onerror=alert(1)> &amp; {{7*7}} {%raw%} ${x} %s %(a)s [red]x[/red] \033[31m ../../etc C:\x
#note # // --x ;,;
"""
_SIGNS = [
    " ",
    '"',
    "'",
    "`",
    "\\",
    "\\*",
    ":",
    "::",
    "<=",
    ">= 1",
    "]^2",
    "ä",
    "作业",
    "😀",
    "é",
    "e\u0301",
    ",",
    ";",
]


def hostile_names(count: int, seed: int = 46) -> list[str]:
    """Different names of 1 to 200 characters."""
    drawn, long = random.Random(seed), ["x" * 200, "x" * 199 + "y", "ß" * 200]
    words = [*_WORDS.split(), *_WORDS.upper().split()]
    names = dict.fromkeys([*words, *(sign for sign in _SIGNS if sign.strip()), *long])
    while len(names) < count:
        name = "".join(drawn.choices([*words, *_SIGNS, "_", "-", "7"], k=drawn.randint(2, 4))).strip()
        names[name or "x"] = None
    return list(names)[:count]
