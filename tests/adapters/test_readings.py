"""Sources of measured watts: files that grow, Prometheus and agents' reports, honest and hostile."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters import readings
from wattsched.adapters.readings import Bounded, GrowingFile, Query, Reading, Reports, source_of
from wattsched.instances.errors import InputError

BEGIN_S = 1.8e9
UNITS = {"power_w": 1.0, "Power (kW)": 1e3, "power_mW": 1e-3, "watts": 1.0}
"""Names of a column of watts, and their factors."""


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 10**6), st.booleans()), max_size=12),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from(",;\t"),
    st.lists(st.integers(0, 400), max_size=4),
)
def test_a_file_that_grows_is_read_once_wherever_writes_are_cut(
    rows: list[tuple[int, int, bool]], header: str, separator: str, cuts: list[int]
) -> None:
    lines = [["Timestamp", "job_id", "node", header]]
    for at, watts, dated in rows:
        moment = (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN_S + at)) if dated else f"{BEGIN_S + at}"
        )
        lines.append([moment, "17", "g1", str(watts)])
    content = "".join(separator.join(line) + "\n" for line in lines).encode()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "watts.csv"
        source, found, faults = GrowingFile(file), list[Reading](), list[str]()
        for begin, end in pairwise([0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]):
            with file.open("ab") as opened:
                opened.write(content[begin:end])
            some, bad = source()
            found, faults = found + some, faults + bad
        assert source() == ([], [])
    expected = [(BEGIN_S + at, pytest.approx(watts * UNITS[header]), "17", "g1") for at, watts, _ in rows]
    assert [one[:4] for one in found] == expected
    assert bool(faults) == (header == "Power" and bool(rows))


def test_units_of_values_count_and_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "watts.csv"
    file.write_text(f"time,node,power\n{BEGIN_S},g1,2.5 kW\n{BEGIN_S},g2,300\n")
    source = GrowingFile(file)
    found, faults = source()
    assert found == [Reading(BEGIN_S, 2500.0, "", "g1")]
    assert "'300' has no unit, others of its column have" in faults[0]
    (tmp_path / "new").write_text(f"time,job,power_w\n{BEGIN_S},5,10\n")
    os.replace(tmp_path / "new", file)
    assert source() == ([Reading(BEGIN_S, 10.0, "5")], [])
    file.write_text("time,job,power_w\n")
    assert source() == ([], [])
    file.write_text(f"time,node,power\n{BEGIN_S},g1,250\n")
    file.touch()
    found, faults = GrowingFile(file)()
    assert (found, faults) == (
        [Reading(BEGIN_S, 250.0, "", "g1")],
        [f"{file}: assumed: in W, as neither header nor values state a unit"],
    )


def test_of_a_long_file_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "MOST_BYTES", 1000)
    file = tmp_path / "watts.csv"
    lines = [f"{BEGIN_S + i},n,{i}\n" for i in range(1, 5000)]
    file.write_text("time,node,power_w\n" + "".join(lines))
    found, faults = GrowingFile(file)()
    assert faults == []
    assert [one.power_w for one in found] == [*range(5000 - len(found), 5000)]
    assert 10 < len(found) < 100


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("2026-11-03 08:30:00,g1,5", "needs a zone, as 2026-11-03T08:30:00Z"),
        ("yesterday,g1,5", "is neither a number of seconds nor a date"),
        (f"{BEGIN_S},g1,-5", "column 'power_w': must be at least 0, got -5"),
        (f"{BEGIN_S},g1,0", "power: must be above 0 and at most 1 GW, got 0.0 W"),
        (f"{BEGIN_S},g1,1e10", "power: must be above 0 and at most 1 GW"),
        (f"{BEGIN_S},g1,nan", "nan"),
        (f"{BEGIN_S},g1,5 lb", "'lb'"),
        (f"{BEGIN_S},,5", "names no job and no node"),
        (f"{BEGIN_S},g1", "has 2 cells, the header has 3"),
        ("12,g1,5", "time: must be a date or seconds since 1970, got 12.0"),
        ('"a,g1,5', "has 1 cells, the header has 3"),
        ("x" * 200_000 + ",g1,5", "field larger than field limit"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_and_hides_no_other(tmp_path: Path, row: str, told: str) -> None:
    file = tmp_path / "watts.csv"
    file.write_text(f"time,node,power_w\n{row}\n{BEGIN_S},g2,7\n")
    found, faults = GrowingFile(file)()
    assert found == [Reading(BEGIN_S, 7.0, "", "g2")]
    (fault,) = faults
    assert told in fault
    assert str(file) in fault
    assert len(fault) < 2000


@given(
    st.binary(max_size=300), st.sampled_from([b"", b"time,node,power_w\n", b"\xef\xbb\xbftime;job;power\n"])
)
def test_whatever_a_file_has_is_no_error(content: bytes, header: bytes) -> None:
    with TemporaryDirectory() as folder:
        for name, source in (
            ("x.csv", GrowingFile(Path(folder) / "x.csv")),
            ("x.json", Reports(Path(folder))),
        ):
            (Path(folder) / name).write_bytes(header + content)
            found, faults = source()
            assert all(1e8 <= one.time_s <= 1e11 and 0 < one.power_w <= 1e9 for one in found)
            assert all(isinstance(fault, str) for fault in faults)


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "bad.csv").write_text("time,power_w\n1,2\n")
    (tmp_path / "two.csv").write_text("time,node,power_w,power_kw\n1,a,2,3\n")
    (tmp_path / "gone.csv").write_text("")
    gone = source_of(str(tmp_path / "gone.csv"))
    (tmp_path / "gone.csv").unlink()
    assert gone() == ([], [f"{tmp_path / 'gone.csv'}: No such file or directory"])
    for name, told in (
        ("pipe.csv", ""),
        ("bad.csv", "needs the columns time, node or job, and power_w, found 'time,power_w'"),
        ("two.csv", "needs the columns"),
    ):
        found, (fault,) = source_of(str(tmp_path / name))()
        assert found == []
        assert fault.startswith(str(tmp_path / name))
        assert told in fault


# -- Prometheus ------------------------------------------------------------------------------------------


@contextmanager
def prometheus(
    status: int, content: bytes, wait_s: float = 0.0, **headers: str
) -> Iterator[tuple[str, list[str]]]:
    """A server that answers always the same; its address and the paths that it was asked for."""
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            time.sleep(wait_s)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def vector(*series: tuple[dict[str, str], Any]) -> bytes:
    """Answer of an instant query."""
    result = [{"metric": labels, "value": [BEGIN_S, value]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_series_of_a_query_are_added_up_by_job_and_node() -> None:
    gpus = [
        ({"hpc_job": "17", "Hostname": "g1", "gpu": "0"}, "300.5"),
        ({"hpc_job": "17", "Hostname": "g1", "gpu": "1"}, "299.5"),
        ({"hpc_job": "17", "Hostname": "g2"}, "100"),
        ({"gpu": "7"}, "50"),
        ({"hpc_job": "18", "Hostname": "g2"}, "NaN"),
        ({"hpc_job": "19", "Hostname": "g2"}, True),
    ]
    with prometheus(200, vector(*gpus)) as (address, asked):
        found, faults = source_of(f"{address}/?query=DCGM_FI_DEV_POWER_USAGE%2B0#job=hpc_job&node=Hostname")()
    assert asked == ["/api/v1/query?query=DCGM_FI_DEV_POWER_USAGE%2B0"]
    assert found == [Reading(BEGIN_S, 600.0, "17", "g1", 30.0), Reading(BEGIN_S, 100.0, "17", "g2", 30.0)]
    assert len(faults) == 3
    pods = vector(({"namespace": "a", "pod": "p", "node": "g1"}, "5"))
    with prometheus(200, pods) as (address, asked):
        url = f"{address}/prometheus/api/v1/query?query=up#job=namespace/pod&over_s=5"
        assert source_of(url)() == ([Reading(BEGIN_S, 5.0, "a/p", "g1", 5.0)], [])
    assert asked[0].startswith("/prometheus/api/v1/query?")


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [
        (500, b"x" * 300, "answers with status 500"),
        (200, b"<html>", ""),
        (200, b"[" * 100_000, ""),
        (200, b"[]", "is no reading"),
        (200, b'{"data": {"resultType": "matrix", "result": []}}', "'matrix', not with a vector"),
        (200, b'{"data": {"resultType": "vector", "result": 5}}', "is no reading"),
        (200, b'{"data": {"resultType": "vector", "result": [5, {"metric": 1, "value": [1, 2]}]}}', ""),
        (200, b" " * 8_000_001, "8,000,001 bytes"),
    ],
)
def test_answers_of_something_else_are_told(status: int, content: bytes, told: str) -> None:
    with prometheus(status, content) as (address, _):
        found, faults = Query(f"{address}/?query=up")()
    assert found == []
    assert told in faults[0]
    assert faults[0].startswith(address)
    assert len(faults[0]) < 1000


def test_redirects_are_not_followed_and_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with prometheus(200, vector(({"node": "g1"}, "5"))) as (other, asked):
        with prometheus(302, b"", Location=f"{other}/api/v1/query") as (address, _):
            assert "status 302" in Query(f"{address}/?query=up")()[1][0]
        assert asked == []
    assert "refused" in Query(f"{address}/?query=up")()[1][0]
    monkeypatch.setattr(readings, "WAIT_S", 0.1)
    with prometheus(200, vector(({"node": "g1"}, "5")), wait_s=0.4) as (address, _):
        assert "timed out" in Query(f"{address}/?query=up")()[1][0]
    let_go = threading.Event()
    hangs = Bounded(lambda: ([Reading(BEGIN_S, 1.0, "j")] * let_go.wait(20), []))
    began = time.monotonic()
    assert hangs() == hangs() == ([], ["the source of readings does not answer"])
    assert time.monotonic() - began < 1.0
    let_go.set()
    assert hangs() == ([Reading(BEGIN_S, 1.0, "j")], [])


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("http://127.0.0.1:9090/", "--readings: must be as http://HOST:PORT/?query=PROMQL"),
        ("http:///?query=up", "--readings: must be as"),
        ("http://user:secret@127.0.0.1/?query=up", "--readings: must be as"),
        ("http://127.0.0.1/?query=up#jobs=x", "after # may be job, node and over_s, got 'jobs'"),
        ("http://127.0.0.1/?query=up#over_s=soon", "over_s"),
        ("http://127.0.0.1:99 99/?query=up", "--readings: must be as"),
    ],
)
def test_addresses_that_are_none_are_refused(place: str, told: str) -> None:
    with pytest.raises(InputError, match="--readings") as error:
        source_of(place)
    assert told in str(error.value)


# -- agents ----------------------------------------------------------------------------------------------


def test_reports_of_agents_are_read_when_they_are_new(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    said = {"run": 2, "frequency_mhz": 1410, "power_limit_w": None, "power_w": 812.5}
    report = {"time_s": BEGIN_S, "jobs": {"17": said, "18": {"run": 0, "failed": "no rights"}}}
    (nodes / "g1.json").write_text(json.dumps(report))
    (nodes / "g2.json").write_text('{"time_s": "noon", "jobs": {}}')
    (nodes / "g3.json").write_text("[" * 60_000)
    (nodes / "g4.json").write_text('{"time_s": 1.8e9, "jobs": []}')
    os.mkfifo(nodes / "g5.json")
    source = source_of(str(tmp_path))
    found, faults = source()
    assert found == [Reading(BEGIN_S, 812.5, "17", "g1", 15.0, 2)]
    assert len(faults) == 3
    assert all(str(nodes) in fault for fault in faults)
    assert source() == ([], [])
    (nodes / "new").write_text(json.dumps(report | {"time_s": BEGIN_S + 5}))
    os.replace(nodes / "new", nodes / "g1.json")
    assert [one.time_s for one in source()[0]] == [BEGIN_S + 5]


def test_a_source_that_raises_is_a_fault_and_is_asked_again() -> None:
    answers: list[Any] = [RuntimeError("broken"), ([Reading(BEGIN_S, 1.0, "j")], [])]

    def source() -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    bounded = Bounded(source)
    assert bounded() == ([], ["the source of readings: RuntimeError: broken"])
    assert bounded() == ([Reading(BEGIN_S, 1.0, "j")], [])
