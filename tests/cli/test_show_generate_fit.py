"""``wattsched show``, ``generate`` and ``fit``: what they print, and files that other commands take."""

from __future__ import annotations

import json

import pytest

from .conftest import DEMO, refused


def test_show_tells_blocks_budgets_and_jobs(run):
    shown = run("show", DEMO).stdout
    for words in ("A100", "1-16: 16", "8: 8", "7.4 kW", "carbon budget 6.2 kg", "16", "with a deadline"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_show_lists_tenants(run, write):
    table = {"gpus": [1, 2], "pool": ["A", "A"], "rate": [1.0, 1.8], "power_w": [300.0, 600.0]}
    tenants = {
        "vision": {"gpus": 4, "cohort": "lab", "borrow_gpus": 2, "energy_j": 9e5},
        "speech": {"gpus": 2, "cohort": "lab", "weight": 2.0},
        "guests": {"power_w": 1200.0, "carbon_g": 40.0},
        "others": {},
    }
    owners = ["vision"] * 3 + ["speech"] * 2 + ["guests"] * 5 + [None]
    instance = {
        "cluster": {
            "gpu_types": {"A": {"idle_power_w": 50.0}},
            "nodes": [{"name": "n", "gpu_type": "A", "gpus": 8}],
        },
        "tables": {"t": table},
        "tenants": tenants,
        "carbon_g_per_kwh": 400.0,
        "jobs": [
            {"name": f"j{j}", "options": "t", "tenant": t, "remaining_work": 1e4}
            for j, t in enumerate(owners)
        ],
    }
    about = json.loads(run("show", "--json", write(instance)).stdout)
    assert about["capacities"].items() >= {"cohort_gpus:lab": 6.0, "tenant_energy_j:vision": 9e5}.items()
    shown = run("show", write(instance)).stdout
    lines = [" ".join(text.split()) for text in shown.splitlines()]
    for told in (
        "vision 3 GPUs 4 3 to 6 may borrow 2 of lab",
        "energy 900 kJ 270 kJ to 540 kJ",
        "speech 2 GPUs 2 2 to 4 may borrow of lab, weight 2",
        "guests 5 power 1.2 kW 1.5 kW to 3 kW",
        "carbon 40 g 50 g to 100 g",
        "others 0 none",
        "cohort lab has 6 GPUs together: vision, speech",
    ):
        assert told in lines
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("family", ["uniform", "hetero", "sia-like"])
def test_generated_instances_are_reproducible_and_valid(run, tmp_path, family):
    assert family in run("generate", "--list").stdout
    path = tmp_path / "made.json"
    run("generate", family, "--jobs", 12, "--seed", 3, "-o", path, code=0)
    assert run("generate", family, "--jobs", 12, "--seed", 3).stdout == path.read_text()
    assert run("generate", family, "--jobs", 12, "--seed", 4).stdout != path.read_text()
    run("show", path, code=0)


def test_fit_prints_parameters_and_errors_and_writes_a_profile_that_solves(run, tiny, write, tmp_path):
    rows = [
        f"{gpus},{batch},{0.01 + 0.002 * batch + (0.01 + 0.001 * gpus if gpus > 1 else 0)},{100 + batch}"
        for gpus in (1, 2, 4)
        for batch in (8, 16, 32, 64)
    ]
    path = write("gpus,local_batch,step_time_s,power_w\n" + "\n".join(rows) + "\n", "steps.csv")
    profile = tmp_path / "profile.json"
    assert "step time" in run("fit", path, "--model", "mine", "--gpu-type", "G", "-o", profile, code=0).stdout
    tiny["profiles"] = [json.loads(profile.read_text())]
    tiny["jobs"].append({"name": "c", "model": "mine", "remaining_work": 1000.0})
    run("solve", write(tiny), code=0)


def test_show_tells_what_jobs_draw_beyond_the_board_limit(run, tiny, write):
    assert "board" not in run("show", write(tiny)).stdout.replace("at its board limit", "")
    tiny["jobs"][0]["options"][0]["power_w"] = 80.0
    told = run("show", write(tiny)).stdout
    assert "options draw beyond that: up to 80 W on a GPU of G; full then 320 W" in told


def test_fit_prints_every_power_limit_and_is_called_as_the_rows_that_were_chosen(run, write, tmp_path):
    rows = [
        f"{network},{batch},{limit},{batch * (2 - limit / 300)},{limit - batch / 8}"
        for network in ("resnet50", "ncf")
        for batch in (8, 16, 32)
        for limit in (100, 200, 300)
    ]
    content = "network,batch_size,power_limit,time_per_epoch,average_power\n" + "\n".join(rows) + "\n"
    path, profile = write(content, "summary.csv"), tmp_path / "profile.json"
    chosen = ("--where", "network=resnet50", "--samples-per-epoch", "1000")
    result = run("fit", path, *chosen, "-o", profile, code=0)
    assert result.stdout.startswith("resnet50 on GPU: 9 measurements")
    table = result.stdout.partition("Power limits")[2].partition("Relative error")[0]
    limits = json.loads(profile.read_text())["power_limits"]["limit_w"]
    assert [f"{limit:g} W" in table for limit in limits] == [True, True, True]
    assert "static_w" not in result.stdout  # of which nothing is used beside a table of limits
    assert run("fit", path, *chosen, "--model", "mine").stdout.startswith("mine on GPU")
    for command in ("show", "solve"):
        refused(
            run(command, profile),
            "is a profile of a model, not an instance; an instance has it in 'profiles'",
        )


def test_fit_reads_logs_and_says_what_it_left_out_and_what_is_not_known(run, write, tmp_path):
    smi = "timestamp, index, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2026/11/03 08:30:{second:02d}.000, {gpu}, {300 if second > 9 else 60}.00 W, {99 * (second > 9)} %\n"
        for second in range(50)
        for gpu in (0, 1)
    )
    log = write(smi, "run.csv")
    jobs = write("job,batch_size,step_time_s\nrun,64,0.5\nrun,128,0.9\nother,32,0.2\n", "jobs.csv")
    profile = tmp_path / "profile.json"
    result = run("fit", log, "--jobs", jobs, "-o", profile, code=0)
    assert result.stdout.startswith("jobs on GPU: 2 measurements\n")
    # Two jobs have the samples of the one log, once: 40 s less a tenth, to the last sample, on two GPUs.
    assert "  read                 2   0.02  144 samples of 200\n" in result.stdout
    told = "72 of 72 samples of 'run' are in an earlier row or window, too; their GPU hours count once"
    for row in (f"noted {told}", "left out 'other', of which no log has a sample"):
        assert row in " ".join(result.stdout.split())
    assert "too few measurements (2) for an error on unseen data, 8 are enough" in result.stdout
    assert "watts of other configurations count as known to ±15 % (assumed)" in result.stdout
    (job,) = {line for line in result.stdout.splitlines() if line.startswith("  run")}
    assert job.split() == ["run", "2", "72", "100", "99", "%", "300"]
    assert json.loads(profile.read_text())["source"] == "fitted to run.csv, jobs.csv"
    refused(run("fit", log), f"error: {log} is a log of nvidia-smi: give --jobs, the table of its jobs")
    assert "can only be logs: give --jobs" in run("fit", log, jobs).stderr
    assert f"{jobs} is no log of GPUs that is known" in run("fit", jobs, "--jobs", jobs).stderr


@pytest.mark.parametrize(
    ("gpu_type", "watts", "told"),
    [
        ("A100", 441, "441 W were measured of one GPU, as in a step on 2; 'A100' draws 400 W at most"),
        ("nvidia_a100-sxm4-80gb", 800, "'nvidia_a100-sxm4-80gb' draws 400 W at most"),
        ("A100", 439, None),
        ("H100", 650, None),
        ("mine", 5000, None),
    ],
)
def test_fit_points_at_watts_that_no_such_board_draws(run, write, gpu_type, watts, told):
    rows = "".join(f"{k},{batch},0.{batch},{watts * k // 2}\n" for k in (1, 2) for batch in (16, 32))
    path = write(f"gpus,batch_size,step_time_s,power_w\n{rows}", "steps.csv")
    shown = " ".join(run("fit", path, "--gpu-type", gpu_type, code=0).stdout.split())
    assert ("W at most" in shown) == (told is not None)
    assert told is None or told in shown


@pytest.mark.parametrize(
    "content", ["", "gpus,nodes\n1,2\n", "gpus,local_batch,step_time_s,power_w\n1,8,nan,3\n"]
)
def test_fit_refuses_other_tables_in_one_line(run, write, content):
    refused(run("fit", write(content, "steps.csv")))


def test_fit_says_in_its_table_what_it_assumed_of_units_and_of_hours_that_come_twice(run, write):
    clock = [f"{hour:02d}:{minute:02d}" for hour in (1, 2, 2, 3) for minute in range(0, 60, 2)]
    rows = "".join(f"2026/10/25 {time}:00.000, {300 - n}, 99\n" for n, time in enumerate(clock))
    log = write("timestamp, power.draw, utilization.gpu\n" + rows, "night.csv")
    jobs = write("job,batch_size,step_time_s,start\nnight,64,1,\nnight,128,2,2026-10-25 02:00\n", "jobs.csv")
    result = run("fit", log, "--jobs", jobs, "--time-zone", "Europe/Berlin", code=0)
    unit = f"{log}, column 'power.draw': in W, as neither header nor values state a unit"
    hour = f"{jobs}, line 3: of hours that come twice in autumn the likelier one, or else the first"
    assert "assumed " + unit in " ".join(result.stdout.split())
    assert "assumed " + hour in " ".join(result.stdout.split())
    assert "read 2 3.6 " in " ".join(result.stdout.split()), "four hours less a tenth"
    told = f"doubtful {log}: the clock steps back by 1 h on line 62; --time-zone reads both hours"
    assert told in " ".join(run("fit", log, "--jobs", jobs, code=0).stdout.split())
