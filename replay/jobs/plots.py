"""Plots of replays, with matplotlib (``pip install 'wattsched[plot]'``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from wattsched.replay.jobs.outcome import Outcome

SIZE_IN = (8.0, 9.0)
HOUR_S = 3600.0


def plot_outcomes(outcomes: Sequence[Outcome]) -> Figure:
    """Draw completion times, power and occupancy of replays of one trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN, layout="constrained")
    completion, power, occupancy = figure.subplots(3, 1)
    for outcome in outcomes:
        jct_s = np.sort(outcome.jobs.end_s - outcome.trace.arrival_s)
        shares = 100 * np.arange(1, len(jct_s) + 1) / len(jct_s)
        completion.step(jct_s / HOUR_S, shares, where="post", label=outcome.policy, linewidth=1.2)
        times = (np.array(outcome.power.time_s) - outcome.begin_s) / HOUR_S
        power.step(times, np.array(outcome.power.power_w) / 1000, where="post", linewidth=0.8)
        times = (np.array(outcome.rounds.time_s) - outcome.begin_s) / HOUR_S
        occupancy.step(times, outcome.rounds.busy_gpus, where="post", linewidth=0.8)
    completion.set_xscale("log")
    completion.set_xlabel("completion time, h")
    completion.set_ylabel("jobs, %")
    power.set_ylabel("power, kW")
    occupancy.set_ylabel("GPUs in use after a round")
    for axes in (power, occupancy):
        axes.set_xlabel("time, h")
    for axes in (completion, power, occupancy):
        axes.grid(alpha=0.3)
    figure.legend(*completion.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure
