"""Every reader of files, the valid file that it is given, and the commands that read the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import wattsched
from tests.fuzz.valid_files import INSTANCES, valid_files


@dataclass(frozen=True)
class Reader:
    """A reader, and what reads files of its kind from the command line.

    Attributes
    ----------
    file : str
        Name of a valid file (`valid_files`), which tells the kind.
    read : callable
        Takes the file, and the folder of the valid ones.
    commands : tuple of str
        ``@`` stands for the file, and a name of `valid_files` for that one.
    """

    file: str
    read: Callable[[Path, Path], object]
    commands: tuple[str, ...] = ()

    def words(self, command: str, file: Path, valid: Path) -> list[str]:
        """Arguments of a command."""
        known = {name: str(valid / name) for name in valid_files()} | {"@": str(file)}
        return [known.get(word, word) for word in command.split()]


def _check(instance: str) -> Callable[[Path, Path], object]:
    def read(file: Path, valid: Path) -> object:
        wattsched.read_result(file)
        return wattsched.check(valid / instance, file)

    return read


def _read_decision(file: Path, valid: Path) -> object:
    from wattsched.instances.io import read_json
    from wattsched.results.documents import decision_of

    return decision_of(read_json(file), str(file))


def _read_frontier(file: Path, valid: Path) -> object:
    from wattsched.instances.io import read_json
    from wattsched.solving.tradeoffs import pareto_of

    document = read_json(file)
    return pareto_of(document if isinstance(document, dict) else {}, str(file))


def _import(form: str, **options: str) -> Callable[[Path, Path], object]:
    def read(file: Path, valid: Path) -> object:
        given = {name: valid / value for name, value in options.items()}
        return wattsched.import_trace(form, file, **given)

    return read


def _fit_log(file: Path, valid: Path) -> object:
    wattsched.fit_profile(file, "m", "G", jobs=valid / "logged.csv", time_zone=ZoneInfo("Europe/Berlin"))
    return wattsched.fit_profile(file, "m", "G", jobs=valid / "logged.csv")


def _fit_log_of_zone(file: Path, valid: Path) -> object:
    """Read a log whose times are seconds since 1970, beside jobs with times of a zone."""
    return wattsched.fit_profile(file, "m", "G", jobs=valid / "logged.csv", time_zone=UTC)


def _read_throughputs(file: Path, valid: Path) -> object:
    from wattsched.instances.traces.gavel import read_pairs

    read_pairs(file)
    return wattsched.import_trace("gavel", valid / "gavel.csv", throughputs=file)


def _read_carbon(file: Path, valid: Path) -> object:
    from wattsched.instances.traces.carbon import read_carbon
    from wattsched.replay.jobs.accounts import Carbon

    trace = read_carbon(file)
    Carbon.of(trace, 0.0)
    return trace.slots(trace.begin, 2, 3600.0)


def _read_jobs(tables: bool) -> Callable[[Path, Path], object]:
    def read(file: Path, valid: Path) -> object:
        from wattsched.instances.clusters import homogeneous_cluster

        jobs, options = (valid / "jobs.csv", file) if tables else (file, valid / "tables.json")
        return wattsched.JobSource(jobs, tables=options).traces(homogeneous_cluster(2, 4))

    return read


def _read_cluster(file: Path, valid: Path) -> object:
    from wattsched.topology.pools import pools_of

    return pools_of(wattsched.read_cluster(file, "A100", 4))


def _read_accounting(file: Path, valid: Path) -> object:
    from wattsched.adapters.slurm.trace import Said, recorded
    from wattsched.reading.inputs import read_text

    said = Said()
    said.add(read_text(file))
    return recorded(said)


def _read_objects(file: Path, valid: Path) -> object:
    from wattsched.adapters.kubernetes.trace import items_of, moment_of, recorded
    from wattsched.instances.io import read_json

    document = read_json(file)
    return recorded(items_of(document), moment_of(document) or 2e9)


SOLVED = "solve @ --json --solver greedy"
REPLAYED = "--json --policy fifo --nodes 2 --gpus-per-node 4"
READERS = (
    *(
        Reader(f"{name}.json", lambda file, _: wattsched.read_instance(file), ("show @", SOLVED))
        for name in INSTANCES
    ),
    *(
        Reader(
            f"{name}-result.json",
            _check(f"{name}.json"),
            ("show @", f"check {name}.json @", f"solve {name}.json --warm @ --json --solver greedy"),
        )
        for name in INSTANCES
    ),
    Reader("decision.json", _read_decision, ("show @", "check sizing.json @")),
    Reader("bound.json", lambda file, _: wattsched.read_replay_bound(file), ("check @",)),
    Reader("frontier.json", _read_frontier, ("show @", "check shifting.json @")),
    Reader("itp.csv", _import("itp"), ("import itp @",)),
    Reader("philly.csv", _import("philly"), ("import philly @",)),
    Reader("pai.csv", _import("pai"), ("import pai @",)),
    Reader(
        "gavel.csv",
        _import("gavel", throughputs="throughputs.json"),
        ("import gavel @ --throughputs throughputs.json",),
    ),
    Reader("throughputs.json", _read_throughputs, ("import gavel gavel.csv --throughputs @",)),
    Reader(
        "nodes.csv",
        lambda file, valid: wattsched.read_experiment(file, valid / "tasks.csv"),
        ("import openb @", "place --nodes @ --tasks tasks.csv --seeds 1-1 --no-bound --json"),
    ),
    Reader(
        "tasks.csv",
        lambda file, valid: wattsched.read_experiment(valid / "nodes.csv", file),
        (
            "import openb nodes.csv @ --window 4",
            "place --nodes nodes.csv --tasks @ --seeds 1-1 --no-bound --json",
        ),
    ),
    Reader(
        "carbon.csv",
        _read_carbon,
        (
            "generate shifting --jobs 2 --slots 2 --carbon @",
            f"replay jobs.csv --tables tables.json --carbon @ {REPLAYED}",
        ),
    ),
    Reader("jobs.csv", _read_jobs(tables=False), (f"replay @ --tables tables.json {REPLAYED}",)),
    Reader("plain.csv", _import("csv"), ("import csv @", f"replay @ {REPLAYED}")),
    Reader("tables.json", _read_jobs(tables=True), (f"replay jobs.csv --tables @ {REPLAYED}",)),
    Reader("sacct.json", _read_accounting),
    Reader("kubectl.json", _read_objects),
    Reader(
        "solution.sol",
        lambda file, valid: wattsched.import_solution(valid / "sharing.json", file),
        ("import solution sharing.json @ --json",),
    ),
    Reader("measured.csv", lambda file, _: wattsched.fit_profile(file, "m", "G"), ("fit @",)),
    Reader("smi.csv", _fit_log, ("fit @ --jobs logged.csv",)),
    Reader("zeus.csv", _fit_log_of_zone, ("fit @ --jobs logged.csv --time-zone UTC",)),
    Reader("query.json", _fit_log_of_zone, ("fit @ --jobs logged.csv --time-zone UTC",)),
    Reader(
        "logged.csv",
        lambda file, valid: wattsched.fit_profile(valid / "smi.csv", "m", "G", jobs=file),
        ("fit smi.csv --jobs @",),
    ),
    Reader("cluster.json", _read_cluster, ("import itp itp.csv --cluster @",)),
    Reader("topology.conf", _read_cluster, ("import itp itp.csv --cluster @",)),
)
"""Of every kind of file."""
