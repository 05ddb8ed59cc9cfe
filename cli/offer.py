"""``wattsched offer``: what a site can sell, less draw for some time, and what that costs its jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import (
    JSON_SUFFIXES,
    answer_text,
    progress,
    read_instance,
    save_plot,
    shown,
    stray_output_to_stderr,
    write,
)
from wattsched.cli.outputs import Command, ParamType, json_option, output_option, plot_option
from wattsched.cli.parameters import FileName, Limits, Listed, Number, Whole, limit_options, refuse_given
from wattsched.cli.solve import EXIT_CODES
from wattsched.environment.extras import late
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.reading.inputs import notice
from wattsched.report.terminal import console, heading, line, table
from wattsched.report.wording import duration, magnitude, money, number, percent, quantity, spoken
from wattsched.verification.shifting.checker import TOTALS

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.solving.offers import Cut, Offer


def seconds_in(text: str) -> float:
    """Seconds of a duration such as ``2h``."""
    seconds = magnitude(text) if re.fullmatch(r"\d{1,9}(\.\d+)? ?(s|min|h|d)", text) else None
    if not seconds:
        raise ValueError(f"'{text}' is no duration above 0 such as 30min or 2h; units are s, min, h, d")
    return seconds


class Time(ParamType):
    """A time of the clock, or a date with a time."""

    name = "time"

    def read(self, value: Any) -> datetime | time:
        """Read it."""
        try:
            if ":" in value[:3]:
                return datetime.strptime(value, "%H:%M").time()
            return datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"'{value}' is neither a time as 15:00 nor one as 2026-07-14T15:00+02:00"
            ) from None


@click.command("offer", cls=Command)
@click.argument("file", metavar="INSTANCE")
@click.option(
    "--at", "at_s", type=Time(), metavar="TIME", help="When the event begins: 15:00, or with a date."
)
@click.option(
    "--for",
    "lasts_s",
    type=Listed("duration", seconds_in),
    metavar="D,...",
    help="How long it lasts: 2h, or 30min,1h for several offers.",
)
@click.option("--signal", type=FileName(), metavar="FILE", help="Offer the wishes of a signal, each alone.")
@click.option("--start", type=Time(), default="00:00", metavar="TIME", help="When the horizon begins.")
@click.option(
    "--shortest-slot-s",
    type=Number(above=0.0),
    metavar="S",
    help="Split slots where the event or the signal changes, into none shorter than so many seconds.",
)
@click.option("--points", type=Whole(1, 100), default=6, help="Cuts of each duration.")
@limit_options
@output_option(*JSON_SUFFIXES, help="Write all figures and plans to a .json or .json.gz file.")
@plot_option("Draw what the cuts cost; not with --signal.")
@json_option("all figures and plans")
def command(
    file: str,
    at_s: datetime | time | None,
    lasts_s: list[str] | None,
    signal: str | None,
    start: datetime | time,
    shortest_slot_s: float | None,
    points: int,
    limits: Limits,
    output: str | None,
    plot: str | None,
    as_json: bool,
) -> int:
    """Say what a site can sell: how many kW less for how long, and what that costs the jobs of INSTANCE.

    INSTANCE is of shifting ('-' is standard input). It is planned without an event, and under cuts of what
    that draws, up to the largest that can be kept. The exit code is that of solving it without an event.
    """
    from wattsched.instances.errors import sourced
    from wattsched.instances.signals import read_signal
    from wattsched.solving.offers import offer

    if signal is not None:
        refuse_given(("at_s", "lasts_s", "points", "plot"), "cannot be combined with --signal")
    elif at_s is None or lasts_s is None:
        raise BadInput("give --at and --for, when an event begins and how long it lasts, or --signal")
    if isinstance(start, time):
        if not isinstance(at_s, time):
            raise BadInput("--start must be a date with a time, as the event has a date")
        start = datetime.combine(datetime.min, start)
    elif start.tzinfo is None and not isinstance(at_s, time):
        notice("--start: assumed: it has no zone and is UTC")
        start = start.replace(tzinfo=UTC)
    event = datetime.combine(start, at_s, start.tzinfo) if isinstance(at_s, time) else at_s or start
    after = event.replace(tzinfo=event.tzinfo or start.tzinfo) - start
    # A time of the clock is the next one that it shows.
    begin_s = (after % timedelta(days=1) if isinstance(at_s, time) else after).total_seconds()
    asked = None if signal is None else read_signal(signal)
    if (instance := read_instance(file)).problem != "shifting":
        raise BadInput(f"{shown(file)}: problem: must be 'shifting', got '{instance.problem}'")
    with sourced(shown(file)), refusing(), progress(f"planning {file}"), stray_output_to_stderr():
        seconds = [seconds_in(one) for one in lasts_s or ()]
        how = {"points": points, "shortest_slot_s": shortest_slot_s, **vars(limits)}
        found = offer(instance, begin_s, seconds, signal=asked, start=start, **how)
    wishes = sum(one.worth_per_kwh is not None for one in asked.limits) if asked else 0
    if found.cuts and (beyond := wishes - len(found.cuts)) > 0:
        told = f"{beyond:,} of {wishes:,} wishes, beyond the horizon or no lower than the firm limits"
        notice(f"{signal}: left out: {told}")
    if output is not None:
        write(output, answer_text(found))
    if plot is not None and found.cuts:
        save_plot(late("plot:frontier")(found), plot)
    if as_json:
        write(None, answer_text(found))
    else:
        print_offer(console(), found)
    return EXIT_CODES[found.termination.reason]


def print_offer(out: Console, found: Offer) -> None:
    """Print the plan without an event, and what cuts of each duration, and wishes, cost."""
    total, plan = TOTALS[found.objective], found.plan
    goal = plan.termination.detail
    if plan.decision is not None:
        goal = f"{found.objective} {spoken(total, plan.totals[total], found.currency)} without an event"
    line(out, (found.instance, "bold"), f": {plan.termination.reason.replace('_', ' ')}: {goal}")
    for slots, group in groupby(found.cuts, lambda cut: 0 if cut.wish else cut.slots):
        cuts = [*group]
        first, title = cuts[0].first_slot, ", ".join(map(duration, cuts[0].lasts_s)) or "Wishes"
        note = f"slots {first} to {first + slots - 1}" if slots > 1 else f"slot {first}"
        if isinstance(found.slot_s, list):
            begin_s, lasts_s = sum(found.slot_s[:first]), sum(found.slot_s[first : first + slots])
            note += f", for {duration(lasts_s)} from {duration(begin_s)} on"
        heading(out, title, note if slots else "each alone, beside the firm limits")
        lost = {"mean-completion": "job hours"}.get(found.objective, found.objective)
        columns = [">cut" if slots else "wish", ">not drawn", ">earns", ">later on average"]
        kept = [[*_row(found, cut, cut.loss)] for cut in cuts if cut.loss is not None]
        if kept:
            table(out, [*columns, f">{lost}", ">per kWh", ">at least", "plan"], kept)
        if cuts[-1].power_w == 0:
            line(out, "nothing can be cut: in some of these slots only idle GPUs draw", indent=2)
        refused = {_what(cut) if cut.wish else cut.result.termination.reason: cut for cut in reversed(cuts)}
        for cut in reversed([cut for cut in refused.values() if cut.loss is None]):
            ended = cut.result.termination
            line(out, f"{_what(cut)}: {ended.reason.replace('_', ' ')}: {ended.detail}", indent=2)


def _what(cut: Cut) -> str:
    """Watts of a cut, or when a wish begins and ends."""
    if (wish := cut.wish) is None:
        return quantity(cut.power_w or 0.0, "W")
    to = "on" if wish.to is None else f"to {wish.to.astimezone(wish.begin.tzinfo):%H:%M}"
    return f"{wish.begin:%d %b %H:%M} {to} {wish.begin:%Z}"


def _row(found: Offer, cut: Cut, loss: float) -> Iterator[str]:
    """Cells of a cut: what it is, what it saves and earns, and what it costs."""
    kwh, completion = (cut.not_drawn_j or 0.0) / J_PER_KWH, found.objective == "mean-completion"
    yield _what(cut)
    yield f"{number(kwh, 3)} kWh"
    yield money((cut.wish.worth_per_kwh or 0.0) * kwh, found.currency) if cut.wish else ""
    yield duration(loss) if completion else ""

    def told(loss: float) -> str:
        """A loss of all jobs, in words."""
        if completion:
            return number(loss * found.weight / S_PER_H, 3)
        return spoken(TOTALS[found.objective], loss, found.currency)

    yield told(loss)
    yield told(loss / kwh) if kwh > 0 else ""
    yield told(cut.least_loss)
    ended, gap = cut.result.termination.reason.replace("_", " "), cut.result.gap
    yield "" if ended == "optimal" else ended if gap is None else f"{ended}, gap {percent(gap)}"
