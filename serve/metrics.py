"""Counters and measurements of a service, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of one service, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "wattsched_requests", "Requests answered", ["method", "route", "status"], registry=self._registry
        )
        self.request_s = Histogram(
            "wattsched_request_seconds", "Time to answer a request", ["route"], buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        self.rounds = Counter(
            "wattsched_rounds", "Decisions recorded", ["termination"], registry=self._registry
        )
        self.solve_s = Histogram(
            "wattsched_solve_seconds", "Time to decide", buckets=_SECONDS, registry=self._registry
        )
        self.actions = Counter("wattsched_actions", "Done to jobs", ["action"], registry=self._registry)

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Tell a number that is asked for when it is read."""
        Gauge(name, about, registry=self._registry).set_function(value)

    def by(self, label: str, name: str, about: str) -> Gauge:
        """Return numbers to be set by the value of a label."""
        return Gauge(name, about, [label], registry=self._registry)

    def text(self) -> bytes:
        """All of it in the text format."""
        return generate_latest(self._registry)
