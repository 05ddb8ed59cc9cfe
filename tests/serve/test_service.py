"""The service on a real socket: what it answers, refuses and promises."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, Request

import wattsched
from wattsched.serve import service
from wattsched.serve.limits import Limits
from wattsched.serve.recorded import RecordedSession
from wattsched.serve.rounds import Contents, Round, Rounds
from wattsched.sessions.session_decision import SessionDecision

from .conftest import Client, Serve
from .victim import CLUSTER, DOCUMENT, body_of


def test_a_session_from_beginning_to_end(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db") as ask:
        assert ask("PUT", "/v1/sessions/s", DOCUMENT)[0] == 200
        assert ask("PUT", "/v1/sessions/s", DOCUMENT)[0] == 200
        assert ask("PUT", "/v1/sessions/s", {**DOCUMENT, "round_s": 1.0})[0] == 409
        assert ask("GET", "/v1/sessions")[1] == {"sessions": ["s"]}
        assert ask("PUT", "/v1/sessions/s/jobs", body_of("a", "b", "c"))[1] == {"upserted": 3, "jobs": 3}
        assert ask("DELETE", "/v1/sessions/s/jobs", {"ids": ["c"]})[1] == {"removed": 1, "jobs": 2}
        assert ask("PATCH", "/v1/sessions/s", {"power_w": 5000, "down": ["n0"]})[0] == 200
        status, made = ask("POST", "/v1/sessions/s/solve", {"deadline_s": 10.0})
        assert (status, made["round"], made["applied"]) == (200, 1, False)
        assert made["changes"] == {"a": "start", "b": "start"}
        assert set(made["jobs"]) == {"a", "b"}
        assert all("n0" not in job["nodes"] for job in made["jobs"].values())
        assert ask("POST", "/v1/sessions/s/rounds/1/apply")[1] == {"applied": 1}
        found = ask("GET", "/v1/sessions/s/jobs")[1]
        assert {job["name"]: job["current"]["nodes"] for job in found["jobs"]} == {
            name: job["nodes"] for name, job in made["jobs"].items()
        }
        again = ask("POST", "/v1/sessions/s/solve", {"apply": True})[1]
        assert (again["round"], again["changes"], again["applied"]) == (2, {}, True)
        assert [line["number"] for line in ask("GET", "/v1/sessions/s/rounds")[1]["rounds"]] == [1, 2]
        assert ask("GET", "/v1/sessions/s/rounds/1")[1]["jobs"] == made["jobs"]
        assert ask("GET", "/v1/sessions/s/jobs/a/why")[1]["state"] == "runs"
        assert ask("GET", "/v1/sessions/s/jobs/zz/why")[0] == 404
        exported = [ask("GET", f"/v1/sessions/s/rounds/1/{what}")[1] for what in ("instance", "result")]
        files = [tmp_path / "instance.json", tmp_path / "result.json"]
        for file, document in zip(files, exported, strict=True):
            file.write_text(json.dumps(document))
        assert wattsched.check(*files).faults == []
        described = ask("GET", "/v1/sessions/s")[1]
        assert (described["jobs"], described["running"], described["last_round"]) == (2, 2, 2)
        assert described["without_gpus"] == ["n0"]
        for what in ("rounds/2/apply", "cancel"):
            status, refused = ask("POST", f"/v1/sessions/s/{what}", {"x": 1})
            assert (status, refused["faults"]) == (422, ["x: is not a known field"])
        assert ask("DELETE", "/v1/sessions/s")[0] == 200
        assert ask("GET", "/v1/sessions/s")[0] == 404


def test_a_session_is_described_with_the_signal_that_it_follows(serve: Serve, tmp_path: Path) -> None:
    limit = {"from": "2027-01-31T17:00:00Z", "power_w": 3e3, "worth_per_kwh": 0.2}
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        assert not ask("GET", "/v1/sessions/s")[1].keys() & {"signal", "now"}
        changes = {"signal": {"name": "july", "limits": [limit]}, "now": "2027-01-31T16:00:00Z"}
        assert ask("PATCH", "/v1/sessions/s", changes)[0] == 200
        described = ask("GET", "/v1/sessions/s")[1]
        assert described["now"] == changes["now"]
        assert (described["signal"]["name"], described["signal"]["limits"]) == (
            "july",
            [{**limit, "notice_s": 0.0}],
        )
        ask("PATCH", "/v1/sessions/s", {"signal": None})
        assert "signal" not in ask("GET", "/v1/sessions/s")[1]


def test_the_round_as_it_is_now(serve: Serve, tmp_path: Path) -> None:
    """All that was told can be read again: the instance decides as the session does."""
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", {**DOCUMENT, "capacity": "count"})
        ask(
            "PATCH",
            "/v1/sessions/s",
            {"power_w": 3000.0, "reserved_w": {"n1": 70.0}, "unavailable": {"n2": [0]}},
        )
        ask("PUT", "/v1/sessions/s/jobs", body_of("a", "b", "c"))
        status, found = ask("GET", "/v1/sessions/s/instance")
        assert (status, found["name"], found["budgets"]) == (200, "s", {"power_w": 3000.0})
        instance = wattsched.Instance.model_validate(found)
        n1, n2 = instance.cluster.nodes[1:3]
        assert (n1.reserved_w, list(n2.unavailable), instance.cluster.capacity) == (70.0, [0], "count")
        made = ask("POST", "/v1/sessions/s/solve", {"gap": 0.0})[1]
        assert wattsched.solve(instance, gap=0.0).objective == made["objective"]
        assert ask("GET", "/v1/sessions/none/instance")[0] == 404


def test_a_signal_holds_at_the_time_of_the_round_also_after_a_restart(serve: Serve, tmp_path: Path) -> None:
    event = {"from": "2027-01-31T17:00Z", "to": "2027-01-31T18:00Z", "power_w": 2000.0}
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        signal = {"power_w": 3000.0, "limits": [event]}
        told = {"signal": signal, "now": "2027-01-31T16:58Z", "down": ["n0"]}
        assert ask("PATCH", "/v1/sessions/s", told)[1]["budgets"]["power_w"] == 3000.0
        found = ask("PATCH", "/v1/sessions/s", {"now": "2027-01-31T16:59Z"})[1]
        assert found["budgets"]["power_w"] == 2000.0  # in the last minute of the round
    with serve(tmp_path / "j.db") as ask:
        assert ask("GET", "/v1/sessions/s")[1]["budgets"]["power_w"] == 2000.0
        after = {"now": "2027-01-31T18:00Z", "power_w": 2500.0}
        assert ask("PATCH", "/v1/sessions/s", after)[1]["budgets"]["power_w"] == 2500.0
        assert ask("PATCH", "/v1/sessions/s", {"power_w": None})[1]["budgets"]["power_w"] == 3000.0
        assert ask("PATCH", "/v1/sessions/s", {"signal": None})[1]["budgets"]["power_w"] is None


def test_a_round_in_one_request(serve: Serve, tmp_path: Path) -> None:
    """Jobs that came, changed and went, the decision and its being applied: all of it, or nothing."""
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        first = ask("POST", "/v1/sessions/s/solve", {**body_of("a", "b"), "apply": True})[1]
        assert first["changes"] == {"a": "start", "b": "start"}
        for wrong, told in (
            ({"remove": ["c"]}, "remove: there is no job 'c'"),
            ({"remove": ["a"]}, "remove: job 'a' is among the jobs, too"),
            ({"remove": ["b", "b"]}, "duplicate job to remove 'b'"),
            ({"remove": [1]}, "remove: must be names, got 1"),
            ({"remove": "b"}, "remove: must be a list, got 'b'"),
            ({"jobs": [{"name": "a", "weight": -1.0}]}, "jobs[0].weight: must be"),
        ):
            status, refused = ask("POST", "/v1/sessions/s/solve", {**body_of("a", weight=2.0), **wrong})
            assert (status, refused["faults"][0][: len(told)]) == (422, told)
        assert [job.get("weight") for job in ask("GET", "/v1/sessions/s/jobs")[1]["jobs"]] == [None, None]
        second = ask("POST", "/v1/sessions/s/solve", {**body_of("c"), "remove": ["a"], "apply": True})[1]
        assert (set(second["options"]), second["changes"]) == ({"b", "c"}, {"c": "start"})
        known = ask("GET", "/v1/sessions/s/jobs")
    with serve(tmp_path / "j.db") as ask:
        assert ask("GET", "/v1/sessions/s/jobs") == known


def test_metrics_and_health(shared: Client) -> None:
    assert shared("GET", "/healthz") == (200, {"alive": True})
    assert shared("GET", "/readyz") == (200, {"ready": True})
    shared("PUT", "/v1/sessions/metrics", DOCUMENT)
    shared("POST", "/v1/sessions/metrics/solve")
    text = shared("GET", "/metrics")[1].decode()
    assert 'wattsched_rounds_total{termination="optimal"}' in text
    assert "wattsched_request_seconds_bucket" in text


OCCUPIED_S = 4.0
"""Long enough for everything that happens meanwhile, however busy the machine is."""


def occupying() -> APIRouter:
    """Something that keeps a worker for a while, as an adapter may."""
    router = APIRouter()

    @router.get("/occupy")
    async def occupy(request: Request) -> None:
        await request.app.state.service.do(lambda: time.sleep(OCCUPIED_S))

    return router


def occupy(ask: Client) -> threading.Thread:
    """Keep the worker of a service busy."""
    thread = threading.Thread(target=ask, args=("GET", "/occupy"))
    thread.start()
    time.sleep(0.1)
    return thread


@pytest.mark.slow
def test_a_deadline_holds_in_the_queue(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db", Limits(workers=1), routers=[occupying()]) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        occupied = occupy(ask)
        began = time.monotonic()
        status, headers, told = ask.whole("POST", "/v1/sessions/s/solve", {"deadline_s": 0.1})
        assert time.monotonic() - began < OCCUPIED_S / 2
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"no time left" in told
        occupied.join()
        assert ask("GET", "/v1/sessions/s/rounds")[1]["rounds"] == []


@pytest.mark.slow
def test_a_decision_may_be_late_by_a_little(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk; where jobs changed, the answer always says so."""
    packed, solve = Rounds.packed, RecordedSession.solve
    deadlines: list[float] = []
    takes_s = [0.4]

    def slowly(decision: SessionDecision) -> Contents:
        time.sleep(takes_s[0])
        return packed(decision)

    def noting(self: RecordedSession, **asked: Any) -> Round:
        deadlines.append(asked["deadline_s"])
        return solve(self, **asked)

    monkeypatch.setattr(Rounds, "packed", staticmethod(slowly))
    monkeypatch.setattr(RecordedSession, "solve", noting)
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        monkeypatch.setattr(service, "_LATE_S", 20.0)
        assert ask("POST", "/v1/sessions/s/solve", {"deadline_s": 0.2})[0] == 200
        assert ask("POST", "/v1/sessions/s/solve", {"deadline_s": 2.0})[0] == 200
        assert deadlines[0] > 0.1
        assert deadlines[1] < 1.6  # what the round before took besides its decision is kept free
        monkeypatch.setattr(service, "_LATE_S", 0.0)
        status, told = ask("POST", "/v1/sessions/s/solve", {"deadline_s": 0.2})
        assert (status, told["error"]) == (503, "this was not ready in time")
        while ask("GET", "/v1/sessions/s")[1]["last_round"] < 3:  # it is recorded all the same
            time.sleep(0.05)
        takes_s[0] = 4.2  # beyond the deadline, half of which is left for the decision on a busy machine
        changed = {"deadline_s": 4.0, **body_of("a", "b")}
        assert ask("POST", "/v1/sessions/s/solve", changed)[1]["changes"].keys() == {"a", "b"}
        gone = {"deadline_s": 4.0, "remove": ["a"]}
        assert ask("POST", "/v1/sessions/s/solve", gone)[1]["options"].keys() == {"b"}


@pytest.mark.slow
def test_a_full_queue_refuses_and_keeps_what_it_promised(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db", Limits(workers=1, queue=3), routers=[occupying()]) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        ask("PUT", "/v1/sessions/t", {**DOCUMENT, "every_s": 0.1})
        occupied = occupy(ask)
        time.sleep(0.3)  # a background round waits now
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(ask("POST", "/v1/sessions/s/solve")[0]))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        occupied.join()
        assert sorted(found) == [200] * 3 + [503] * 3
        text = ask("GET", "/metrics")[1].decode()
        assert "wattsched_shed_rounds 0.0" not in text
        assert len(ask("GET", "/v1/sessions/s/rounds")[1]["rounds"]) == 3


def test_shadow_mode_applies_nothing_and_says_what_would_change(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db", shadow=True) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        ask("PUT", "/v1/sessions/s/jobs", body_of("a", "b"))
        assert ask("POST", "/v1/sessions/s/solve", {"apply": True})[0] == 409
        ask("POST", "/v1/sessions/s/solve")
        assert ask("POST", "/v1/sessions/s/rounds/1/apply")[0] == 409
        held = {"gpus": 4, "pool": "A", "nodes": {"n1": [0, 1, 2, 3]}}
        ask("PUT", "/v1/sessions/s/jobs", {"jobs": [{"name": "a", "current": held}]})
        ask("POST", "/v1/sessions/s/solve")
        report = ask("GET", "/v1/sessions/s/report")[1]
        assert report["shadow"] is True
        assert [line["counts"] for line in report["rounds"]] == [{"start": 2}, {"start": 1}]
        assert report["counts"] == {"start": 3}
        assert ask("GET", "/v1/sessions/s")[1]["running"] == 1


def test_a_decision_is_cancelled(serve: Serve, tmp_path: Path) -> None:
    """It ends with what it has, long before the seconds that were given to prove it."""
    rng = random.Random(1)
    nodes = [{"name": f"n{i}", "gpu_type": "A", "gpus": 4} for i in range(250)]
    document = {**DOCUMENT, "cluster": {**CLUSTER, "nodes": nodes}, "solver": "highs"}
    many = [{"name": f"j{i}", "options": own_table(rng)} for i in range(2000)]
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", document)
        assert ask("PUT", "/v1/sessions/s/jobs", {"jobs": many})[0] == 200
        ask("PATCH", "/v1/sessions/s", {"power_w": 90_000})
        found: list[Any] = []
        asked = {"deadline_s": 29.0, "gap": 0.0, "prove": 25.0}
        thread = threading.Thread(target=lambda: found.append(ask("POST", "/v1/sessions/s/solve", asked)))
        began = time.monotonic()
        thread.start()
        while thread.is_alive():
            time.sleep(0.2)
            assert ask("POST", "/v1/sessions/s/cancel")[0] == 200
        assert time.monotonic() - began < 15
        assert found[0][0] == 200
        assert ask("POST", "/v1/sessions/none/cancel")[0] == 404


def own_table(rng: random.Random) -> dict[str, Any]:
    gpus = [1, 2, 3, 4]
    rates = [round(g**0.8 * rng.uniform(0.5, 2), 4) for g in gpus]
    return {
        "gpus": gpus,
        "pool": ["A"] * 4,
        "rate": rates,
        "power_w": [rng.uniform(90, 200) * g for g in gpus],
    }


def test_routers_of_others(serve: Serve, tmp_path: Path) -> None:
    router = APIRouter()

    @router.get("/theirs")
    async def theirs() -> dict[str, bool]:
        return {"theirs": True}

    @router.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a secret of ours")

    with serve(tmp_path / "j.db", routers=[router]) as ask:
        assert ask("GET", "/theirs") == (200, {"theirs": True})
        assert ask("GET", "/broken") == (500, {"error": "internal error: RuntimeError"})
