"""Savings in words: tables for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.instances.units import J_PER_KWH
from wattsched.report.replays import EXACT
from wattsched.report.saved import LATE, Interval, group_name
from wattsched.report.terminal import Told
from wattsched.report.wording import count, duration, energy, money, number, percent, quantity

if TYPE_CHECKING:
    from wattsched.report.html.page import Page, Picture
    from wattsched.report.saved import Point, PolicySavings, Savings


NAMES = {"energy_j": "energy", "carbon_g": "CO2", "money": "cost"}


def best_of(found: Savings) -> PolicySavings:
    """The policy that saves most energy, by its mean; none that is there without exact durations, too."""
    return max(_real(found), key=lambda one: -np.inf if one.energy is None else one.energy.mean)


def _real(found: Savings) -> list[PolicySavings]:
    """Policies that are not there without exact durations, too."""
    names = {one.policy for one in found.policies}
    return [one for one in found.policies if one.policy.removesuffix(EXACT) not in names - {one.policy}]


def verdict(found: Savings) -> tuple[str, str]:
    """Summarise what the policy that saves most would save, and who would pay for it."""
    text = f"{count(found.jobs, 'job')} on {count(found.gpus, 'GPU')} in {number(found.days, 3)} days: "
    best = best_of(found)
    if best.energy is None or best.energy.mean <= 0.0:
        return f"{text}no policy saves energy at the completion time of {found.baseline}", _sooner(found)
    least = "at least " if best.bound_only else ""
    part = f"{least}{_share(best.energy)} of the energy"
    text += f"{best.policy} would save {part} at the mean completion time of {found.baseline}"
    if (one := best.losers) is None:
        return text, ""
    late = f"{percent(one.late)} of the jobs would complete more than a tenth later"
    return text, f"{late}, and the 99th percentile would be {percent(one.p99)} of what it is"


def _sooner(found: Savings) -> str:
    """Say which policy completes jobs soonest with the same energy, if any does."""
    times = [(some, one.policy) for one in _real(found) if (some := one.completion) and some.mean > 0.0]
    if not times:
        return ""
    part, policy = max(times, key=lambda pair: pair[0].mean)
    return f"with the same energy jobs would complete {_share(part)} sooner under {policy}"


def saved(found: Savings) -> Told:
    """Parts and amounts that each policy saves."""
    columns = ["policy", ">energy saved", ">that is", ">CO2", ">cost", ">sooner at equal energy"]
    rows = [
        [
            one.policy,
            _or_none(one.energy, _share, "at least " if one.bound_only else ""),
            _or_none(one.energy_j, lambda some: energy(some.mean)),
            _or_none(one.carbon_g, lambda some: quantity(some.mean, "g"), none=""),
            _or_none(one.money, lambda some: money(some.mean, found.currency), none=""),
            _or_none(one.completion, _about),
        ]
        for one in found.policies
    ]
    base = f"{energy(found.energy_j.mean)}, mean completion {duration(found.completion_s.mean)}"
    many = (
        f"means over {count(len(found.seeds), 'seed')}, with 95 % intervals"
        if len(found.seeds) > 1
        else "one seed"
    )
    return "Saved", f"against {found.baseline}: {base}; {many}", columns, rows


def tables_of(found: Savings) -> list[Told]:
    """All tables that have rows."""
    tables = (recorded, saved, limits, events, split, split_savings, losers, sensitivity, frontier)
    return [told for table in tables if (told := table(found))[3]]


def recorded(found: Savings) -> Told:
    """Build the table of what the cluster did by its records, beside the baseline."""
    columns = ["", ">energy", ">mean completion", ">p99"]
    if (record := found.record) is None:
        return "Recorded", "", columns, []
    own_s = (record.completion_s, record.p99_s)
    same_s = (record.baseline_s or found.completion_s.mean, record.baseline_p99_s)
    rows = [
        ["the record", _joules(record.energy_j), *(duration(s) if s else "not recorded" for s in own_s)],
        [found.baseline, _joules(found.energy_j), *(duration(s) if s else "" for s in same_s)],
    ]
    note = f"watts measured for {percent(record.measured)} of the GPU time, of the models for the rest"
    if 0.0 < record.waits < 1.0:
        note += f"; completion of the {percent(record.waits)} of the jobs whose waits are told"
    return "Recorded", note, columns, rows


def _joules(some: Interval) -> str:
    """``830 MJ (230 kWh) ± 4.1 %``."""
    if some.high is None or some.high == some.mean:
        return energy(some.mean)
    return f"{energy(some.mean)} ± {number(100 * (some.high / some.mean - 1.0), 2)} %"


def _about(some: Interval) -> str:
    """``26.3 ± 5.2 %``."""
    if some.high is None:
        return percent(some.mean)
    return f"{number(100 * some.mean, 3)} ± {number(round(100 * (some.high - some.mean), 9), 2)} %"


def limits(found: Savings) -> Told:
    """Build the table of the baseline on GPUs with fixed power limits."""
    last = found.policies[-1].policy
    columns = ["limit", ">energy saved", ">mean completion", ">p99", f">{last}, no later"]
    figures = ("saved", "completion", "p99")
    rows = [
        [
            quantity(one.limit_w, "W"),
            *(_about(Interval.of([getattr(point, name) for point in one.points])) for name in figures),
            _or_none(one.instead, _about),
        ]
        for one in found.limits
    ]
    note = f"of all GPUs, in percent of {found.baseline} without; what {last} saves with jobs no later"
    return "Fixed power limits", note, columns, rows


def events(found: Savings) -> Told:
    """Build the table of what a signal costs under each policy."""
    columns = ["policy", ">not drawn", ">earns", ">mean", ">p99", ">restarts", ">time above"]
    rows = [
        [
            one.policy,
            f"{number(one.not_drawn_j / J_PER_KWH, 3)} kWh",
            money(one.earns, found.currency) if one.earns else "",
            percent(one.completion),
            percent(one.p99),
            f"{one.restarts:+,.3g}",
            duration(one.above_s),
        ]
        for one in found.events
    ]
    return "Events", "completion in percent of that without the signal, restarts beyond its", columns, rows


def split(found: Savings) -> Told:
    """Build the table of energy, CO2 and money by account, by month or by both."""
    keys = _keys(found)
    amounts: dict[str, Callable[[float], str]] = {"energy_j": energy}
    if any(one.carbon_g for one in found.groups):
        amounts["carbon_g"] = lambda grams: quantity(grams, "g")
    if any(one.money is not None for one in found.groups):
        amounts["money"] = partial(money, currency=found.currency)
    columns = [*keys, *(f">{NAMES[name]}" for name in amounts)]
    rows = [
        [*(getattr(one, key) for key in keys), *(told(getattr(one, name)) for name, told in amounts.items())]
        for one in found.groups
    ]
    note = f"under {found.baseline}"
    if "month" in keys:
        note += "; months of UTC, or of the list's own clock where its dates have no zone"
    return f"By {' and '.join(keys)}", note, columns, rows


def split_savings(found: Savings) -> Told:
    """Build the table of what each policy saves by account, by month or by both."""
    keys, rows = _keys(found), list[list[str]]()
    for group in found.groups:
        name = group_name(group.month, group.account)
        for one in found.policies:
            saved = [1.0 - point.group_energy[name] for point in one.met if name in point.group_energy]
            later = [point.group_completion[name] for point in one.met if name in point.group_completion]
            cells = [_about(Interval.of(parts)) if parts else "" for parts in (saved, later)]
            rows.append([*(getattr(group, key) for key in keys), one.policy, *cells])
    note = f"completion in percent of that under {found.baseline}, where the energy above is saved"
    return f"Saved by {' and '.join(keys)}", note, [*keys, "policy", ">energy saved", ">completion"], rows


def _keys(found: Savings) -> list[str]:
    """Return what the energy is split by."""
    return [key for key in ("month", "account") if any(getattr(one, key) for one in found.groups)]


def frontier(found: Savings) -> Told:
    """Energy and completion within every budget."""
    figures = ("energy", "completion")
    names = [f"{one.policy}, {figure}" for one in found.policies for figure in figures]
    rows = []
    for k, power_w in enumerate(found.power_w):
        tried = [one.points[k] for one in found.policies]
        if not any(tried):
            continue
        means = [
            percent(float(np.mean([getattr(p, f) for p in points]))) if points else ""
            for points in tried
            for f in figures
        ]
        budget = "none" if power_w is None else quantity(power_w, "W")
        option = "" if power_w is None else f"energy_j={power_w * found.period_s:.4g}"
        rows.append([budget, *means, option])
    note = f"in percent of {found.baseline}, within so many watts on average; as an option of replay"
    return "Budgets", note, [">budget", *(f">{name}" for name in names), "--budget"], rows


def losers(found: Savings) -> Told:
    """Build the table of those who are served later where the mean is not."""
    columns = ["policy", ">mean", ">p99", ">heaviest 5 %", ">jobs a tenth later"]
    rows = [[one.policy, *_losses(one)] for one in found.policies if one.losers is not None]
    if any(one.losers is not None and one.losers.users for one in found.policies):
        columns += [">users a tenth later", "worst of them"]
    note = f"completion in percent of that under {found.baseline}, where the energy above is saved"
    return "Who is served later", note, columns, rows


def _losses(one: PolicySavings) -> list[str]:
    assert one.losers is not None
    users = one.losers.users
    losses = [percent(getattr(one.losers, name)) for name in ("completion", "heavy", "late")]
    losses.insert(1, _about(Interval.of([point.p99 for point in one.met])))
    if users:
        worst = max(users, key=users.__getitem__)
        later = sum(ratio > LATE for ratio in users.values())
        losses += [f"{later} of {len(users)}", f"{worst}: {percent(users[worst])}"]
    return losses


def sensitivity(found: Savings) -> Told:
    """Build the table of savings with each input at its ends, the widest first."""

    def width(low: float | None, high: float | None) -> float:
        return np.inf if low is None or high is None else abs(high - low)

    ordered = sorted(found.inputs, key=lambda one: -width(one.at_low, one.at_high))
    rows = [[one.name, one.low, _part(one.at_low), one.high, _part(one.at_high)] for one in ordered]
    rows = [["as it is", "", _part(found.as_it_is), "", ""], *rows] if rows else []
    last = found.policies[-1].policy
    note = f"energy saved by {last} on seed {found.seeds[0]}, one input changed"
    return "What it hangs on", note, ["input", ">from", ">saved", ">to", ">saved"], rows


def _share(some: Interval) -> str:
    """``26.3 % (21.1 to 31.4 %)``."""
    if some.low is None or some.high is None:
        return percent(some.mean)
    return f"{percent(some.mean)} ({number(100 * some.low, 3)} to {percent(min(1.0, some.high))})"


def _part(part: float | None) -> str:
    return "none" if part is None else percent(part)


def _or_none(
    some: Interval | None, tell: Callable[[Interval], str], before: str = "", *, none: str = "none"
) -> str:
    return none if some is None else before + tell(some)


def page_of(found: Savings) -> Page:
    """Report of savings, as a page for a browser."""
    from wattsched.report.html.page import Lines, Page, text_table

    text, losses = verdict(found)
    about, _, sentence = text.partition(": ")
    parts: list[Any] = [text_table(*told) for told in tables_of(found)]
    parts.insert(1, _picture(found))
    parts += [Lines("Doubtful", found.doubts)] if found.doubts else []
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
    from wattsched.report.html.page import Picture
    from wattsched.report.html.pictures import Series, chart

    lines = [(one.policy, one.points) for one in found.policies]
    if found.limits:
        lines.append((f"{found.baseline}, fixed limits", [one.points for one in found.limits]))
    drawn = chart(
        [Series(name, _means(points, "energy"), _means(points, "completion")) for name, points in lines],
        "energy of the whole cluster, %",
        "mean completion time, %",
        points=True,
        mark=(100.0, 100.0, found.baseline),
    )
    note = f"each point is a budget or a limit; down and to the left is better; {found.baseline} is 100 %"
    return Picture("Frontier", drawn, note)


def _means(points: Sequence[Sequence[Point]], figure: str) -> list[float]:
    """Means over seeds in percent, budget by budget."""
    return [100.0 * float(np.mean([getattr(point, figure) for point in level])) for level in points if level]
