from __future__ import annotations

import json

import pytest

from .conftest import DEMO, refused

ITP = "job_id,submission_time,duration,num_gpu\n" + "".join(
    f"job{i},{100 * i},{20000 + 50 * i},{1 << i % 4}\n" for i in range(20)
)


def test_trace_becomes_a_round_that_solves(run, write, tmp_path):
    path, again = tmp_path / "round.json", tmp_path / "again.json.gz"
    arguments = [
        "import",
        "itp",
        write(ITP, "cluster.csv"),
        "--at",
        1500,
        "--nodes",
        4,
        "--power-fraction",
        0.7,
    ]
    run(*arguments, "-o", path, code=0)
    run(*arguments, "-o", again, code=0)
    instance = json.loads(path.read_text())
    assert len(instance["jobs"]) == 16
    assert len(instance["cluster"]["nodes"]) == 4
    run("solve", path, code=0)
    assert "16 running" in run("show", again).stdout or "running" in run("show", again).stdout


def test_formats_and_their_options_are_listed(run):
    listed = run("import", "--list").stdout
    for name in ("openb", "itp", "philly", "pai", "gavel"):
        assert name in listed
        run("import", name, "--help", code=0)
    assert "--virtual-cluster" in run("import", "philly", "--help").stdout


def test_openb_nodes_are_a_cluster(run, write, tmp_path):
    nodes = write("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1,2,P100\nn2,96000,1,8,G3\n", "nodes.csv")
    assert "P100" in run("show", "-", stdin=run("import", "openb", nodes).stdout, code=0).stdout
    trace = write(ITP, "cluster.csv")
    made = run("import", "itp", trace, "--cluster", nodes)
    assert json.loads(made.stdout)["cluster"]["name"] == "openb"


def test_files_without_names_of_jobs_go_together(run, write):
    rows = [f"2017-10-0{day} 07:00:00,90000,1,{1 << day % 3},v\n" for day in range(1, 5)]
    head = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    first, second = (
        write(head + "".join(half), f"{n}.csv") for n, half in (("a", rows[:2]), ("b", rows[2:]))
    )
    alone = json.loads(run("import", "philly", first, "--at", 86400).stdout)
    assert [job["name"] for job in alone["jobs"]] == ["row1", "row2"]
    made = run("import", "philly", first, second, "--at", 86400, code=0)
    names = [job["name"] for job in json.loads(made.stdout)["jobs"]]
    assert names == ["a:row1", "b:row1", "a:row2", "b:row2"]
    (first.parent / "other").mkdir()
    namesake = first.parent / "other" / "a.csv"
    namesake.write_text(second.read_text())
    made = json.loads(run("import", "philly", first, namesake, "--at", 86400).stdout)
    assert [job["name"] for job in made["jobs"]] == ["a-1:row1", "a-2:row1", "a-1:row2", "a-2:row2"]
    refused(
        run("import", "philly", first, first.parent / "other" / ".." / "a.csv"), "the file is named twice"
    )


def test_a_job_that_is_in_two_files_is_refused(run, write):
    refused(
        run("import", "itp", write(ITP, "one.csv"), write(ITP, "two.csv")), "two.csv: the job 'job0' is in"
    )


@pytest.mark.parametrize("name", ["model.mps", "model.lp"])
@pytest.mark.parametrize("formulation", ["mckp", "assignment"])
def test_exported_programs_have_the_optimum_of_the_instance(run, tiny, write, tmp_path, name, formulation):
    highspy = pytest.importorskip("highspy")
    path = tmp_path / name
    run("export", write(tiny), "--formulation", formulation, "-o", path, code=0)
    highs = highspy.Highs()
    highs.silent()
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highs.run()
    assert highs.getInfo().objective_function_value == pytest.approx(300.0)


@pytest.mark.parametrize("form", ["lp", "mps"])
def test_jobs_called_like_numbers_come_back_from_a_solver(run, tiny, write, tmp_path, form):
    highspy = pytest.importorskip("highspy")
    names = ["Infinity", "inf-2", "nanny", "e12", "free", "3d", "ß"]
    tiny["jobs"] = [tiny["jobs"][0] | {"name": name} for name in names]
    instance, model, answer, result = (tmp_path / f"names.{end}" for end in ("json", form, "sol", "out.json"))
    instance.write_text(json.dumps(tiny))
    run("export", instance, "-o", model, code=0)
    highs = highspy.Highs()
    highs.silent()
    assert highs.readModel(str(model)) == highspy.HighsStatus.kOk
    highs.run()
    highs.writeSolution(str(answer), 0)
    run("import", "solution", instance, answer, "-o", result, code=0)
    decision = json.loads(result.read_text())["decision"]
    assert {job["job"] for job in decision["jobs"]} | set(decision["waiting"]) == set(names)
    assert decision["jobs"]


@pytest.mark.parametrize("name", ["tree.json", "topology.conf"])
def test_exported_topology_comes_back_as_a_cluster(run, write, tmp_path, name):
    path, trace = tmp_path / name, write(ITP, "cluster.csv")
    run("export", DEMO, "--topology", "-o", path, code=0)
    made = json.loads(run("import", "itp", trace, "--cluster", path).stdout)
    assert [node["name"] for node in made["cluster"]["nodes"]] == ["a100-1", "a100-2", "v100-1", "v100-2"]
    assert {group["name"] for group in made["cluster"]["groups"]} == {"site", "rack-a", "rack-b"}


def test_size_may_go_with_a_cluster_that_does_not_tell_it(run, write, tmp_path):
    conf = tmp_path / "topology.conf"
    run("export", DEMO, "--topology", "-o", conf, code=0)
    arguments = ["import", "itp", write(ITP, "cluster.csv"), "--at", 1500, "--cluster", conf]
    run(*arguments, "--gpus-per-node", 4, code=0)
    refused(run(*arguments, "--nodes", 4), "--nodes does not go with --cluster")


@pytest.mark.slow
def test_a_solution_of_an_exported_program_becomes_a_result(run, tmp_path, monkeypatch):
    names = ("round.json", "model.mps", "answer.sol", "result.json")
    instance, model, answer, result = (tmp_path / name for name in names)
    run("generate", "uniform", "--jobs", 5, "-o", instance, code=0)
    run("export", instance, "-o", model, code=0)
    names = [line.split()[0] for line in model.read_text().splitlines() if " cost " in line]
    waiting = "".join(f"{name} 1\n" for name in names if name.endswith("_wait"))
    answer.write_text("=obj= 1e30\n" + waiting)
    outcome = run("import", "solution", instance, answer, "-o", result, code=1)
    assert "not valid: 1 fault" in outcome.stdout
    assert "objective: the file says 1e+30, its columns cost" in outcome.stdout
    assert not result.exists()
    cost = outcome.stdout.split()[-1]
    answer.write_text(f"=obj= {cost}\n" + waiting)
    assert "0 run, 5 wait" in run("import", "solution", instance, answer, "-o", result, code=0).stdout
    run("check", instance, result, code=0)
    assert json.loads(result.read_text())["solver"] == "file:gurobi"
    printed = run("import", "solution", instance, answer, "--json").stdout
    assert json.loads(printed)["objective"] == json.loads(result.read_text())["objective"]
    refused(run("import", "solution", instance, model), "is no solution that is known here")

    def nobody_reads(*_: object) -> None:
        raise BrokenPipeError

    result.unlink()
    monkeypatch.setattr("wattsched.report.summary.print_result", nobody_reads)
    run("import", "solution", instance, answer, "-o", result, code=141)
    run("check", instance, result, code=0)
