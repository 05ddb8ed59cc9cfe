r"""The price of a budget: what a joule, a gram or a unit of money is worth at the moment.

The price follows the spending as in online dual descent (Balseiro, Lu, Mirrokni, "The best of many worlds:
dual mirror descent for online allocation problems", Operations Research 2023), here multiplicatively and with
the time that is left as its clock:

.. math:: \mathrm{d}\ln\lambda = k \left(\frac{W}{W_{even}} - 1\right) \frac{\mathrm{d}t}{T_{left}},

where W is the draw since the last decision above that of idle GPUs, and :math:`W_{even}` the constant one
that would spend what is left. So a burst is served when the budget is well spent later, and what is still
left near the end of a period makes the price fall until it is spent.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.budget import Allowance
from wattsched.replay.jobs.policy import Setting

GAIN = 8.0
"""k: the price adapts within an eighth of the time left."""

MOST_BURST = 2.0
"""Times the even draw that a round may use."""

REVIEWS = 288
"""Decisions per period at least, every five minutes of a day."""

_STEP = 1.0
"""Most that the logarithm of the price changes at once."""


def next_review_s(time_s: float, setting: Setting) -> float:
    """When a budget is to be looked at again."""
    assert setting.budget is not None
    return time_s + max(setting.round_s, setting.budget.period_s / REVIEWS)


class Price:
    """Value of a unit of the budget, in the value of a round's program."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._value = self.later = 0.0
        self._before: tuple[float, Allowance] | None = None

    @property
    def unknown(self) -> bool:
        """Whether the price has to begin with one of a round."""
        return self._value <= 0

    def begin(self, value: float) -> None:
        """Begin with a round's price of the even draw."""
        self._value = self.later = max(value, 0.0)

    def at(self, time_s: float, allowance: Allowance) -> float:
        """Price now, after what has been spent since the last time."""
        if self._before is not None and self._value > 0:
            then_s, then = self._before
            seconds = time_s - then_s
            if 0 < seconds < then.left_s:
                # In the same period: what was spent, against an even spending of what was left.
                even = (then.even_w - then.standing_w) / then.even_w * then.left * seconds / then.left_s
                standing = then.left * seconds / then.left_s - even
                ratio = (then.left - allowance.left - standing) / max(even, 1e-300)
                step = GAIN * (ratio - 1.0) * seconds / then.left_s
                self._value *= float(np.exp(np.clip(step, -_STEP, _STEP)))
            # The price of later is the mean of the past one over about a period.
            share = 1.0 - np.exp(-max(seconds, 0.0) / self._period_s)
            self.later += share * (self._value - self.later)
        self._before = (time_s, allowance)
        return self._value
