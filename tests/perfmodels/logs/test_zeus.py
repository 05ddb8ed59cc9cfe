"""Windows and profiles of Zeus tell watts and step times."""

import numpy as np
import pytest

from tests.perfmodels.logs.logged_files import logged, table
from tests.perfmodels.logs.writers import (
    zeus,
)
from wattsched.perfmodels.fit import fit_profile
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
