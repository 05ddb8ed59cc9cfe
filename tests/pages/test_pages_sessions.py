"""Random histories of a `Session`, each round of which is held against the brute force of what was told.

PAGES_CASES=1000 PAGES_SEED=7 pytest tests/pages/test_pages_sessions.py is a campaign.
"""

import json
import os
import tempfile
from pathlib import Path

import pytest

import wattsched
from tests.pages.pages_cluster import UnclearError
from tests.pages.pages_sessions import History, Told, change_of, places
from tests.pages.pages_sizing import Round
from tests.pages.pages_sizing_search import Search
from tests.pages.test_pages_sizing import compare
from tests.strategies.effort import examples

CASES, SEED = int(os.environ.get("PAGES_CASES", examples(25))), int(os.environ.get("PAGES_SEED", "0"))
CALLS = 25


def refused(told: Told) -> str:
    """Whether "a file would be refused for" what was told, and why."""
    for job in told.jobs.values():
        # "A job that is not `preemptible` has to hold GPUs."
        if job.get("preemptible") is False and not job.get("current"):
            return f"{job['name']} holds nothing"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "round.json"
        path.write_text(json.dumps(told.document()), encoding="utf-8")
        try:
            wattsched.read_instance(path)
        except wattsched.InputError as error:
            return str(error).replace(str(path), "file")
    return ""


class Play:
    """Plays calls to a session and to what the pages say of it; `wrong` is where they differ."""

    def __init__(self, cluster: dict, tables: dict, given: dict):
        self.told = Told(cluster, tables, given)
        self.session = wattsched.Session(cluster, tables=tables, **given)
        self.decisions: list = []
        self.wrong: list[str] = []
        self.rounds = 0

    def call(self, name: str, *given) -> None:
        self.told.calls += 1
        if name == "solve":
            self.solve()
        elif name == "apply":
            self.apply(given[0])
        else:
            new = self.told.copy()
            getattr(new, name)(*given)
            why, error = refused(new), ""
            try:
                if name == "upsert":
                    self.session.upsert(given[0], **given[1])
                elif name == "update":
                    self.session.update(**given[0])
                else:
                    self.session.remove(*given)
            except wattsched.InputError as raised:
                error = str(raised)
            if bool(why) != bool(error):
                self.wrong.append(f"{name}: refused for {error!r}, a file for {why!r}")
            if not error:
                self.told = new
            if sorted(self.session.ids()) != sorted(self.told.jobs) or len(self.session) != len(
                self.told.jobs
            ):
                self.wrong.append(f"ids: {sorted(self.session.ids())}, not {sorted(self.told.jobs)}")

    def apply(self, which: int) -> None:
        if len(self.decisions) < -which:
            return
        made, record, jobs, begun = self.decisions[which]
        new = self.told.copy()
        why, error = "no decision" if record is None else new.apply(record, jobs, begun), ""
        try:
            self.session.apply(made)
        except (ValueError, wattsched.InputError) as raised:
            error = str(raised)
        if bool(why) != bool(error):
            self.wrong.append(f"apply: refused for {error!r}, by the page for {why!r}")
        if not error and record is not None:
            self.told = new

    def solve(self) -> None:
        made = self.session.solve(gap=0.0)
        document = self.told.document()
        self.rounds += 1
        record = json.loads(made.result.model_dump_json())["decision"] if made.solved else None
        jobs = {name: places(job.get("current")) for name, job in self.told.jobs.items()}
        self.decisions.append((made, record, jobs, self.told.calls))
        try:
            round_ = Round(document)
            search = Search(round_)
            best = search.best()
            wrong = compare(document, made.instance, made.result, round_, search, best)
        except UnclearError:
            return
        if any(not rows for name, rows in round_.own.items() if name not in round_.dropped):
            wrong = [] if not made.solved else ["a job that must run cannot"]
        if made.solved != (made.result.termination.reason in ("optimal", "feasible")):
            wrong.append(f"solved is {made.solved}")
        self.wrong += [
            f"solve {self.rounds}: {line}" for line in wrong + self.compare_fields(made, record, round_)
        ]

    def compare_fields(self, made, record, round_) -> list[str]:
        wrong, jobs = [], self.told.jobs
        if sorted(made.ids) != sorted(jobs):
            return [f"ids are {made.ids}"]
        option = dict(zip(made.ids, made.option.tolist(), strict=True))
        if record is None:
            return [] if set(option.values()) <= {-3} else [f"option without a decision: {option}"]
        runs = {one["job"]: one for one in record["jobs"]}
        for name in jobs:
            # "for every job the row of its table, `-1` if it waits"
            if option[name] != (row_of(self.told, round_, name, runs[name]) if name in runs else -1):
                wrong.append(f"option of {name} is {option[name]}, it runs as {runs.get(name)}")
        right = {name: change_of(job.get("current"), runs.get(name)) for name, job in jobs.items()}
        right = {name: change for name, change in right.items() if change}
        if dict(made.changes) != right:
            wrong.append(f"changes are {dict(made.changes)}, not {right}")
        count: dict[str, int] = {}
        for one in runs.values():
            for node, gpus in one["nodes"].items():
                count[node] = count.get(node, 0) + len(gpus)
        if {k: v for k, v in dict(made.gpus_on_nodes).items() if v} != count:
            wrong.append(f"gpus_on_nodes are {made.gpus_on_nodes}, not {count}")
        if set(made.reasons) != round_.dropped:
            wrong.append(f"reasons are {made.reasons}, not of {round_.dropped}")
        if made.objective != made.result.objective or made.bound != made.result.bound:
            wrong.append("objective or bound is not that of the result")
        return wrong


def row_of(told: Told, round_: Round, name: str, one: dict) -> int:
    table = told.jobs[name]["options"]
    table = told.tables[table] if isinstance(table, str) else table
    keys = ("gpus", "frequency_mhz", "power_limit_w", "batch_size")
    for i, pool in enumerate(table["pool"]):
        pools = [p.name for p in round_.matching(pool)]
        if one["pool"] in pools and all(table.get(k, [None] * (i + 1))[i] == one.get(k) for k in keys):
            return i
    return -9


def history(seed: int) -> tuple[list, Play | None]:
    """A history's calls, up to the first that goes wrong, and what was found."""
    plan = History(seed)
    made = [plan.cluster, plan.tables, plan.given]
    try:
        play = Play(*made)
    except wattsched.InputError:
        return made, None
    while len(made) < CALLS + 3 and not play.wrong:
        for call in [["solve"]] if len(made) == CALLS + 2 else plan.calls(play.told):
            made.append(json.loads(json.dumps(call)))
            play.call(*made[-1])
            if play.wrong:
                break
    return made, play


def again(made: list) -> Play:
    """Plays a history that was printed."""
    play = Play(*made[:3])
    for call in made[3:]:
        play.call(*call)
    return play


@pytest.mark.filterwarnings("ignore")
def test_rounds_of_sessions_are_those_of_the_pages():
    rounds = 0
    for seed in range(SEED * 1_000_000, SEED * 1_000_000 + CASES):
        made, play = history(seed)
        if play is None:  # the cluster is refused
            continue
        assert not play.wrong, f"seed {seed}: {play.wrong}\n{json.dumps(made)}"
        rounds += play.rounds
    assert rounds > 2 * CASES
