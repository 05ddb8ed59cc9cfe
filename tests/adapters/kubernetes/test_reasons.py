"""Reasons why pods wait, as events: when one is written, what it says, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.kubernetes.test_room import Cluster
from wattsched.adapters import loop
from wattsched.adapters.reasons import LONGEST


class Noting(Cluster):
    """A cluster that keeps its events."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.events: list[tuple[str, str]] = []

    def write_event(self, namespace: str, event: dict[str, Any]) -> None:
        assert (event["reason"], event["metadata"]["namespace"]) == ("Waits", namespace)
        self.events.append((event["involvedObject"]["name"], event["message"]))


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = Noting(tmp_path)
    yield made
    made.journal.close()


def test_an_event_for_each_change_of_the_reason_and_not_for_each_round(
    cluster: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now_s[0])
    for i in range(2):
        cluster.submit(f"busy{i}", 6)
    rounds = cluster.rounds()
    rounds.round()
    cluster.submit("waits", 4)

    def told(after_s: float) -> list[str]:
        now_s[0] += after_s
        cluster.events.clear()
        rounds.round()
        return [message for name, message in cluster.events if name == "waits"]

    assert told(0.0) == ["waits: needs 4 GPUs on one node, 2 are free on n0"]
    assert [told(30.0) for _ in range(5)] == [[]] * 5
    cluster.submit("small", 1)
    cluster.submit("other", 1)
    # The same kind of reason with other numbers is no news for a while, another kind is.
    assert told(60.0) == []
    assert len(told(600.0)) == 1
    cluster.submit("busy2", 8)
    cluster.budget.power_w = 1.0
    for name in ("busy0", "busy1", "small", "other"):
        cluster.evict("t", name, name)
    (message,) = told(61.0)
    assert message.startswith("waits: the site would draw ")


def test_jobs_of_other_namespaces_are_counted_and_not_named(cluster: Noting) -> None:
    for i in range(2):
        cluster.submit(f"secret{i}", 8)["metadata"]["namespace"] = "theirs"
    cluster.submit("mine", 8, weight=0.1)
    assert cluster.rounds(apply=False).round().waiting == {
        "t/mine": "needs 8 GPUs on one node, none is free; 2 other jobs go first"
    }
    cluster.submit("ours", 8, weight=0.2)
    cluster.pods.pop("secret0")
    options = {"names_of_other_namespaces": True}
    assert cluster.rounds(apply=False).round().waiting["t/mine"].endswith("t/ours and 1 more go first")
    named = cluster.rounds(apply=False, options=options).round().waiting["t/mine"]
    assert "theirs/secret1" in named


@pytest.mark.parametrize(("most", "events"), [(0, 0), (3, 3), (20, 8)])
def test_a_round_writes_no_more_than_the_site_allows(cluster: Noting, most: int, events: int) -> None:
    cluster.budget.power_w = 1.0
    cluster.gang("gang", 8)
    rounds = cluster.rounds()
    rounds.reasons._most = most
    assert len(rounds.round().waiting) == 1
    assert len(cluster.events) == events


def test_hostile_names_are_printable_and_bounded(cluster: Noting) -> None:
    cluster.submit("odd", 1, **{"options": "x" * 500 + "\n\x1b[31m"})
    cluster.rounds().round()
    ((_, message),) = cluster.events
    assert message.isprintable()
    assert len(message) <= LONGEST + len("waits: ")


def test_writing_ends_with_the_time_of_the_round(cluster: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event takes a second of the four that a round has."""
    now_s = [1000.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now_s[0])
    cluster.budget.power_w = 1.0
    for i in range(10):
        cluster.submit(f"p{i}")
    rounds = cluster.rounds()
    rounds.policy = replace(rounds.policy, every_s=4.0)
    write = cluster.write_event

    def slow(namespace: str, event: dict[str, Any]) -> None:
        now_s[0] += 1.0
        write(namespace, event)

    monkeypatch.setattr(cluster, "write_event", slow)
    assert rounds.round().took_s < 1.0
    first = [name for name, _ in cluster.events]
    assert 4 <= len(first) <= 5
    # The next round goes on with those that have none.
    rounds.round()
    names = [name for name, _ in cluster.events]
    assert len(names) == len({*names}) > len(first)
