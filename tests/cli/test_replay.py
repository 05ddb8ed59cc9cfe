"""``wattsched replay``: tables, JSON, records and plots, and what it refuses."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from rich.console import Console

from .conftest import JOBS, Run, refused

ITP = "job_id,submission_time,duration,num_gpu\nx,5000,4000,1\ny,5500,2000,8\nz,200000,100,2\nw,5600,100,0\n"
PHILLY = "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,600,2,v\n2017-10-09 07:05:00,60,1,w\n"


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["policies"]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_line_per_policy_at_every_width(replay: Run, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def wide() -> Console:
        return Console(width=width, force_terminal=True, color_system=None, highlight=False)

    monkeypatch.setattr("wattsched.cli.replay.console", wide)
    policies = ("gavel-max-min", "fifo", "elastic-completion+zeus")
    result = replay("--policy", ",".join(policies), "--carbon", "400", code=0)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines if line.startswith("  ")] == ["policy", *policies] * 3
    assert lines[0] == "3 jobs on 16 GPUs, rounds of 1 min, durations known exactly; one seed"
    assert " kg" in result.stdout


def test_json_holds_the_figures(replay: Run) -> None:
    found = document(replay("--policy", "fifo", "--round", "0", "--json"))["fifo"][0]
    assert found["jobs"] == 3
    assert found["rounds"] == 5
    assert found["energy_j"] > found["jobs_energy_j"] > 0
    assert found["gap_max"] is None
    assert found["rho_max"] == pytest.approx(1.0)


def grams(replay: Run, *carbon: object) -> float:
    """Grams of CO2 of the small replay."""
    found = document(replay("--policy", "fifo", "--json", "--carbon", *carbon))
    return float(found["fifo"][0]["carbon_g"])


def test_carbon_over_time(replay, write):
    """A forecast of one value is that value; of two it lies between them."""
    same = write("time,g\n2022-07-01T00:00,400\n2022-07-01T01:00,400\n", "same.csv")
    falls = write("time,g\n2022-07-01T00:00,400\n2022-07-01T00:10,100\n", "falls.csv")
    assert grams(replay, 400) == pytest.approx(grams(replay, same))
    assert grams(replay, 400) > grams(replay, falls) > grams(replay, 100) > 0


def test_the_first_job_arrives_at_its_time_in_a_file_of_carbon(replay, write):
    """What a file has before that time does not count; a time that it does not have is an error."""
    days = write(
        "time,g_per_kwh\n" + "".join(f"2022-0{month}-01T00:00,{month}00\n" for month in (1, 2, 3, 4)),
        "days.csv",
    )
    rest = write("2022-03-01T00:00,300\n2022-04-01T00:00,400\n", "rest.csv")
    for carbon in ((rest,), (days, "--start", "2022-03-01"), (days, "--start", "2022-03-01T02:00+02:00")):
        assert grams(replay, *carbon) == pytest.approx(grams(replay, 300))
    late = replay("--carbon", days, "--start", "2023-01-01")
    refused(late, "no value at 2023-01-01 00:00; it reaches from 2022-01-01 00:00 to 2022-05-02 00:00")
    refused(replay("--carbon", days, "--start", "July"), "--start: 'July' is neither a number")


def test_the_end_of_a_file_before_that_of_the_replay_is_told(replay, write):
    file = write("time,g_per_kwh\n2022-03-01T00:00,300\n2022-03-01T00:01,400\n", "short.csv")
    told = replay("--policy", "fifo", "--carbon", file).stderr
    assert "column 'g_per_kwh': the last value stands for " in told
    assert " h without one, 2022-03-01 00:02 to 2022-03-01 " in told


def test_the_cost_is_told_in_the_currency_of_a_file_of_prices(replay, write):
    """80 EUR/MWh for three hours cost as much as 0.08 per kWh, and prices below 0 earn."""
    hours = "".join(f"2026-11-02T0{hour}:00,{{}}\n" for hour in range(3))
    file = write("Datetime (UTC),Price (EUR/MWhe)\n" + hours.format(80, 80, 80), "prices.csv")
    runs = [
        document(replay("--policy", "fifo", "--json", "--tariff", tariff))["fifo"][0]
        for tariff in (file, 0.08, -0.08)
    ]
    kwh = runs[0]["energy_j"] / 3.6e6
    assert [run["money"] for run in runs] == pytest.approx([0.08 * kwh, 0.08 * kwh, -0.08 * kwh])
    assert [run["currency"] for run in runs] == ["EUR", "", ""]
    assert " EUR" in replay("--policy", "fifo", "--tariff", file).stdout
    bound = replay("--policy", "fifo", "--budget", "money=1", "--tariff", "-0.1", "--bound")
    refused(bound, "the price is negative at times, for which there is no bound")


def test_a_zone_of_a_table_of_carbon_is_named_and_errors_name_the_nearest_or_all(replay, write):
    zones = [f"Z{n}" for n in range(40)]
    hours = [f"2022-07-01T0{hour}:00,{','.join(str(100 + n) for n in range(40))}" for hour in range(2)]
    table = write("\n".join([f"time,{','.join(zones)}", *hours, ""]), "zones.csv")
    one = write("time,avg_CI,wind\n2022-07-01T00:00,107,5\n2022-07-01T01:00,107,6\n", "eia.csv")
    for carbon in ((table, "--zone", "Z7"), (one,)):
        assert grams(replay, *carbon) == pytest.approx(grams(replay, 107))
    for options in ((), ("--zone", "Bavaria")):
        told = replay("--carbon", table, *options, code=2).stderr
        assert all(f"'{zone}'" in told for zone in zones)
    refused(replay("--carbon", table, "--zone", "z39"), "no column 'z39' (did you mean 'Z39'?)\n")


def test_records_and_plot(replay: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replay("--policy", "fifo,elastic", "-o", out, "--plot", out / "r.svg", code=0)
    for policy in ("fifo", "elastic"):
        rows = list(csv.DictReader((out / f"{policy}-0-jobs.csv").open()))
        assert [row["job"] for row in rows] == ["a", "b", "c"]
        assert all(float(row["end_s"]) > float(row["arrival_s"]) for row in rows)
        assert len((out / f"{policy}-0-rounds.csv").read_text().splitlines()) > 2
        assert (out / f"{policy}-0-power.csv").read_text().startswith("time_s,power_w\n")
    assert set(json.loads((out / "summary.json").read_text())["policies"]) == {"fifo", "elastic"}
    assert (out / "r.svg").read_text().startswith("<?xml")


def test_parquet_needs_its_packages(replay: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "wattsched.environment.extras.find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    result = replay("--parquet", "-o", tmp_path / "out")
    refused(result, "--parquet needs pyarrow, which is not installed (pip install 'wattsched[parquet]')")
    assert not (tmp_path / "out").exists()


def test_records_as_parquet(replay: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for form in ([], ["--parquet"]):
        replay("--policy", "fifo", *form, "-o", out, code=0)
    for name in ("jobs", "rounds", "power"):
        exact = pd.read_parquet(out / f"fifo-0-{name}.parquet")
        printed = pd.read_csv(out / f"fifo-0-{name}.csv")
        if name == "rounds":  # two runs, so the wall clock of their decisions differs
            exact, printed = exact.drop(columns="decision_s"), printed.drop(columns="decision_s")
        pd.testing.assert_frame_equal(exact, printed, rtol=1e-8, check_dtype=False)


def test_options_of_a_format(replay: Run) -> None:
    found = document(replay("--format", "philly", "--virtual-cluster", "w", "--json", trace=PHILLY))
    assert found["sizing"][0]["jobs"] == 1
    pai = "arrival_time,length,cpus\n0,60,3\n10,30,1\n"
    guessed = replay("--format", "pai", "--policy", "fifo", "--json", trace=pai)
    assert "the times are taken for hours" in guessed.stderr
    hours = document(guessed)["fifo"][0]
    seconds = document(replay("--format", "pai", "--unit", "s", "--policy", "fifo", "--json", trace=pai))
    assert hours["makespan_s"] == pytest.approx(60 * 3600)
    assert seconds["fifo"][0]["makespan_s"] == pytest.approx(90)


def test_public_traces(replay: Run) -> None:
    found = document(
        replay("--format", "itp", "--policy", "fifo", "--seeds", "1-2", "--to", "1", "--json", trace=ITP)
    )
    assert [run["jobs"] for run in found["fifo"]] == [2, 2]
    later = document(replay("--format", "itp", "--policy", "srtf", "--from", "1", "--json", trace=ITP))
    assert later["srtf"][0]["jobs"] == 1
    found = document(replay("--format", "philly", "--json", trace=PHILLY))
    assert found["sizing"][0]["jobs"] == 2


def test_a_budget_is_kept(replay: Run, tmp_path: Path) -> None:
    """Sixteen idle GPUs and two nodes draw 1,200 W."""
    (tmp_path / "tariff.csv").write_text("time,per_kwh\n2024-01-01T00:00:00Z,0.3\n2024-01-01T01:00:00Z,0.1\n")
    for asked in (
        ("energy_j=6e6",),
        ("carbon_g=700", "--carbon", "400"),
        ("money=0.4", "--tariff", tmp_path / "tariff.csv"),
    ):
        options = ("--policy", "fifo,sizing", "--round", "0", "--period", "hour", "--budget", *asked)
        for runs in document(replay(*options, "--json")).values():
            assert 0 < runs[0]["budget_used_max"] <= 1 + 1e-9
    printed = replay("--budget", "energy_j=6e6", "--period", "hour").stdout
    assert "Budget  part of it that was used in a period" in printed


@pytest.mark.parametrize(
    ("trace", "fault"),
    [
        ("job,arrival_s,work\n", "line 1: the column 'requested_gpus' is missing"),
        ("job," + JOBS, "line 1: the column 'job' occurs twice"),
        (JOBS.split("\n")[0] + "\n", "has no job"),
        (JOBS + "a,0,1,1,bert,,\n", "line 5, column 'job': the job 'a' occurs twice"),
        (JOBS + "d,-1,1,1,bert,,\n", "column 'arrival_s': must be at least 0, got -1"),
        (JOBS + "d,0,0,1,bert,,\n", "column 'work': must be at least 1e-12, got 0"),
        (JOBS + "d,0,1,0,bert,,\n", "column 'requested_gpus': must be at least 1, got 0"),
        (JOBS + "d,1e13,1,1,bert,,\n", "column 'arrival_s': must be at most 1,000,000,000,000, got 1e13"),
        (JOBS + "d,0,1,8,bert,,4\n", "column 'requested_gpus': is 8, above max_gpus 4"),
        (JOBS + "d,0,1,32,bert,,\n", "column 'requested_gpus': is 32, the cluster has 16 GPUs"),
        (JOBS + "d,0,1,1,,,\n", "give a model or a table"),
        (JOBS + "d,0,1,1,bert,mine,\n", "give a model or a table"),
        (JOBS + "d,0,1,1,alexnet,,\n", "'alexnet' is not in the catalogue"),
        (JOBS + "d,0,1,1,,yours,\n", "there is no table 'yours', there are mine"),
        (JOBS + "d,0,1,1,yolov3,,\n", "job 'd' has the model 'yolov3', which no profile describes on A100"),
    ],
)
def test_lists_that_are_refused(replay: Run, trace: str, fault: str) -> None:
    refused(replay(trace=trace), fault)


def test_time_limits_of_a_list_that_tells_work_are_said_not_to_be_read(replay: Run) -> None:
    head, *rows = JOBS.splitlines()
    trace = "\n".join([f"{head},time_limit", *(f"{row},60" for row in rows)])
    told = replay("--policy", "fifo", trace=trace, code=0).stderr
    assert "not read: the columns 'time_limit'; policies know the work of each job exactly" in told


def test_tables_that_are_refused(replay: Run) -> None:
    refused(replay(tables={"mine": {"gpus": [1], "pool": ["A100"]}}), "mine.power_w: is missing")
    refused(replay(tables=[1]), "must be an object")
    endless = {"gpus": [1, 2], "pool": ["A100"] * 2, "power_w": [200.0] * 2, "rate": [1.0, 1e-200]}
    refused(replay(tables={"mine": endless}), "s in its slowest option, at most 1e+12 are replayed")


def test_a_window_without_jobs_is_refused(replay: Run) -> None:
    refused(replay("--format", "itp", "--from", "9", trace=ITP), "the last one arrives on day 2.257")


def test_jobs_that_end_as_they_arrive_are_served_fairly(replay: Run) -> None:
    """Of work that takes less time than a double can add to the arrival."""
    tiny = "job,arrival_s,work,requested_gpus,model\na,1e12,1e-9,1,bert\n"
    found = document(replay("--policy", "fifo", "--round", "0", "--json", trace=tiny))["fifo"][0]
    assert found["makespan_s"] == 0
    assert found["rho_max"] == 1.0


def test_a_cluster_of_several_pools(replay: Run, write: Callable[..., Path]) -> None:
    nodes = [{"name": f"n{n}", "gpu_type": "A100", "gpus": n} for n in (4, 8)]
    cluster = {"gpu_types": {"A100": {"idle_power_w": 50.0}}, "nodes": nodes}
    file = write({"format": "wattsched-instance/1", "cluster": cluster, "jobs": []})
    only = "job,arrival_s,work,requested_gpus,model\na,0,400000,2,resnet50\n"
    found = document(replay("--cluster", file, "--policy", "elastic,sidecar", "--json", trace=only))
    assert [runs[0]["jobs"] for runs in found.values()] == [1, 1]


def test_jobs_tuned_by_zeus(replay: Run) -> None:
    plain = document(replay("--policy", "fifo,fifo+zeus", "--json"))
    assert plain["fifo+zeus"][0]["jobs_energy_j"] < plain["fifo"][0]["jobs_energy_j"]


@pytest.mark.parametrize("where", ["option", "budgets", "power_domains"])
def test_a_cap_is_held_wherever_it_stands(replay: Run, write: Callable[..., Path], where: str) -> None:
    nodes = [{"name": f"n{i}", "gpu_type": "A100", "gpus": 8, "base_power_w": 200.0} for i in range(2)]
    cluster = {"gpu_types": {"A100": {"idle_power_w": 50.0}}, "nodes": nodes}
    instance = {"format": "wattsched-instance/1", "cluster": cluster, "jobs": []}
    if where == "budgets":
        instance["budgets"] = {"power_w": 2400.0}
    if where == "power_domains":
        cluster["power_domains"] = [{"name": "feed", "members": ["n0", "n1"], "power_cap_w": 2400.0}]
    own = ("--power-w", 2400) if where == "option" else ()
    options = ("--cluster", write(instance), "--policy", "backfill,sizing", "--json", *own)
    for name, (found,) in document(replay(*options)).items():
        assert found["peak_w"] <= 2400.0 * (1 + 1e-9), name
        assert (found["above_cap_s"], found["cap_used_max"]) == (0.0, pytest.approx(found["peak_w"] / 2400.0))
    free = document(replay("--policy", "backfill", "--json"))["backfill"][0]
    assert free["peak_w"] > 2400.0
    assert free["above_cap_s"] is None


def test_a_cap_below_the_idle_cluster_is_refused(replay: Run) -> None:
    refused(replay("--power-w", "1000"), "--power-w: must be at least 1200, the watts when idle, got 1000")


def test_the_table_says_who_knows_durations(replay: Run) -> None:
    lines = replay("--policy", "fifo,srtf", code=0).stdout.splitlines()
    assert lines[3].endswith("knows durations")
    assert [line.split()[-1] for line in lines[4:6]] == ["no", "exact"]
