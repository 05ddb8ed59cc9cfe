"""Report rounds to Prometheus, and to the watchdog of systemd."""

from __future__ import annotations

import math
import os
import socket
import time
from contextlib import suppress
from functools import partial

from wattsched.adapters.rounds import Report
from wattsched.serve.metrics import Metrics


class RoundMetrics:
    """Figures of the rounds on a cluster."""

    def __init__(self, metrics: Metrics) -> None:
        self._last, self._ended_s, self._failed = Report(power_w=math.nan), time.monotonic(), 0
        for name, about, value in (
            ("round_age_seconds", "Since the last round that was done", self._age_s),
            ("rounds_failed", "Rounds that could not be done", lambda: self._failed),
            ("round_seconds", "Time that the last round took", lambda: self._last.took_s),
            ("power_watts", "Draw by the model after the last round", lambda: self._last.power_w),
            ("cap_watts", "Cap of the last round; infinite without any", self._cap_w),
            ("margin_watts", "Margin of the cap for errors of the model", lambda: self._last.margin_w),
            ("measured_watts", "Draw with jobs that are read as measured; nan without", self._measured_w),
            ("jobs_running", "Jobs of ours on GPUs", lambda: self._last.running),
            ("jobs_queued", "Jobs of ours that wait", lambda: self._last.queued),
            (
                "jobs_waiting",
                "Jobs that are told why they wait, those that cannot be decided on among them",
                partial(self._count, "waiting"),
            ),
            ("alarms", "What an operator has to see to", partial(self._count, "alarms")),
            ("round_notes", "What the last round noted, as refused actions", partial(self._count, "notes")),
        ):
            metrics.watch(f"wattsched_{name}", about, value)

    def note(self, told: Report | Exception) -> None:
        """Take the figures of a round, or that there was none."""
        if isinstance(told, Exception):
            self._failed += 1
        else:
            self._last, self._ended_s = told, time.monotonic()

    def _age_s(self) -> float:
        return time.monotonic() - self._ended_s

    def _cap_w(self) -> float:
        return math.inf if self._last.cap_w is None else self._last.cap_w

    def _measured_w(self) -> float:
        return math.nan if self._last.measured_w is None else self._last.measured_w

    def _count(self, field: str) -> float:
        return len(getattr(self._last, field, ()))


def notify(state: str = "READY=1\nWATCHDOG=1") -> None:
    """Tell systemd, where it has started us, that we are alive (sd_notify)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
