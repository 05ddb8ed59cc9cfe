"""Limits that contradict each other, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import BUDGET_ROWS, count, duration, number, quantity, scarce

if TYPE_CHECKING:
    from rich.console import Console

MOST_MEMBERS = 20
COUNTED = ("GPUs", "units")
_CLOSE = 1e-3
DEMANDS = {
    "can_wait": "job '{}' may not wait",
    "preemptible": "job '{}' keeps its GPUs",
    "deadline_s": "deadline of job '{}'",
    "must_finish": "job '{}' must finish",
    "least_progress": "least progress of job '{}'",
    "exclusive": "job '{}' shares with nobody",
}


def label(limit: str) -> str:
    """Words for a limit or a demand, by its name: ``power cap``, ``GPUs of tenant a``."""
    kind, _, rest = limit.partition(".")
    name, _, field = rest.rpartition(".")
    match kind:
        case "jobs":
            return DEMANDS[field].format(name)
        case "budgets":
            return scarce(BUDGET_ROWS.get(rest, rest)).label
        case "tenants" if field == "borrow_gpus":
            return f"GPUs that tenant {name} borrows"
        case "tenants":
            return scarce(f"tenant_{field}:{name}").label
        case "power_domains":
            return scarce(f"power_w:{rest}").label
        case "cluster":
            of = limit.removeprefix("cluster.power_domains.").removesuffix(".power_cap_w")
            return scarce(f"power_w:{of}").label
    row, _, name = limit.partition(":")
    return f"{name} units" if row == "units" else scarce(limit).label


def amount(value: float, unit: str) -> str:
    """Value of a limit with its unit."""
    if unit in ("W", "J", "g"):
        return quantity(value, unit)
    if unit == "s":
        return duration(value)
    return f"{number(value)} {unit.removesuffix('s') if value == 1 else unit}".rstrip()


def change(member: Any) -> str:
    """Say which value would do, and by how much it differs; empty for a demand that is made or not."""
    if member.needed is None or member.value is None:
        return ""
    if member.needed == 0 < member.value and not member.unit:
        return "only none is enough"
    needed, more = amount(member.needed, member.unit), member.needed - member.value
    by = f"{amount(abs(more), member.unit)} {'more' if more > 0 else 'less'}"
    short = member.value if member.insufficient is None else member.insufficient
    if member.unit in COUNTED or abs(member.needed - short) <= _CLOSE * abs(member.needed):
        return f"needs {needed}, {by}"
    return f"{needed} is enough, {by}"


def rows_of(conflict: Any) -> list[tuple[str, str, str]]:
    """Cells of each limit: its name, its value, and the one that would do."""
    return [
        (label(one.limit), "" if one.value is None else amount(one.value, one.unit), change(one))
        for one in conflict.members
    ]


def print_conflict(out: Console, conflict: Any) -> None:
    """Print the limits, and what each of them would need to be."""
    members = conflict.members
    told = "without any one of them the others can be kept" if conflict.minimal else "perhaps not all of them"
    heading(out, "Contradiction", told if len(members) > 1 else "this alone leaves no decision")
    table(out, ["", ">", ""], rows_of(conflict), header=False, most=MOST_MEMBERS)
    enough = [label(one.limit) for one in members if one.enough]
    if not conflict.minimal:
        line(out, ("there was no time to look further", "dim"), indent=2)
    elif not enough:
        besides = "these" if len(members) > 1 else "this"
        told = f"no single change is enough: other limits contradict each other besides {besides}"
        line(out, (told, "dim"), indent=2)
    elif len(enough) < len(members):
        line(out, (f"enough alone: a change of {' or '.join(enough)}", "dim"), indent=2)


def proof_line(conflict: Mapping[str, Any]) -> str:
    """Say what a contradiction shows, by its checked document."""
    members = conflict["members"]
    each = ", and each of them is needed" if conflict.get("minimal") and len(members) > 1 else ""
    told = f"{count(len(members), 'limit')} alone {'leave' if len(members) > 1 else 'leaves'} none{each}"
    values = [member for member in members if member.get("needed") is not None]
    least = sum(map(_is_least, values))
    return f"{told}; {least:,} of {count(len(values), 'value')} proven least" if values else told


def _is_least(member: Mapping[str, Any]) -> bool:
    """True if a value just below the one that is needed is proven to be too little."""
    short, needed = member.get("insufficient"), member["needed"]
    step = 1.0 if member.get("unit") == "GPUs" else _CLOSE * abs(needed)
    return short is not None and abs(needed - short) <= step * (1 + _CLOSE)
