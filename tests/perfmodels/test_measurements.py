"""Every layout of the same steps reads the same; bad files are named by line and column."""

import warnings

import numpy as np
import pytest

from wattsched.perfmodels.measurements import read_measurements
from wattsched.reading.inputs import NoticeWarning


def read(tmp_path, text, **options):
    path = tmp_path / "steps.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_measurements(path, **options)


LAYOUTS = {
    "long": "gpus,nodes,local_batch,step_time_s\n1,1,64,0.5\n4,1,16,0.25\n",
    "global batch and iterations": "gpus,batch_size,iterations_per_s\n1,64,2\n4,64,4\n",
    "throughput": "gpus,batch_size,throughput,note\n1,64,128,x\n4,64,256,y\n",
    "wide": "global_batch_size,1,2,4,8\n64,2,,4,0\n",
    "placements": "placement,local_bsz,step_time\n1,64,0.5\n4,16,0.25\n",
    "scalability": "num_nodes,num_replicas,local_bsz,step_time\n1,1,64,0.5\n1,4,16,0.25\n",
    "with a byte order mark, blank lines and spaces": (
        "\ufeffgpus, batch_size ,step_time_s\r\n\r\n1, 64,0.5\r\n4,64, 0.25\r\n"
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_agree(tmp_path, layout):
    m = read(tmp_path, LAYOUTS[layout])
    np.testing.assert_allclose(m.gpus, [1, 4])
    np.testing.assert_allclose(m.nodes, [1, 1])
    np.testing.assert_allclose(m.local_batch, [64, 16])
    np.testing.assert_allclose(m.step_time_s, [0.5, 0.25])
    assert m.power_w is None


def test_spread_placements_and_epochs(tmp_path):
    m = read(tmp_path, "placement,local_bsz,step_time,sync_time\n1111,8,1,0.5\n44,8,2,0\n")
    assert (m.gpus.tolist(), m.nodes.tolist(), m.sync_time_s.tolist()) == ([4, 8], [4, 2], [0.5, 0])
    text = "dataset,batch_size,power_limit,time_per_epoch,average_power\nd,10,100,50,99\nd,20,100,40,99\n"
    m = read(tmp_path, text, samples_per_epoch=1000)
    np.testing.assert_allclose(m.step_time_s, [0.5, 0.8])
    assert m.gpus.tolist() == [1, 1]
    with pytest.raises(ValueError, match="give samples_per_epoch"):
        read(tmp_path, text)


def test_one_workload_must_be_chosen(tmp_path):
    text = "network,gpus,batch_size,step_time_s\n" + "a,1,8,1\nb,1,8,2\na,2,8,1\n"
    with pytest.raises(ValueError, match=r"column 'network' has several workloads \(a, b\)"):
        read(tmp_path, text)
    assert len(read(tmp_path, text, where={"network": "a"})) == 2
    with pytest.raises(ValueError, match="no row with network 'c'"):
        read(tmp_path, text, where={"network": "c"})
    with pytest.raises(ValueError, match="no column 'layer'"):
        read(tmp_path, text, where={"layer": "c"})


@pytest.mark.parametrize(
    ("header", "cell", "column", "value"),
    [
        *(
            (name, "1410", "frequency_mhz", 1410)
            for name in ("frequency (MHz)", "Frequency_MHz", "clock_mhz")
        ),
        *((name, "1410", "frequency_mhz", 1410) for name in ("sm_clock_mhz", "freq_mhz", "SM-Clock [MHz]")),
        *((name, "1.005", "frequency_mhz", 1005) for name in ("frequency_ghz", "Clock (GHz)")),
        *((name, "1.41 GHz", "frequency_mhz", 1410) for name in ("frequency", "clocks.sm")),
        *(
            (name, "300", "power_limit_w", 300)
            for name in ("power_cap_w", "Power Cap (W)", "power.limit [W]")
        ),
        ("power_limit_kw", ".3", "power_limit_w", 300),
        ("Average Power [kW]", "0.25", "power_w", 250),
        *((name, "12", "sync_time_s", 0.012) for name in ("sync_time_ms", "Synchronization time (ms)")),
        ("sync time", "12 ms", "sync_time_s", 0.012),
        ("num_nodes", "3", "nodes", 3),
    ],
)
def test_columns_are_read_under_other_names_and_in_other_units(tmp_path, header, cell, column, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = read(tmp_path, f"GPUs,{header},Batch Size,step time (ms)\n4,{cell},64,150\n8,{cell},64,90\n")
    assert m.columns()[column] == pytest.approx([value, value], rel=1e-12)
    assert m.step_time_s == pytest.approx([0.15, 0.09])


def test_every_column_that_is_not_read_is_named(tmp_path):
    rows = "1,64,0.2,fp32,9,64,1,1410\n2,64,0.1,bf16,9,32,1,1410\n"
    header = "gpus,batch_size,step_time_s,precision,memory_clock_mhz,local_batch,start,Frequency_MHz"
    with pytest.warns(NoticeWarning) as told:
        read(tmp_path, f"{header}\n{rows}")
    unread = "'batch_size', 'precision', 'memory_clock_mhz', 'start'"
    assert [str(one.message) for one in told] == [f"{tmp_path / 'steps.csv'}: not read: the columns {unread}"]
    with pytest.warns(NoticeWarning, match="not read: the columns 'Frequency_MHz', 'batch_size'"):
        read(
            tmp_path,
            "Frequency_MHz,gpus,batch_size,local_batch,step_time_s,frequency_mhz\n" + "9,1,8,8,1,5\n" * 2,
        )
    with pytest.raises(
        ValueError, match="line 1: the columns 'clock_mhz', 'freq_mhz' are both 'frequency_mhz'"
    ):
        read(tmp_path, "gpus,batch_size,step_time_s,clock_mhz,freq_mhz\n1,8,1,1410,1005\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        precise = f"{HEADER.strip()},Precision\n1,64,.2,a\n2,64,.1,a\n1,64,.5,b\n"
        assert len(read(tmp_path, precise, where={"Precision": "a"})) == 2


def test_decimals_may_follow_a_comma_beside_semicolons(tmp_path):
    m = read(tmp_path, "gpus;batch_size;step_time_s;power_w\n1;64;0,150;350,5\n2;64;0,09;330\n")
    assert (m.step_time_s.tolist(), m.power_w.tolist()) == ([0.15, 0.09], [350.5, 330])
    with pytest.raises(ValueError, match=r"column 'power_w': '1,350' may be thousands"):
        read(tmp_path, "gpus;batch_size;step_time_s;power_w\n1;64;0,150;1,350\n")


HEADER = "gpus,batch_size,step_time_s\n"
BAD = {
    "empty": ("", "steps.csv: is empty"),
    "header alone": (HEADER, "has 0 measurements"),
    "one row": (HEADER + "1,8,0.1\n", "has 1 measurement, a fit needs 2 or more"),
    "missing gpus": ("batch_size,step_time_s\n8,1\n9,1\n", "lacks the column 'gpus'"),
    "missing batch": ("gpus,step_time_s\n8,1\n9,1\n", "lacks a column 'local_batch' or 'batch_size'"),
    "missing time": ("gpus,batch_size\n8,1\n9,1\n", "must have one of the columns step_time_s"),
    "two times": ("gpus,batch_size,step_time_s,throughput\n1,1,1,1\n1,2,1,1\n", "step_time_s and throughput"),
    "nan": (HEADER + "1,8,0.1\n1,8,nan\n", "line 3, column 'step_time_s': must be a finite number, got nan"),
    "blank": (HEADER + "1,8,0.1\n1,,0.1\n", "line 3, column 'batch_size': is empty"),
    "negative": (
        HEADER + "1,8,0.1\n\n1,8,-1\n",
        "line 4, column 'step_time_s': must be at least 1e-06, got -1",
    ),
    "zero": (HEADER + "0,8,0.1\n1,8,1\n", "line 2, column 'gpus': must be at least 1, got 0"),
    "half a GPU": (HEADER + "1.5,8,0.1\n1,8,1\n", "line 2, column 'gpus': '1.5' is not a whole number"),
    "overflow": (
        HEADER + "1,1e7,0.1\n1,8,1e999\n",
        "line 2, column 'batch_size': must be at most 1,000,000, got 1e7",
    ),
    "short row": (HEADER + "1,8,0.1\n1,8\n", "line 3: 2 cells, the header has 3 columns"),
    "twice": ("gpus,gpus,batch_size,step_time_s\n1,1,1,1\n", "line 1: the column 'gpus' occurs twice"),
    "binary": (bytes(range(256)), "is a binary file"),
    "placement": ("placement,local_bsz,step_time\n4x,1,1\n4,1,1\n", "line 2, column 'placement': '4x'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named_in_one_sentence(tmp_path, case):
    text, expected = BAD[case]
    with pytest.raises(ValueError, match=r"^[^\n]*steps\.csv[^\n]*$") as error:
        read(tmp_path, text)
    assert expected in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "steps.csv"))
