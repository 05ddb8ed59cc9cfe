"""Records of jobs as changes of a session."""

from __future__ import annotations

import pytest

from wattsched import Session
from wattsched.serve.changes import upsert

TABLE = {"gpus": [1, 2], "pool": ["A100", "A100"], "power_w": [300.0, 500.0], "rate": [1.0, 1.8]}


@pytest.fixture
def session() -> Session:
    nodes = [{"name": "n", "gpu_type": "A100", "gpus": 8}]
    cluster = {"gpu_types": {"A100": {"idle_power_w": 50.0}}, "nodes": nodes}
    made = Session(cluster, tables={"t": TABLE}, objective="goodput")
    upsert(made, [{"name": "m", "model": "bert", "remaining_work": 1e6}])
    upsert(made, [{"name": "b", "options": "t"}])
    return made


@pytest.mark.parametrize(
    "new",
    [
        [{"name": "m", "weight": 3.0}, {"name": "c", "options": "t"}],
        [{"name": "b", "weight": 3.0}, {"name": "c", "model": "bert", "remaining_work": 1e6}],
    ],
)
def test_a_job_keeps_its_options_or_model_beside_others_that_come(
    session: Session, new: list[dict[str, object]]
) -> None:
    upsert(session, new)
    jobs = {job.name: job for job in session.to_instance().jobs}
    assert jobs.keys() == {"m", "b", "c"}
    assert jobs[str(new[0]["name"])].weight == 3.0
    assert (jobs["m"].model, jobs["m"].remaining_work, jobs["b"].model) == ("bert", 1e6, None)
