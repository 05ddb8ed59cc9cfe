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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from wattsched.perfmodels.logs.samples import (
    CLUSTERS,
    HOSTS,
    MOST,
    OddLines,
    Sample,
    lines_of,
    reading,
    several_draws,
)
from wattsched.reading.inputs import MOST_NAMED, echo, json_in, listed, naming, notice

SERIES = re.compile(r"(\w+)\{(.*)\}\s+(\S+)(?:\s+(-?\d+))?\s*")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
MS_PER_S = 1000.0
METRICS = {
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_GPU_UTIL": "utilisation",
    "DCGM_FI_DEV_SM_CLOCK": "frequency_mhz",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": "power_limit_w",
}
"""DCGM's field to the column of a sample."""
PODS = (("exported_namespace", "exported_pod"), ("namespace", "pod"), ("pod_namespace", "pod_name"))
"""Labels of namespace and pod. Prometheus says ``exported_pod`` where ``pod`` is that of the exporter."""


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
        with naming(f"{name}, line {line}, {metric}"):
            number = reading(value, MOST[METRICS[metric]])
        yield Point(metric, known, key=scrape, time_s=time_s, value=number)
    odd.tell()


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: ESCAPED.get(found[0], found[0]), text)


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
            match pair:
                case [int() | float() as time_s, str(cell)] if math.isfinite(time_s):
                    with naming(f"{place}, {metric}"):
                        value = reading(cell, MOST[METRICS[metric]])
                    yield Point(metric, known, key=time_s, time_s=time_s, value=value)
                case _:
                    told = f"{echo(json.dumps(pair))} is no pair of seconds and a value in quotes"
                    raise ValueError(f"{place}: {told}")


class Point(NamedTuple):
    """A value of a metric; `key` tells moments apart where there are no times."""

    metric: str
    labels: Mapping[str, str]
    key: float
    time_s: float
    value: float


def joined(points: Iterable[Point], name: str) -> Iterator[Sample]:
    """Join points to samples, one of each GPU, job and moment; each job on a GPU has all the GPU's watts."""
    found: dict[tuple[str, str, float], tuple[float, dict[str, Any]]] = {}
    of_parts, told_twice = set[str](), list[str]()
    for point in points:
        column = METRICS[point.metric]
        job = job_of(point.labels)
        if point.labels.get("GPU_I_ID"):
            of_parts.add(job or "none")
            continue
        key = (job, gpu := _gpu_of(point.labels, name), point.key)
        _, values = found.setdefault(key, (point.time_s, {"model": point.labels.get("modelName", "")}))
        if not point.value >= 0:  # unknown
            continue
        if column == "power_w" and values.get(column, point.value) != point.value:
            told_twice = [gpu]
        values[column] = point.value
    parts = "parts of GPUs (GPU_I_ID), of which nobody knows the watts"
    if of_parts and not found:
        raise ValueError(f"{name} has {parts}")
    told = [f"left out: {parts}, of the jobs {listed(sorted(of_parts), most=MOST_NAMED)}"] * bool(of_parts)
    for one in (*told, *map(several_draws, told_twice)):
        notice(f"{name}: {one}")
    jobs = Counter((gpu, moment) for job, gpu, moment in found if job)
    for (job, gpu, moment), (time_s, values) in found.items():
        yield Sample(job, gpu, time_s, jobs=jobs[gpu, moment] if job else 1, **values)


def job_of(labels: Mapping[str, str]) -> str:
    """Slurm's job (``hpc_job``), else NAMESPACE/POD, behind the cluster where there is one; else nothing."""
    if job := labels.get("hpc_job"):
        return _within(labels, CLUSTERS, job)
    for namespace, pod in PODS:
        if labels.get(pod):
            return _within(labels, CLUSTERS, f"{labels.get(namespace, '')}/{labels[pod]}")
    return ""


def _within(labels: Mapping[str, str], of: Sequence[str], name: str) -> str:
    """Name behind the first of some labels that there is: ``CLUSTER/NAME``."""
    there = next(filter(None, map(labels.get, of)), None)
    return f"{there}/{name}" if there else name


def _gpu_of(labels: Mapping[str, str], name: str) -> str:
    """UUID of a GPU, else CLUSTER/HOST/NUMBER; without either a ValueError names the log."""
    if uuid := labels.get("UUID") or labels.get("uuid"):
        return uuid
    if not (gpu := labels.get("gpu") or labels.get("device", "")):
        raise ValueError(f"{name}: a series has neither of the labels UUID and gpu; do not sum over GPUs")
    return _within(labels, CLUSTERS, _within(labels, (*HOSTS, "instance"), gpu))
