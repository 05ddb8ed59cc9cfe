"""Tables of means by formulation and solver: for terminals and pages, and ready for a paper."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from wattsched.comparisons.run import Run, Settings
from wattsched.comparisons.statistics import SHIFT_S, Summary
from wattsched.report.wording import number

TITLES = ("formulation, solver", ">solved", ">build s", ">solve s", ">95 %", ">total s", ">integral s", ">p")
"""Columns of `cells`, with ``>`` before those that are aligned on the right."""

NOTE = (
    f"shifted geometric ({SHIFT_S:g} s), unsolved runs at the time limit; 95 %: interval of solve s over "
    "instances; integral s: primal integral; p: of differences as large to the quickest, were both as quick"
)


def label_of(run: Run, *, seeds: bool) -> str:
    """Formulation and solver of a run, and its seed where there are several `seeds`."""
    return f"{run.pair}, seed {run.seed}" if seeds else run.pair


def shown(summaries: Sequence[Summary], best: Summary | None) -> list[Summary]:
    """Summaries of those that were run, and of the virtual best."""
    return [one for one in [*summaries, *([] if best is None else [best])] if one.runs > one.skipped]


def cells(one: Summary) -> list[str]:
    """Figures of a summary, a text for each of `TITLES`."""
    interval = "" if one.solve_interval_s is None else "-".join(f"{end:.2f}" for end in one.solve_interval_s)
    times = [f"{seconds:.2f}" for seconds in (one.build_s, one.solve_s, one.total_s)]
    p = "" if one.p_of_best is None else number(one.p_of_best, 2)
    integral = "" if math.isnan(one.primal_integral_s) else f"{one.primal_integral_s:.2f}"
    return [
        one.pair,
        f"{one.solved} of {one.runs - one.skipped}",
        *times[:2],
        interval,
        times[2],
        integral,
        p,
    ]


def markdown(summaries: Iterable[Summary], settings: Settings) -> str:
    """Means as a Markdown table, with what they mean below."""
    titles = [title.removeprefix(">") for title in TITLES]
    rules = ["--:" if title.startswith(">") else ":--" for title in TITLES]
    rows = [[text.replace("|", r"\|") for text in cells(one)] for one in summaries]
    body = "".join(f"| {' | '.join(row)} |\n" for row in (titles, rules, *rows))
    return f"{body}\nMeans: {NOTE}. {_limits(settings)}\n"


def _limits(settings: Settings) -> str:
    """Say under which limits the runs were."""
    seconds = "none" if settings.time_limit_s is None else f"{settings.time_limit_s:g} s"
    return f"Gap {settings.gap:g}, time limit {seconds}, threads {settings.threads}."


def latex(summaries: Iterable[Summary], settings: Settings) -> str:
    """Means as a LaTeX table, which needs the package booktabs."""
    sides = "".join("r" if title.startswith(">") else "l" for title in TITLES)
    titles = " & ".join(_escaped(title.removeprefix(">")) for title in TITLES)
    rows = "".join(f"{' & '.join(map(_escaped, cells(one)))} \\\\\n" for one in summaries)
    body = f"\\toprule\n{titles} \\\\\n\\midrule\n{rows}\\bottomrule\n"
    note = f"{NOTE}. {_limits(settings)}".replace("%", "percent")
    return f"% {note}\n\\begin{{tabular}}{{{sides}}}\n{body}\\end{{tabular}}\n"


def _escaped(text: str) -> str:
    """Text in which nothing has a meaning to LaTeX, ranges with a dash."""
    text = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", "/").replace("~", "-").replace("^", ""))
    return re.sub(r"(?<=\d)-(?=\d)", "--", text)
