"""Windows and profiles of Zeus tell watts and step times."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perfmodels.logs.logged_files import logged, repeated, table
from tests.perfmodels.logs.writers import (
    BEGIN_S,
    zeus,
)
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.logs import jobs
from wattsched.perfmodels.measurements import read_logged


def test_windows_of_zeus_tell_watts_and_step_times_at_every_limit(tmp_path):
    windows = [
        (f"__GlobalPowerLimitOptimizer_{limit}", 40 * 0.5 * (400 - limit) / 100, [limit * 20.0, limit * 22.0])
        for limit in (300, 250, 200)
    ]
    log = zeus([("warm up", 3.0, [1.0, 1.0]), *windows])
    m, found = logged(tmp_path, log, "job,batch_size,steps\n__Global*,64,40\n")
    assert m.power_limit_w.tolist() == [200, 250, 300]
    np.testing.assert_allclose(m.step_time_s, [1.0, 0.75, 0.5])
    np.testing.assert_allclose(m.power_w, [200 * 21 / 40, 250 * 21 / 30, 300 * 21 / 20])
    assert m.gpus.tolist() == [2, 2, 2]
    name = tmp_path / "jobs.csv"
    assert found.notes == (f"not used: 'warm up' of the logs, which {name} does not name",)


def test_the_first_tenth_of_the_windows_of_zeus_is_warm_up(tmp_path):
    steps = [("step", 1.0, [100.0])] * 2 + [("step", 0.5, [100.0])] * 18
    log = zeus([*steps, ("epoch", 11.0, [2000.0])])
    m, _ = logged(tmp_path, log, "job,local_batch,steps\nstep,8,1\nepoch,8,22\n")
    np.testing.assert_allclose(m.step_time_s, [0.5, 0.5])
    np.testing.assert_allclose(m.power_w, [200.0, 2000.0 / 11.0])


def test_a_profile_of_zeus_is_of_all_gpus_together(tmp_path):
    text = '{"measurements": [{"power_limit": 300, "energy": 8000, "time": 10}, '
    text += '{"power_limit": 200, "energy": 7000.0, "time": 12.5}]}'
    m, _ = logged(tmp_path, text, "job,batch_size,steps,gpus\nr50,256,40,4\n", "r50.json")
    np.testing.assert_allclose(m.power_w, [140.0, 200.0])
    np.testing.assert_allclose(m.step_time_s, [12.5 / 40, 10 / 40])
    with pytest.raises(ValueError, match="the energy of all GPUs together; give gpus"):
        logged(tmp_path, text, "job,batch_size,steps\nr50,256,40\n", "r50.json")


def test_public_profiles_of_zeus(data_dir, tmp_path):
    folder = data_dir / "zeus-2023" / "power-limit-profiles"
    # Their batches are not told; a fit wants two.
    rows = "job,local_batch,steps\nV100+resnet50+gpu0,128,40\nV100+resnet50+gpu0,1,2\n"
    log = folder / "V100+resnet50+gpu0.csv"
    m, _ = read_logged([log], table(tmp_path, rows))
    assert sorted(set(m.power_limit_w.tolist())) == [100, 125, 150, 175, 200, 225, 250]
    assert (m.power_w <= 1.03 * m.power_limit_w).all()
    report = fit_profile([log], "resnet50", "V100", jobs=table(tmp_path, rows))
    assert report.profile.power_limits.limit_w[0] == 100
    four = folder / "A40+resnet50+gpu0,1,2,3.csv"
    m, _ = read_logged([four], table(tmp_path, "job,local_batch,steps\nA40*,128,40\n"))
    assert set(m.gpus.tolist()) == {4}


@given(
    windows=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.sampled_from("abc")), min_size=1),
    rows=st.lists(st.sampled_from(["*", "a", "b", "c"]), min_size=2, max_size=4),
)
def test_each_second_of_a_gpu_counts_once_in_windows_within_windows(tmp_path_factory, windows, rows):
    """Of windows that others contain or overlap, whole seconds count by hand; none is warm-up."""
    lines = [f"{BEGIN_S + begin},{name},{lasts}.0,{300 * lasts}.0" for begin, lasts, name in windows]
    log = "\n".join(["start_time,window_name,elapsed_time,gpu0_energy", *lines, ""])
    names = {name for _, _, name in windows}
    rows = 2 * [row for row in rows if row in names | {"*"}] or ["*", "*"]
    seconds = {
        second
        for begin, lasts, name in windows
        if {name, "*"} & {*rows}
        for second in range(begin, begin + lasts)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "WARM_UP", math.inf)
        cells = "".join(f"{row},64,1,1\n" for row in rows)
        folder = tmp_path_factory.mktemp("zeus")
        _, found = logged(folder, log, f"job,batch_size,step_time_s,gpus\n{cells}")
    assert sum(run.gpu_s for run in found.runs) == pytest.approx(len(seconds))
    assert {run.power_w for run in found.runs} == {300.0}


def test_an_epoch_around_its_steps_counts_no_gpu_hour_again(tmp_path):
    steps = [f"{BEGIN_S + 2 * n},step,2.0,560.0" for n in range(50)]
    epochs = [f"{BEGIN_S + 10 * n},epoch,10.0,2800.0" for n in range(10)]
    log = "\n".join(["start_time,window_name,elapsed_time,gpu0_energy", *steps, *epochs, ""])
    _, found = logged(tmp_path, log, "job,batch_size,steps\nstep,64,40\nepoch,64,200\n")
    assert [run.gpu_s for run in found.runs] == pytest.approx([90, 0])
    assert found.notes == (repeated(9, "epoch"),)


@pytest.mark.parametrize("blank", ["N/A", "", str(2**31 - 16)])
def test_a_window_of_unknown_energy_counts_its_time(tmp_path, blank):
    log = zeus([("step", 1.0, [100.0])] * 20).splitlines()
    log[10] = log[10].rpartition(",")[0] + f",{blank}"
    m, found = logged(tmp_path, "\n".join([*log, ""]), "job,local_batch,steps\nstep,8,1\nstep,9,1\n")
    assert (found.runs[0].read, found.runs[0].gpu_s, m.power_w[0]) == (20, pytest.approx(18.0), 100.0)
    assert "assumed: 1 of 18 samples of 'step' have unknown watts: the mean of the others" in found.notes
