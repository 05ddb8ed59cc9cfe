"""GPU types that somebody names: known ones, those that count as another, and none by mistake."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.instances.clusters import GPU_TYPES, homogeneous_cluster
from wattsched.instances.errors import NoticeWarning
from wattsched.instances.gpu_names import BOARD_POWER_W, IDLE_PART, common_name, stated_gpu_type
from wattsched.instances.traces import TraceJob
from wattsched.replay.jobs.trace import trace_of_durations

WORDS = st.text("bcdefghijkmnopqrsuvwxyz", min_size=1, max_size=8)


@pytest.mark.parametrize("name", GPU_TYPES)
def test_a_measured_type_is_taken_as_it_is(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stated_gpu_type(name) == (name, GPU_TYPES[name])


@pytest.mark.parametrize("known", BOARD_POWER_W)
def test_of_a_data_sheet_the_limit_is_known_and_the_rest_is_said_to_be_assumed(known: str) -> None:
    with pytest.warns(NoticeWarning, match=f"assumed: GPU type '{known}' as fast as A100, with its watts"):
        name, kind = stated_gpu_type(known)
    assert (name, kind.max_power_w) == (known, BOARD_POWER_W[known])
    assert kind.idle_power_w == pytest.approx(IDLE_PART * BOARD_POWER_W[known], abs=0.05)


@given(WORDS, st.sampled_from(list(GPU_TYPES)))
def test_any_type_counts_as_what_is_said_and_none_by_itself(name: str, known: str) -> None:
    assert common_name(name) == name  # no type has such a name
    with pytest.raises(
        ValueError, match=f"gpu_type: '{name}' is not known.*counts instead, as in {name}=A100"
    ):
        stated_gpu_type(name)
    with pytest.warns(NoticeWarning, match=f"GPU type '{name}' counts as {known}, as you say"):
        called, kind = stated_gpu_type(f"{name}={known}")
    assert called == name
    assert kind == GPU_TYPES[known].model_copy(update={"profile": known})
    with pytest.raises(ValueError, match="is not TYPE=KNOWN"):
        stated_gpu_type(f"{name}={name}")


def test_a_cluster_of_such_gpus_runs_jobs_as_long_as_they_were_recorded() -> None:
    with pytest.warns(NoticeWarning):
        name, kind = stated_gpu_type("rtx5090=A100")
    cluster = homogeneous_cluster(1, 8, name, kind=kind)
    trace = trace_of_durations(cluster, [TraceJob("j", 0, 600, 4, gpu_type=name)])
    assert trace.work[0] / trace.requested_rate[0] == pytest.approx(600)
