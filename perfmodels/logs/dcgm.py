"""Names of DCGM's fields, and the reader of logs of ``dcgmi dmon -e 155,203,100,160``.

``dcgmi dmon`` prints a table: ``#Entity`` and a short name for each field, a line of units, and a line for
each GPU, ``GPU 0    123.456    98    1410``; both first lines again after every 14 lines. It tells no times.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wattsched.perfmodels.logs.samples import (
    CLUSTERS,
    HOSTS,
    IN_MIG,
    MOST,
    OddLines,
    Sample,
    lines_of,
    reading,
    several_draws,
)
from wattsched.reading.inputs import MOST_NAMED, NoticeWarning, listed
from wattsched.reading.units import Numbers

NAME = "dcgmi dmon"
HEADER = re.compile(r"#\s*Entity\b")
FIELDS = {
    "power_w": ("DCGM_FI_DEV_POWER_USAGE", "POWER"),
    "utilisation": ("DCGM_FI_DEV_GPU_UTIL", "GPUTL"),
    "frequency_mhz": ("DCGM_FI_DEV_SM_CLOCK", "SMCLK"),
    "power_limit_w": ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "PMLMT"),
}
"""Column of a sample to DCGM's field, and its short name."""
WATTS = ("POWER", "PMLMT")
METRICS = {metric: column for column, (metric, _) in FIELDS.items()}
"""DCGM's field to the column of a sample."""
PODS = (("exported_namespace", "exported_pod"), ("namespace", "pod"), ("pod_namespace", "pod_name"))
"""Labels of namespace and pod. Prometheus says ``exported_pod`` where ``pod`` is that of the exporter."""


def recognises(text: str) -> bool:
    """True if a text begins as the output of ``dcgmi dmon``."""
    return bool(HEADER.match(text.lstrip()))


def read(text: str, name: str) -> Iterator[Sample]:
    """Samples of ``dcgmi dmon``, in the order of its lines."""
    columns: list[str] = []
    watts: dict[str, Numbers] = {}
    odd, in_mig = OddLines(name), False
    _, power = FIELDS["power_w"]
    for line, text_line in enumerate(lines_of(text), start=1):
        if HEADER.match(text_line):
            columns = text_line.replace("#", " ").split()[1:]
            if power not in columns:
                raise ValueError(f"{name}, line {line}: no column POWER (-e 155), found {listed(columns)}")
            continue
        words, place = text_line.split(), f"{name}, line {line}"
        if words[:1] == ["ID"] and len(words) == len(columns) + 1:
            units = dict(zip(columns, words[1:], strict=True))
            watts = {short: Numbers(f"[{units[short]}]", "power", place) for short in WATTS if short in units}
        in_mig |= words[:1] in (["GPU-I"], ["GPU-CI"])
        # Units, what is said at the end, and parts of GPUs, of which nobody knows the watts.
        if len(words) < 2 or words[0] != "GPU" or not words[1].isdecimal():
            continue
        if len(words) != len(columns) + 2:
            odd.leave_out(line, f"{len(words) - 2} values of the {len(columns)} columns")
            continue
        cells = dict(zip(columns, words[2:], strict=True))
        values: dict[str, Any] = {
            column: reading(cells[short], f"{place}, column {short}", MOST[column], read=watts.get(short))
            for column, (_, short) in FIELDS.items()
            if short in cells
        }
        yield Sample("", words[1], **values)
    odd.tell()
    if in_mig:
        warnings.warn(f"{name}: {IN_MIG}", NoticeWarning, stacklevel=2)


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
        warnings.warn(f"{name}: {one}", NoticeWarning, stacklevel=2)
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
