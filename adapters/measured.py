"""Report rounds to Prometheus, and to the watchdog of systemd."""

from __future__ import annotations

import math
import os
import socket
import time
from collections import Counter
from contextlib import suppress

from wattsched.adapters.rounds import Report
from wattsched.serve.metrics import Metrics

_KINDS = ("room", "power", "quota", "order", "cut", "paused", "undecided", "excluded", "postponed")
"""Kinds of the reasons why jobs wait."""


class RoundMetrics:
    """Figures of the rounds on a cluster."""

    def __init__(self, metrics: Metrics) -> None:
        self._last, self._ended_s, self._failed = Report(), time.monotonic(), 0
        actions = ("start", "stop", "change", "pause", "resume", "signal")
        self._actions = {name: metrics.actions.labels(name) for name in actions}
        for name, about, value in (
            ("round_age_seconds", "Since the last round that was done", self._age_s),
            ("rounds_failed", "Rounds that could not be done", lambda: self._failed),
            ("round_seconds", "Time that the last round took", lambda: self._last.took_s),
            ("decision_seconds", "Time that the last decision took", lambda: self._last.decided_s),
            ("readings_age_seconds", "Since the last reading that counted", self._unread_s),
            ("cap_unknown", "1 where the cap is not known", lambda: bool(self._last.cap_unknown)),
            ("jobs_running", "Jobs of ours on GPUs", lambda: self._last.running),
            ("jobs_queued", "Jobs of ours that wait", lambda: self._last.queued),
            ("alarms", "What an operator has to see to", lambda: len(self._last.alarms)),
            ("round_notes", "What the last round noted, as refused actions", lambda: len(self._last.notes)),
        ):
            metrics.watch(f"wattsched_{name}", about, value)
        self._watts = {
            (field, without): metrics.by("domain", f"wattsched_{name}", about)
            for name, about, field, without in (
                ("power_watts", "Draw by the model after the last round", "power_w", math.nan),
                ("cap_watts", "Cap of the last round; infinite without any", "cap_w", math.inf),
                ("margin_watts", "Margin of the cap for errors of the model", "margin_w", 0.0),
                ("measured_watts", "Draw with jobs that are read as measured", "measured_w", math.nan),
                ("next_cap_watts", "Cap after its next announced change", "next_cap_w", math.inf),
                ("next_cap_timestamp_seconds", "Time of that change", "next_cap_s", math.nan),
            )
        }
        self._waiting = metrics.by("reason", "wattsched_jobs_waiting", "Jobs by the reason why they wait")

    def note(self, told: Report | Exception) -> None:
        """Take the figures of a round, or that there was none."""
        if isinstance(told, Exception):
            self._failed += 1
            return
        self._last, self._ended_s = told, time.monotonic()
        for (field, without), watts in self._watts.items():
            for domain, row in told.domains.items():
                watts.labels(domain).set(row.get(field, without))
        kinds = Counter(getattr(why, "kind", "excluded") for why in told.waiting.values())
        kinds["postponed"] = len(told.postponed)
        for kind in _KINDS:
            self._waiting.labels(kind).set(kinds[kind])
        if told.planned_w is None:  # else nothing was done
            for action, counter in self._actions.items():
                counter.inc(len(told.jobs.get(action, ())))

    def _age_s(self) -> float:
        return time.monotonic() - self._ended_s

    def _unread_s(self) -> float:
        return math.nan if self._last.unread_s is None else self._last.unread_s + self._age_s()


def notify(state: str = "READY=1\nWATCHDOG=1") -> None:
    """Tell systemd, where it has started us, that we are alive (sd_notify)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
