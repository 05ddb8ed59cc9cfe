"""The report of savings: what is saved, the frontiers, who is served later, and what it hangs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wattsched.report.html.chart import Series, chart
from wattsched.report.html.page import Lines, Page, Part, Picture, text_table
from wattsched.report.savings import best_of, frontier, losers, saved, sensitivity, verdict

if TYPE_CHECKING:
    from wattsched.saved import PolicySavings, Savings


def page_of(found: Savings) -> Page:
    """Report of savings."""
    told, losses = verdict(found)
    about, _, sentence = told.partition(": ")
    parts: list[Part] = [text_table(*saved(found)), _picture(found)]
    parts += [text_table(*some) for some in (losers(found), sensitivity(found), frontier(found)) if some[3]]
    parts.append(Lines("Assumed", found.assumptions))
    energy = best_of(found).energy
    certain = energy is not None and energy.low is not None and energy.low > 0.0
    return Page(
        title="Savings",
        about=about,
        verdict=sentence[:1].upper() + sentence[1:],
        tone="good" if certain else "fair",
        lead=[losses] if losses else [],
        parts=parts,
    )


def _picture(found: Savings) -> Picture:
    drawn = chart(
        [Series(one.policy, _means(one, "energy"), _means(one, "completion")) for one in found.policies],
        "energy of the whole cluster, %",
        "mean completion time, %",
        points=True,
        mark=(100.0, 100.0, found.baseline),
    )
    note = f"each point is a budget; down and to the left is better; {found.baseline} is 100 %"
    return Picture("Frontier", drawn, note)


def _means(one: PolicySavings, figure: str) -> list[float]:
    """Means over seeds in percent, budget by budget."""
    return [100.0 * float(np.mean([getattr(point, figure) for point in level])) for level in one.points]
