"""Readers of logs of GPUs: nvidia-smi, DCGM, Prometheus, Zeus.

To add one: a file with a function that reads its text into samples, and its line in `LOGS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from wattsched.perfmodels.logs import prometheus, tables, zeus
from wattsched.perfmodels.logs.samples import Sample, Samples
from wattsched.reading.inputs import naming, read_text
from wattsched.reading.tables import tell_cut


@dataclass(frozen=True)
class Log:
    """A kind of log: what writes it, a pattern of how its text begins, and the samples of such a text.

    Readers take the file's name, too, for messages; what is malformed is a ValueError, with its line.
    """

    name: str
    begins: str
    read: Callable[[str, str], Iterator[Sample]]


LOGS = (
    Log("Zeus (CSV of windows)", r"start_time *, *window_name *, *elapsed_time *(,|$)", zeus.read_windows),
    Log("Zeus (JSON of power limits)", r'(?s)\{(?=.*"measurements").*"power_limit"', zeus.read_profile),
    Log("Prometheus (JSON of query_range)", r'(?s)\{.*"resultType"', prometheus.read_answer),
    Log("dcgm-exporter (text of metrics)", r"(?ms)(?=#|DCGM_).{,100000}?^DCGM_\w+\{", prometheus.read_text),
    Log("dcgmi dmon", tables.ENTITY, tables.read_dmon),
    Log("nvidia-smi", rf"(?m)(.{{,10000}},)? *(power\.draw|({tables.VALUE})[ \r]*(,|$))", tables.read_smi),
)


def log_of(text: str) -> Log | None:
    """Kind of log that a text is, if any."""
    begin = text.lstrip()
    return next((log for log in LOGS if re.match(log.begins, begin)), None)


def _why_none(text: str) -> str:
    """Say why a text is none of the logs, and what to do where that can be seen in its first line."""
    header = text.lstrip().partition("\n")[0]
    if log := log_of(header.replace(";", ",")):
        return (
            f"separates cells by ';' and not by ',' as {log.name} does; write commas, and points in decimals"
        )
    if re.search(r"\b(socket_power|average_socket_power|gfx_activity)\b", header, re.IGNORECASE):
        names = "gpu index, socket_power power.draw [W], gfx_activity utilization.gpu [%]"
        return f"is a log of AMD's, which is not read; name its columns as nvidia-smi does: {names}"
    known = "; ".join(log.name for log in LOGS)
    return f"is no log of GPUs that is known ({known}), or lacks its header"


def read_log(path: str | Path, time_zone: tzinfo | None = None) -> Samples:
    """Read a log of any kind; `time_zone` is that of times without one. A ValueError names the file."""
    with naming(path):
        text = read_text(path)
        if (log := log_of(text)) is None:
            raise ValueError(f"{path} {_why_none(text)}")
        if not text.startswith(("{", "[")):
            tell_cut(text, path)
        return Samples.of(path, log.read(text, str(path)), time_zone)
