"""Logs and tables of jobs that cannot be read are refused in a sentence."""

from datetime import UTC

import pytest

from tests.perfmodels.logs.logged_files import FORMS, logged, table, written
from tests.perfmodels.logs.writers import (
    Job,
    dmon,
    exporter,
    prometheus,
    readings,
    smi,
    zeus,
)
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.logs import read_log
from wattsched.perfmodels.measurements import read_measurements

R = readings(Job("17", 1, 200.0))
SMI = smi(R)
BAD = {
    "no header": (smi(R, header=False), "17.log, line 1: has no header, so that its columns are not known"),
    "no watts": (SMI.replace("power.draw [W]", "power.drawn"), "line 1: has no power.draw; log power.draw"),
    "another unit": (SMI.replace("55.00 W", "55.00 kW", 1), "'55.00 kW': the header says W, not kW"),
    "too much": (SMI.replace("55.00 W", "5e9 W", 1), "5e9 W must be between 0 and 100,000"),
    "negative": (SMI.replace("55.00 W", "-5 W", 1), "-5 W must be between"),
    "no number": (SMI.replace("55.00 W", "much", 1), "'much' is not a number"),
    "no time": (SMI.replace("2026/", "20x6/", 1), "column 'timestamp': '20x6/09/21"),
    "short row": (SMI.replace(", 0, NVIDIA", ", NVIDIA", 2), "line 2: 6 cells, the header has 7 columns"),
    "quoted commas": (
        SMI.replace("55.00 W", '"55,00 W"', 2),
        "line 2: 8 cells, .*: write decimals with points",
    ),
    "dmon without watts": (dmon(R).replace("POWER", "TMPTR"), r"no column POWER \(-e 155\), found 'TMPTR'"),
    "dmon cut": (dmon(R).replace("GPU 0     55.000", "GPU 0     ", 2), "line 3: 3 values of the 4 columns"),
    "broken series": (
        exporter(R).replace("} 55.000000", " 55"),
        "DCGM_FI_DEV_POWER_USAGE: .* is no series",
    ),
    "milliwatts": (
        exporter(R).replace("} 55.000000", "} 300000", 1),
        "DCGM_FI_DEV_POWER_USAGE: 300000 must be between 0 and 100,000",
    ),
    "parts of GPUs": (exporter(R).replace("device=", 'GPU_I_ID="7",device='), "parts of GPUs"),
    "a sum over GPUs": (
        '{"data": {"resultType": "matrix", "result": [{"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE"}, '
        '"values": [[1, "2"]]}]}}',
        "neither of the labels UUID and gpu",
    ),
    "an instant": ('{"data": {"resultType": "vector", "result": []}}', "'vector', not matrix; ask /api/"),
    "no name": (prometheus(R).replace("__name__", "name"), "metrics, but 'one without a name'; rate"),
    "no pairs": (prometheus(R).replace('"values": [[', '"values": [["x", '), "is no pair of seconds and"),
    "broken JSON": (prometheus(R)[:-3], "17.log: is not valid JSON"),
    "no energy": (zeus([("a", 1.0, [2.0])]).replace("gpu0_energy", "joules"), "no columns of energies"),
    "no duration": (zeus([("a", 0.0, [2.0])]), "column 'elapsed_time': 0.0 must be above 0"),
    "no limit": ('{"measurements": [{"power_limit": "x"}]}', r"measurements\[0\]: is no object with"),
    "no log": ("hello\n", r"17.log is no log of GPUs that is known \(Zeus \(CSV of windows\); Zeus \(JSON"),
    "semicolons": (
        smi(R).replace(".", ",").replace(", ", ";").replace("power,draw", "power.draw"),
        r"17.log separates cells by ';' and not by ',' as nvidia-smi does; write commas, and points in",
    ),
    "AMD": (
        "timestamp,gpu,socket_power,gfx_activity\n1792828800,0,550,99\n",
        r"17.log is a log of AMD's, .*: gpu index, socket_power power.draw \[W\], gfx_activity utilization",
    ),
    "empty": ("", "17.log is no log of GPUs"),
    "binary": ("\0\1", "17.log: is a binary file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_logs_are_refused_in_a_sentence(tmp_path, case):
    text, words = BAD[case]
    with pytest.raises(ValueError, match=words) as error:
        read_log(written(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "17.log"))
    assert "\n" not in str(error.value)


TABLES = {
    "no job": ("batch_size,step_time_s\n8,1\n", "jobs.csv lacks the column 'job'"),
    "none there": (
        "job,batch_size,step_time_s\n9,8,1\n",
        "no job is in the logs, which have '17'; left out: '9', of which no log has a sample",
    ),
    "one there": (
        "job,batch_size,step_time_s\n17,8,1\n9,8,1\n",
        "has 1 measurement, a fit needs 2 or more; left out: '9', of which no log has a sample",
    ),
    "steps": ("job,batch_size,steps\n17,8,4\n", "column 'steps': are of windows, which only Zeus has"),
    "no step time": ("job,batch_size\n17,8\n17,9\n", "must have one of the columns step_time_s"),
    "start": ("job,batch_size,step_time_s,start\n17,8,1,noon\n", "line 2, column 'start': 'noon' is neither"),
    "limit": ("job,batch_size,step_time_s,power_limit_w\n17,8,1,much\n", "column 'power_limit_w': 'much' is"),
    "empty": ("", "jobs.csv: is empty"),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables_of_jobs_are_refused_in_a_sentence(tmp_path, case):
    text, words = TABLES[case]
    with pytest.raises(ValueError, match=words) as error:
        logged(tmp_path, exporter(R), text)
    assert str(error.value).startswith(str(tmp_path / "jobs.csv"))


def test_a_log_of_several_jobs_is_not_named_as_one(tmp_path):
    log = exporter([*R, *readings(Job("18", 1, 200.0))])
    with pytest.raises(ValueError, match=r"'node' has several jobs or windows \('17', '18'\); name one"):
        logged(tmp_path, log, "job,batch_size,step_time_s\nnode,8,1\n", "node.prom")


def test_values_that_could_not_be_read_are_left_out(tmp_path):
    text = SMI.replace("97 %", "[N/A]", 3).replace("200.00 W", "[Unknown Error]", 2)
    cut = text + SMI[: SMI.index("\n", 200) - 20]
    _, found = logged(tmp_path, cut, "job,batch_size,step_time_s\n17,8,1\n17,16,1\n")
    assert found.runs[0].power_w == pytest.approx(200.0)


def test_logs_without_a_table_say_that_they_need_one(tmp_path):
    for form, write in FORMS.items():
        path = written(tmp_path, write(R))
        with pytest.raises(ValueError, match=f"17.log is a log of {form.split(' ')[0]}.*give `jobs`"):
            read_measurements(path)
    with pytest.raises(ValueError, match="`time_zone` is of the times in logs: give `jobs`"):
        fit_profile(table(tmp_path, "gpus,batch_size,step_time_s\n1,8,1\n"), "m", "G", time_zone=UTC)
    with pytest.raises(ValueError, match="2 files are given, which can only be logs: give `jobs`"):
        fit_profile([path, path], "m", "G")


def test_a_date_in_a_log_of_zeus_is_refused_in_a_whole_sentence(tmp_path):
    text = "start_time,window_name,elapsed_time,gpu0_energy\n2026-11-03 08:00:00.5,step,4.0,1080.0\n"
    told = "line 2, column 'start_time': '2026-11-03 08:00:00.5' is not a number$"
    with pytest.raises(ValueError, match=told):
        read_log(written(tmp_path, text, "zeus.csv"))
