"""The page of the library: who solves what, how soon, what is open, and which instances are the hardest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness import machine, say, sections, table
from wattsched.comparisons.compare import Comparison
from wattsched.comparisons.run import Run
from wattsched.comparisons.statistics import SHIFT_S, shifted_geometric_mean
from wattsched.environment.version import __version__
from wattsched.library.entries import Entry
from wattsched.library.records import Record

HARDEST = 20
SIZES = ("jobs", "tasks", "slots", "gpus")
DIFFICULTIES = ("easy", "hard", "open")


def content(comparison: Comparison, records: Mapping[str, Record], cards: Mapping[str, Entry]) -> str:
    """The tables, one after the other."""
    runs, settings = comparison.runs, comparison.settings
    tried = {run.instance for run in runs}
    records = {name: record for name, record in records.items() if name in tried}
    least_s = dict.fromkeys(tried, float("inf"))
    for run in runs:
        if run.solved and run.total_s is not None:
            least_s[run.instance] = min(least_s[run.instance], run.total_s)
    parts = {
        "Solved": _solved(runs, least_s),
        "Families": _families(runs, records, cards),
        "Open": _open(records),
        f"The hardest {HARDEST}": _hardest(runs, records, cards, least_s),
    }
    if wrong := [*comparison.disagreements, *comparison.failures]:
        parts["Contradictions and failures"] = "\n".join(f"- {one}" for one in wrong)
    limit = "no limit" if settings.time_limit_s is None else f"{settings.time_limit_s:g} s"
    about = (
        f"{len(tried)} of {len(cards)} instances; gap {settings.gap:g}, {limit} for each run, "
        f"{settings.threads} thread, wattsched {__version__}, on {machine()}."
    )
    return f"{about}\n\n{sections(parts)}"


def _solved(runs: Sequence[Run], least_s: Mapping[str, float]) -> str:
    """By solver: solved to the gap, and shifted geometric means; who did not solve counts with the limit."""
    rows = []
    for solver in dict.fromkeys(run.solver for run in runs):
        group = [run for run in runs if run.solver == solver]
        tried = [run for run in group if run.status != "skipped"]
        fastest = sum(run.solved and (run.total_s or 0.0) <= 1.1 * least_s[run.instance] for run in tried)
        decided = sum(run.solver_objective is not None for run in tried)
        limits = ((run.total_s or 0.0, 0.0 if run.solved else run.time_limit_s or 0.0) for run in tried)
        mean_s = shifted_geometric_mean([max(pair) for pair in limits])
        solved = f"{sum(run.solved for run in tried)} of {len(tried)}"
        rows.append([f"`{solver}`", solved, decided, fastest, f"{mean_s:.2f}", len(group) - len(tried)])
    header = ["solver", "solved to the gap", "with a decision of its own", "within 10 % of the fastest",
              f"seconds, shifted geometric mean ({SHIFT_S:g} s)", "does not take"]  # fmt: skip
    return table(header, rows)


def _families(runs: Sequence[Run], records: Mapping[str, Record], cards: Mapping[str, Entry]) -> str:
    """By family: how many of each class, how many are proven by a certificate, and solved by each solver."""
    solvers = list(dict.fromkeys(run.solver for run in runs))
    won = Counter((cards[run.instance].family, run.solver) for run in runs if run.solved)
    by_family: dict[str, list[Record]] = defaultdict(list)
    for name, entry in cards.items():
        if name in records:
            by_family[entry.family].append(records[name])
    rows = []
    for family, mine in by_family.items():
        classes = Counter(record.difficulty for record in mine)
        counts = (len(mine), *(classes[kind] for kind in DIFFICULTIES), sum(record.closed for record in mine))
        rows.append([family, *counts, *(won[family, solver] for solver in solvers)])
    header = ["family", "instances", *DIFFICULTIES, "proven by certificate", *(f"`{s}`" for s in solvers)]
    return table(header, rows)


def _open(records: Mapping[str, Record]) -> str:
    """Instances that nobody has solved."""
    rows = [
        [
            f"`{record.name}`",
            record.objective_name,
            *("-" if value is None else f"{value:,.6g}" for value in (record.objective, record.bound)),
            _gap(record.gap),
        ]
        for record in records.values()
        if record.difficulty == "open"
    ]
    return table(["instance", "objective", "best known", "proven bound", "gap"], rows) if rows else "None."


def _hardest(
    runs: Sequence[Run],
    records: Mapping[str, Record],
    cards: Mapping[str, Entry],
    least_s: Mapping[str, float],
) -> str:
    """Those that the fewest solvers have solved, the largest proven gaps first, then the longest times."""
    count = Counter(run.instance for run in runs if run.solved)
    known = [name for name in dict.fromkeys(run.instance for run in runs) if name in records]

    def difficulty(name: str) -> tuple[float, float, float]:
        gap = records[name].gap
        return (count[name], -(float("inf") if gap is None else gap), -least_s[name])

    rows = []
    for name in sorted(known, key=difficulty)[:HARDEST]:
        size = cards[name].card.size
        what = ", ".join(f"{size[part]:,} {part}" for part in SIZES if part in size)
        solvers = [f"`{r.solver}` {r.total_s:.1f} s" for r in runs if r.instance == name and r.solved]
        rows.append([f"`{name}`", what, _gap(records[name].gap), ", ".join(solvers) or "nobody"])
    return table(["instance", "size", "proven gap", "solved by"], rows)


def _gap(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:.3g} %"


def plot(comparison: Comparison, path: Path) -> None:
    """Write the performance profile, if matplotlib is installed."""
    if find_spec("matplotlib") is None:
        say("no plot: matplotlib is not installed")
        return
    from wattsched.plot import performance_profile, save

    times: dict[str, dict[str, float]] = defaultdict(dict)
    for run in comparison.runs:
        times[run.solver][run.instance] = max(1e-3, run.total_s or 0.0) if run.solved else float("inf")
    settings = comparison.settings
    save(performance_profile(times, time_limit_s=settings.time_limit_s, gap=settings.gap), path)
