"""DCGM's metrics as Prometheus has them: scraped text, and the answer of ``/api/v1/query_range``.

The text (https://prometheus.io/docs/instrumenting/exposition_formats/) is that of dcgm-exporter, any number
of scrapes one after the other; with ``--hpc-job-mapping-dir`` or in Kubernetes its series name their jobs or
pods. It tells times only where the exporter adds them. The answer is ``{"status": "success", "data":
{"resultType": "matrix", "result": [{"metric": {...}, "values": [[seconds, "value"], ...]}]}}``
(https://prometheus.io/docs/prometheus/latest/querying/api/), of a query that keeps the metrics' names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from wattsched.perfmodels.logs.dcgm import METRICS, Point, joined
from wattsched.perfmodels.logs.samples import MOST, OddLines, Sample, lines_of, reading
from wattsched.reading.inputs import echo, json_in, listed

TEXT = "dcgm-exporter (text of metrics)"
ANSWER = "Prometheus (JSON of query_range)"
SERIES = re.compile(r"(\w+)\{(.*)\}\s+(\S+)(?:\s+(-?\d+))?\s*")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
MS_PER_S = 1000.0


def recognises_text(text: str) -> bool:
    """True if a text is scraped from an exporter of DCGM's metrics."""
    head = text.lstrip()[:100_000]
    return head.startswith(("#", "DCGM_")) and re.search(r"^DCGM_\w+\{", head, re.MULTILINE) is not None


def read_text(text: str, name: str) -> Iterator[Sample]:
    """Samples of scrapes."""
    return joined(_scraped(text, name), name)


def _scraped(text: str, name: str) -> Iterator[Point]:
    """Points of scraped text, their keys the numbers of the scrapes; `name` is the log's, for messages."""
    scrape, last, odd = 0, "", OddLines(name)
    seen: dict[str, set[str]] = {}
    for line, series in enumerate(lines_of(text), start=1):
        metric = series.partition("{")[0]
        if metric not in METRICS:
            continue
        place = f"{name}, line {line}, {metric}"
        found = SERIES.fullmatch(series)
        if found is None:
            odd.leave_out(line, f"{metric}: {echo(series)} is no series")
            continue
        _, labels, value, milliseconds = found.groups()
        if metric in seen and (metric != last or labels in seen[metric]):
            # A scrape has all series of a metric together, and each of them once: this is the next scrape.
            scrape, seen = scrape + 1, {}
        last = metric
        seen.setdefault(metric, set()).add(labels)
        time_s = math.nan if milliseconds is None else int(milliseconds) / MS_PER_S
        known = {label: _unescaped(told) for label, told in LABEL.findall(labels)}
        number = reading(value, place, MOST[METRICS[metric]])
        yield Point(metric, known, key=scrape, time_s=time_s, value=number)
    odd.tell()


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: ESCAPED.get(found[0], found[0]), text)


def recognises_answer(text: str) -> bool:
    """True if a text is an answer of Prometheus."""
    return text.lstrip().startswith("{") and '"resultType"' in text


def read_answer(text: str, name: str) -> Iterator[Sample]:
    """Samples of the answer to a range query."""
    data = json_in(text).get("data")
    form = data.get("resultType") if isinstance(data, dict) else None
    series = data.get("result") if isinstance(data, dict) else None
    if form != "matrix" or not isinstance(series, list):
        raise ValueError(f"{name} is an answer of the type {echo(form)}, not matrix; ask /api/v1/query_range")
    points = _ranges(series, name)
    if (first := next(points, None)) is None:
        names = {str(one["metric"].get("__name__", "one without a name")) for one in series}
        told = f"but {listed(sorted(names))}; rate() and its like lose the names" if names else "it is empty"
        raise ValueError(f"{name} has none of DCGM's metrics, {told}")
    return joined(chain([first], points), name)


def _ranges(result: list[Any], name: str) -> Iterator[Point]:
    """Points of the series in the result of an answer; `name` is the log's, for messages."""
    for number, series in enumerate(result):
        place = f"{name}, result[{number}]"
        match series:
            case {"metric": dict() as labels, "values": list() as values}:
                known = {label: str(told) for label, told in labels.items()}
            case _:
                raise ValueError(f"{place}: is no series with metric and values")
        if (metric := known.get("__name__", "")) not in METRICS:
            continue
        for pair in values:
            time_s, cell = _pair(pair, place)
            value = reading(cell, f"{place}, {metric}", MOST[METRICS[metric]])
            yield Point(metric, known, key=time_s, time_s=time_s, value=value)


def _pair(pair: Any, place: str) -> tuple[float, str]:
    """Seconds and value of a point in an answer, as JSON has them."""
    match pair:
        case [int() | float() as time_s, str(value)] if math.isfinite(time_s):
            return float(time_s), value
    raise ValueError(f"{place}: {echo(json.dumps(pair))} is no pair of seconds and a value in quotes")
