"""The page of the library: who solves what, how soon, what is open, and which instances are the hardest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tables import machine, table

from wattsched.comparisons.compare import Comparison
from wattsched.comparisons.run import Run
from wattsched.comparisons.statistics import SHIFT_S, shifted_geometric_mean
from wattsched.library.entries import Entry
from wattsched.library.records import Record
from wattsched.version import __version__

HARDEST = 20
SIZES = ("jobs", "tasks", "slots", "gpus")
DIFFICULTIES = ("easy", "hard", "open")


def content(comparison: Comparison, records: Mapping[str, Record], cards: Mapping[str, Entry]) -> str:
    """The tables, one after the other."""
    runs, settings = comparison.runs, comparison.settings
    tried = {run.instance for run in runs}
    records = {name: record for name, record in records.items() if name in tried}
    parts = [
        ("Solved", _solved(comparison)),
        ("Families", _families(runs, records, cards)),
        ("Open", _open(records)),
        (f"The hardest {HARDEST}", _hardest(runs, records, cards)),
    ]
    limit = "no limit" if settings.time_limit_s is None else f"{settings.time_limit_s:g} s"
    about = (
        f"{len(tried)} of {len(cards)} instances; gap {settings.gap:g}, {limit} for each run, "
        f"{settings.threads} thread, wattsched {__version__}, on {machine()}."
    )
    if wrong := [*comparison.disagreements, *comparison.failures]:
        parts.append(("Contradictions and failures", "\n".join(f"- {one}" for one in wrong)))
    return "\n\n".join([about, *(f"## {title}\n\n{text}" for title, text in parts)])


def _solved(comparison: Comparison) -> str:
    """By solver: solved to the gap, and shifted geometric means."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in comparison.runs:
        runs[run.solver].append(run)
    best = _least_times(comparison.runs)
    rows = []
    for solver, group in runs.items():
        tried = [run for run in group if run.status != "skipped"]
        fastest = sum(run.solved and (run.total_s or 0.0) <= 1.1 * best[run.instance] for run in tried)
        decided = sum(run.solver_objective is not None for run in tried)
        rows.append(
            [
                f"`{solver}`",
                f"{sum(run.solved for run in tried)} of {len(tried)}",
                decided,
                fastest,
                f"{_mean_s(tried):.2f}",
                len(group) - len(tried),
            ]
        )
    header = ["solver", "solved to the gap", "with a decision of its own", "within 10 % of the fastest",
              f"seconds, shifted geometric mean ({SHIFT_S:g} s)", "does not take"]  # fmt: skip
    return table(header, rows)


def _mean_s(runs: Sequence[Run]) -> float:
    """Shifted geometric mean over the instances of all problems; who did not solve counts with the limit."""
    spent = [
        (run.total_s or 0.0) if run.solved else max(run.total_s or 0.0, run.time_limit_s or 0.0)
        for run in runs
    ]
    return shifted_geometric_mean(spent)


def _least_times(runs: Sequence[Run]) -> dict[str, float]:
    least: dict[str, float] = defaultdict(lambda: float("inf"))
    for run in runs:
        if run.solved and run.total_s is not None:
            least[run.instance] = min(least[run.instance], run.total_s)
    return least


def _families(runs: Sequence[Run], records: Mapping[str, Record], cards: Mapping[str, Entry]) -> str:
    """By family: how many of each class, how many are proven by a certificate, and solved by each solver."""
    solvers = list(dict.fromkeys(run.solver for run in runs))
    won = Counter((cards[run.instance].family, run.solver) for run in runs if run.solved)
    rows = []
    for family in dict.fromkeys(entry.family for entry in cards.values()):
        mine = [records[name] for name, entry in cards.items() if entry.family == family and name in records]
        classes = Counter(record.difficulty for record in mine)
        proven = sum(record.closed for record in mine)
        told = [classes[kind] for kind in DIFFICULTIES]
        if not mine:
            continue
        rows.append([family, len(mine), *told, proven, *(won[family, solver] for solver in solvers)])
    header = ["family", "instances", *DIFFICULTIES, "proven by certificate", *(f"`{s}`" for s in solvers)]
    return table(header, rows)


def _open(records: Mapping[str, Record]) -> str:
    """Instances that nobody has solved."""
    rows = [
        [
            f"`{record.name}`",
            record.objective_name,
            _number(record.objective),
            _number(record.bound),
            _gap(record.gap),
        ]
        for record in records.values()
        if record.difficulty == "open"
    ]
    if not rows:
        return "None."
    return table(["instance", "objective", "best known", "proven bound", "gap"], rows)


def _hardest(runs: Sequence[Run], records: Mapping[str, Record], cards: Mapping[str, Entry]) -> str:
    """Those that the fewest solvers have solved, the largest proven gaps first, then the longest times."""
    count, least = Counter(run.instance for run in runs if run.solved), _least_times(runs)
    known = [name for name in dict.fromkeys(run.instance for run in runs) if name in records]

    def difficulty(name: str) -> tuple[float, float, float]:
        gap = records[name].gap
        return (count[name], -(float("inf") if gap is None else gap), -least[name])

    rows = []
    for name in sorted(known, key=difficulty)[:HARDEST]:
        size = cards[name].card.size
        what = ", ".join(f"{size[part]:,} {part}" for part in SIZES if part in size)
        solved = [
            f"`{run.solver}` {run.total_s:.1f} s" for run in runs if run.instance == name and run.solved
        ]
        rows.append([f"`{name}`", what, _gap(records[name].gap), ", ".join(solved) or "nobody"])
    return table(["instance", "size", "proven gap", "solved by"], rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _gap(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:.3g} %"


def plot(comparison: Comparison, path: Path) -> None:
    """Write the performance profile, if matplotlib is installed."""
    if find_spec("matplotlib") is None:
        print("no plot: matplotlib is not installed")
        return
    from wattsched.plot import performance_profile, save

    times: dict[str, dict[str, float]] = defaultdict(dict)
    for run in comparison.runs:
        seconds = max(1e-3, run.total_s or 0.0) if run.solved else float("inf")
        times[run.solver][run.instance] = seconds
    save(
        performance_profile(
            times, time_limit_s=comparison.settings.time_limit_s, gap=comparison.settings.gap
        ),
        path,
    )
