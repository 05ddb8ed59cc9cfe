"""Readers of logs of GPUs: nvidia-smi, DCGM, Prometheus, Zeus.

To add one: a file with a function that recognises the text and one that reads it into samples, and its line
in `LOGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from wattsched.perfmodels.logs import dcgm, nvidia_smi, prometheus, zeus
from wattsched.perfmodels.logs.samples import Sample, Samples
from wattsched.reading.inputs import naming, read_text, tell_cut


@dataclass(frozen=True)
class Log:
    """A kind of log: what writes it, whether a text is one, and the samples of such a text.

    Readers take the file's name, too, for messages; what is malformed is a ValueError, with its line.
    """

    name: str
    recognises: Callable[[str], bool]
    read: Callable[[str, str], Iterator[Sample]]


LOGS = (
    Log(zeus.WINDOWS, zeus.recognises_windows, zeus.read_windows),
    Log(zeus.PROFILE, zeus.recognises_profile, zeus.read_profile),
    Log(prometheus.ANSWER, prometheus.recognises_answer, prometheus.read_answer),
    Log(prometheus.TEXT, prometheus.recognises_text, prometheus.read_text),
    Log(dcgm.NAME, dcgm.recognises, dcgm.read),
    Log(nvidia_smi.NAME, nvidia_smi.recognises, nvidia_smi.read),
)


def log_of(text: str) -> Log | None:
    """Kind of log that a text is, if any."""
    return next((log for log in LOGS if log.recognises(text)), None)


def read_log(path: str | Path, time_zone: tzinfo | None = None) -> Samples:
    """Read a log of any kind; `time_zone` is that of times without one. A ValueError names the file."""
    with naming(path):
        text = read_text(path)
        if (log := log_of(text)) is None:
            known = "; ".join(log.name for log in LOGS)
            raise ValueError(f"{path} is no log of GPUs that is known ({known}), or lacks its header")
        if not text.startswith(("{", "[")):
            tell_cut(text, path)
        return Samples.of(path, log.read(text, str(path)), time_zone)
