"""Readings of watts: a CSV file that grows, a query of Prometheus, or the reports of agents on nodes.

A source is called for what is new, and returns readings and faults: what cannot be read is left out. DCGM and
IPMI come through their exporters for Prometheus, or as a CSV file.
"""

from __future__ import annotations

import csv
import os
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from wattsched.adapters.agents import NodeReport, written_in
from wattsched.adapters.options import first_of
from wattsched.instances.errors import InputError, shown, validated
from wattsched.instances.io import parse_json
from wattsched.reading.clocks import LOCAL, is_since_1970, moment_s
from wattsched.reading.inputs import LONGEST_LINE, echo, number_in, open_file
from wattsched.reading.tables import Row
from wattsched.reading.units import Numbers, without_unit

MOST_BYTES = 8_000_000
"""Bytes read of an answer, or of what a file has grown by."""
MOST_W = 1e9
WAIT_S = 2.0
"""Seconds that a round waits for a source."""
QUERY_S, AGENT_S = 30.0, 15.0
"""Seconds that a sample may be older than the time of a query, and than that of an agent's report."""
_OTHER_FORM = (KeyError, TypeError, AttributeError)
_WRONG = (OSError, HTTPException, ValueError, OverflowError, csv.Error, InputError, *_OTHER_FORM)
_COLUMNS = {
    "time": ("time", "timestamp", "datetime"),
    "node": ("node", "host", "hostname"),
    "job": ("job", "job_id", "jobid", "pod"),
}


class Reading(NamedTuple):
    """Watts that were measured of the GPUs of a job, or of a node with its server.

    Attributes
    ----------
    time_s : float
        Seconds since 1970.
    job, node : str
        A job, all of it without a node; or a node without a job.
    over_s : float
        The watts may be of a moment that is so many seconds earlier.
    run : int, optional
        Run of the job, where a scheduler counts them.
    """

    time_s: float
    power_w: float
    job: str = ""
    node: str = ""
    over_s: float = 0.0
    run: int | None = None


Found = tuple[list[Reading], list[str]]
"""Readings, and what could not be read."""


def source_of(place: str) -> Callable[[], Found]:
    """Return the source that a URL, a folder of agents' reports or a CSV file is."""
    if place.startswith(("http://", "https://")):
        return Query(place)
    if not os.path.exists(place):
        raise InputError([f"--readings: {echo(place)}: no such file or folder"])
    return Reports(Path(place)) if os.path.isdir(place) else GrowingFile(Path(place))


def _why(error: Exception, row: object = "") -> str:
    """Return why something cannot be read, in one line."""
    text = (
        error.faults[0] if isinstance(error, InputError) else getattr(error, "strerror", None) or str(error)
    )
    text = f"{shown(row)} is no reading" if isinstance(error, _OTHER_FORM) else text
    return echo(text, quote="", most=LONGEST_LINE)


def _each(rows: Iterable[Any], read: Callable[[Any], Reading], place: object) -> Found:
    """Read rows one by one; of those that cannot be read the first are told."""
    found, faults = list[Reading](), list[str]()
    for row in rows:
        try:
            reading = read(row)
            if not reading.job and not reading.node:
                raise ValueError(f"{shown(row)} names no job and no node")
            if not is_since_1970(reading.time_s):
                raise ValueError(f"time: must be a date or seconds since 1970, got {shown(reading.time_s)}")
            if not 0 < reading.power_w <= MOST_W:
                raise ValueError(f"power: must be above 0 and at most 1 GW, got {shown(reading.power_w)} W")
            found.append(reading)
        except _WRONG as error:
            faults.append(f"{place}: {_why(error, row)}")
    return found, first_of(faults)


@dataclass
class GrowingFile:
    """A CSV file to which something appends: a time, a node or a job or both, and watts with their unit.

    A file that was replaced or cut is read from its begin, and of a long one only the end.
    """

    path: Path
    _header: list[str] = field(default_factory=list)
    _inode: int = 0
    _end: int = 0

    def __call__(self) -> Found:
        """Read the lines that have been completed since the last call."""
        try:
            with open_file(self.path) as file:
                lines = self._lines(file)
        except _WRONG as error:
            return [], [f"{self.path}: {_why(error)}"]
        found, faults = _each(lines, self._read, self.path)
        assumed = f"{self.path}: assumed: in W, as neither header nor values state a unit"
        return found, faults + [assumed] * bool(found and not self._watts.stated)

    def _lines(self, file: BinaryIO) -> list[str]:
        """Return the new lines; a ValueError for a header that lacks columns."""
        about = os.fstat(file.fileno())
        if about.st_ino != self._inode or about.st_size < self._end:
            self._inode, self._end, self._header = about.st_ino, 0, []
        if not self._header:
            header = file.readline(MOST_BYTES)
            if not header.endswith(b"\n"):
                return []
            self._take_header(header.decode("utf-8-sig", "replace").strip())
            self._end = file.tell()
        if about.st_size - MOST_BYTES > self._end:
            file.seek(about.st_size - MOST_BYTES)
            file.readline(MOST_BYTES)
            self._end = file.tell()
        file.seek(self._end)
        content = file.read(MOST_BYTES)
        complete = content[: content.rfind(b"\n") + 1]
        self._end += len(complete)
        return [line for line in complete.decode("utf-8", "replace").splitlines() if line.strip()]

    def _take_header(self, header: str) -> None:
        self._separator = next((one for one in ",;\t" if one in header), ",")
        names = [name.strip() for name in next(csv.reader([header], delimiter=self._separator), [])]
        column = {kind: one for kind, known in _COLUMNS.items() for one in names if one.lower() in known}
        power = [name for name in names if name and without_unit(name, "power") in ("", "power")]
        if "time" not in column or len(column) < 2 or len(power) != 1:
            raise ValueError(f"needs the columns time, node or job, and power_w, found {echo(header)}")
        self._watts, self._column = Numbers(power[0], "power", "line 1"), column | {"power": power[0]}
        self._header = names

    def _read(self, line: str) -> Reading:
        cells, column = next(csv.reader([line], delimiter=self._separator)), self._column
        if len(cells) != len(self._header):
            raise ValueError(f"{echo(line)} has {len(cells)} cells, the header has {len(self._header)}")
        row = Row(dict(zip(self._header, cells, strict=True)), f"line {echo(line)}")
        job, node = (row.cells.get(column.get(kind, ""), "").strip() for kind in ("job", "node"))
        time_s, form = moment_s(written := row.text(column["time"]))
        if form == LOCAL:
            raise row.fault(column["time"], f"{echo(written)} needs a zone, as 2026-11-03T08:30:00Z")
        return Reading(time_s, row.number(column["power"], read=self._watts), job, node)


class Query:
    """An instant query of Prometheus; its series have the labels of a job or a node, and of one they add up.

    ``http://HOST:PORT/?query=PROMQL#job=LABEL&node=LABEL&over_s=S``: labels of a job are joined by ``/``.
    Answers tell the time of the query, so that samples may be `over_s` seconds older.
    """

    def __init__(self, url: str) -> None:
        self._url: SplitResult = urlsplit(url)
        asked, told = dict(parse_qsl(self._url.query)), dict(parse_qsl(self._url.fragment))
        host = re.fullmatch(r"(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::\d{1,5})?", self._url.netloc)
        if "query" not in asked or not host:
            raise InputError([f"--readings: must be as http://HOST:PORT/?query=PROMQL, got {echo(url)}"])
        if strange := sorted(told.keys() - {"job", "node", "over_s"}):
            raise InputError([f"--readings: after # may be job, node and over_s, got {echo(strange[0])}"])
        self._path = f"{self._url.path.rstrip('/') or '/api/v1/query'}?{urlencode(asked)}"
        self._job, self._node = told.get("job", "job").split("/"), told.get("node", "node")
        try:
            self._over_s = number_in(told.get("over_s", str(QUERY_S)))
        except ValueError as error:
            raise InputError([f"--readings: over_s: {error}"]) from None

    def __call__(self) -> Found:
        """Ask once."""
        place = f"{self._url.scheme}://{self._url.netloc}"
        try:
            data = parse_json(self._get())["data"]
            if data["resultType"] != "vector":
                raise ValueError(
                    f"answers with a {shown(data['resultType'])}, not with a vector of one moment"
                )
            rows = list(data["result"])
        except _WRONG as error:
            return [], [f"{place}: {_why(error, 'the answer')}"]
        found, faults = _each(rows, self._read, place)
        sums = dict[tuple[str, str], Reading]()
        for one in found:
            before = sums.get((one.job, one.node))
            sums[one.job, one.node] = one._replace(power_w=one.power_w + (before.power_w if before else 0.0))
        return list(sums.values()), faults

    def _get(self) -> bytes:
        """Return the answer; redirections are not followed."""
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        connection = kind(self._url.netloc, timeout=WAIT_S)
        try:
            connection.request("GET", self._path)
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
        finally:
            connection.close()
        if len(content) > MOST_BYTES or response.status != 200:
            told = echo(content[:100].decode("utf-8", "replace"))
            raise ValueError(f"answers with status {response.status} and {len(content):,} bytes: {told}")
        return content

    def _read(self, series: Any) -> Reading:
        labels, (time_s, value) = series["metric"], series["value"]
        job = "/".join(str(labels.get(label, "")) for label in self._job).strip("/")
        return Reading(float(time_s), number_in(value), job, str(labels.get(self._node, "")), self._over_s)


@dataclass
class Reports:
    """Reports of the agents on nodes, in the folder of the settings; see `adapters.agents`."""

    folder: Path
    _texts: dict[str, str] = field(default_factory=dict)

    def __call__(self) -> Found:
        """Read the reports that are new."""
        found, faults, texts = list[Reading](), list[str](), written_in(self.folder)
        for node in [node for node, text in texts.items() if text != self._texts.get(node)]:
            file = str(self.folder / f"nodes/{node}.json")
            try:
                report = validated(NodeReport, parse_json(texts[node].encode()), file)
            except InputError as error:
                faults.append(f"{file}: {_why(error)}")
                continue
            drawn = [(job, one) for job, one in report.jobs.items() if one.power_w]
            found += [
                Reading(report.time_s, one.power_w or 0.0, job, node, AGENT_S, one.run) for job, one in drawn
            ]
        self._texts = texts
        return found, first_of(faults)


class Bounded:
    """A source that is called in a thread, so that one that hangs delays no round for long."""

    def __init__(self, source: Callable[[], Found]) -> None:
        self._source, self._thread = source, threading.Thread()
        self._result: Found = [], []

    def __call__(self) -> Found:
        """Return what the source does, or that it has not answered yet."""
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._call, daemon=True)
            self._thread.start()
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            return [], ["the source of readings does not answer"]
        found, self._result = self._result, ([], [])
        return found

    def _call(self) -> None:
        try:
            self._result = self._source()
        except Exception as error:
            # Whatever a source raises, the next call may find it well.
            self._result = [], [f"the source of readings: {type(error).__name__}: {error}"]
