"""Traces are replayed with profiles that a user gives, in the place of the catalogue's and beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattsched import JobSource, fit_profile, generate, replay_jobs
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import InputError, NoticeWarning
from wattsched.instances.traces.job_lists import read_plain
from wattsched.perfmodels.profile import CATALOGUE, Profile, Profiles, catalogue, find, models
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replaying.job_sources import read_profiles

LISTS = {
    "csv": "job,arrival,duration,gpus,model\na,0,3600,2,{0}\nb,60,1800,4,{0}\n",
    "itp": "job_id,submission_time,duration,num_gpu,model_name,batch_size\na,0,36,2,{0},64\nb,6,9,4,{0},64\n",
    "work": "job,arrival_s,work,requested_gpus,model\na,0,400000,2,{0}\nb,60,300000,4,{0}\n",
}
CLUSTER = homogeneous_cluster(2, 8, "A100")

pytestmark = pytest.mark.filterwarnings("ignore::wattsched.instances.errors.NoticeWarning")


def written(folder: Path, document: Any) -> Path:
    path = folder / "profiles.json"
    path.write_text(json.dumps(document))
    return path


def replayed(folder: Path, form: str, model: str, profiles: Path | None) -> Summary:
    trace = folder / "trace.csv"
    trace.write_text(LISTS[form].format(model))
    source = JobSource(trace, form="itp" if form == "itp" else "csv", profiles=profiles)
    ((_, outcome),) = replay_jobs(source.traces(CLUSTER), ["elastic"])
    return replace(summary(outcome), decision_median_s=0.0, decision_p99_s=0.0)


def resnet() -> Profile:
    profile = find("resnet50", "A100")
    assert profile is not None
    return profile


@pytest.mark.parametrize("form", LISTS)
def test_the_catalogues_own_profile_changes_nothing_and_another_does(tmp_path: Path, form: str) -> None:
    same = written(tmp_path, resnet().model_dump(mode="json"))
    without = replayed(tmp_path, form, "resnet50", None)
    assert replayed(tmp_path, form, "resnet50", same) == without
    power = resnet().power.model_copy(update={"static_w": 0.0, "dynamic_w": 100.0, "sync_w": 20.0})
    frugal = resnet().model_copy(update={"power": power})
    found = replayed(tmp_path, form, "resnet50", written(tmp_path, [frugal.model_dump(mode="json")]))
    assert found.jct_mean_s == pytest.approx(without.jct_mean_s)
    assert found.energy_j < without.energy_j
    # A model under another name is as fast, and known by it alone.
    mine = resnet().model_copy(update={"model": "mynet"})
    document = generate("uniform", jobs=2).model_copy(update={"profiles": [mine]}).model_dump(mode="json")
    assert replayed(tmp_path, form, "mynet", written(tmp_path, document)) == without
    with pytest.raises((ValueError, InputError), match="'mynet' is not in the catalogue, which has bert"):
        replayed(tmp_path, form, "mynet", None)


def test_what_fit_writes_is_replayed(tmp_path: Path) -> None:
    steps = "gpus,batch_size,step_time_s,power_w\n1,64,0.1,300\n2,64,0.06,280\n4,64,0.04,250\n8,64,0.03,220\n"
    (tmp_path / "steps.csv").write_text(steps)
    profile = fit_profile(tmp_path / "steps.csv", "mynet", "A100").profile
    path = written(tmp_path, json.loads(profile.model_dump_json(exclude_none=True)))
    assert read_profiles(path) == Profiles((profile,))
    assert replayed(tmp_path, "csv", "mynet", path).jobs == 2


def test_a_gpu_type_that_the_catalogue_lacks_becomes_known(tmp_path: Path) -> None:
    document = CLUSTER.model_dump(mode="json")
    document["gpu_types"] = {"Z9": document["gpu_types"]["A100"] | {"profile": None}}
    for node in document["nodes"]:
        node["gpu_type"] = "Z9"
    cluster = type(CLUSTER).model_validate(document)
    mine = resnet().model_copy(update={"gpu_type": "Z9"})
    (tmp_path / "t.csv").write_text("job,arrival,duration,gpus\na,0,3600,2\n")
    with pytest.raises(ValueError, match="the catalogue has no profile for any GPU type"):
        JobSource(tmp_path / "t.csv").traces(cluster)
    path = written(tmp_path, mine.model_dump(mode="json"))
    trace = JobSource(tmp_path / "t.csv", profiles=path).traces(cluster)[0]
    assert len(trace) == 1
    np.testing.assert_array_less(0, trace.configurations.rate)


def test_what_is_given_takes_the_place_of_the_catalogue() -> None:
    first, second = (resnet().model_copy(update={"source": text}) for text in "ab")
    stand_in = resnet().model_copy(update={"gpu_type": "B7", "source": "c"})
    known = Profiles((first, second, stand_in))
    assert known.find("resnet50", "A100") == first
    assert known.find("resnet50", "B7", "A100") == stand_in
    assert known.find("resnet50", "C7", "A100") == first
    assert known.find("bert", "A100") == find("bert", "A100")
    assert CATALOGUE.models == models() == known.models
    assert all(CATALOGUE.find(p.model, p.gpu_type) == p for p in catalogue())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "is neither a profile nor a list of them, nor an instance with 'profiles'"),
        ([], "is neither a profile nor a list of them"),
        ({"profiles": []}, "is neither a profile nor a list of them"),
        (3, "is neither a profile nor a list of them"),
        ([{"model": "m"}], r"\[0\].gpu_type: is missing"),
        ({"throughput": 3}, r"throughput: must be an object, got 3"),
    ],
)
def test_files_without_profiles_are_refused(tmp_path: Path, document: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_profiles(written(tmp_path, document))


def test_jobs_on_fewer_gpus_than_they_asked_for_are_told_of(tmp_path: Path) -> None:
    ours = resnet().model_copy(update={"model": "ours", "gpu_counts": [4]})
    path = written(tmp_path, ours.model_dump(mode="json"))

    def notices(rows: str) -> str:
        (tmp_path / "t.csv").write_text(f"job,arrival,duration,gpus,model\n{rows}")
        with pytest.warns(NoticeWarning) as said:
            JobSource(tmp_path / "t.csv", profiles=path).traces(CLUSTER)
        return "\n".join(str(one.message) for one in said)

    cut = notices("a,0,60,16,ours\nb,0,60,8,ours\nc,0,60,4,ours\nd,0,60,1000000,bert\n")
    assert "3 of 4 jobs run as long on fewer GPUs" in cut
    assert "'d', which asks for most, runs on 16 instead of 1,000,000" in cut
    with pytest.raises(
        ValueError, match="'ours' on A100 begins at 4 GPUs, and 2 are what can be had; measure 2"
    ):
        notices("a,0,60,2,ours\n")
    most = ours.max_local_batch
    large = ours.model_copy(
        update={"gpu_counts": [1, 4], "batch_sizes": [4 * most], "default_batch": 4 * most}
    )
    path = written(tmp_path, large.model_dump(mode="json"))
    with pytest.raises(ValueError, match=f"on 2 A100, .* measure 2 GPUs with batches of {2 * most} or less"):
        notices("a,0,60,2,ours\n")
    (tmp_path / "t.csv").write_text("job,arrival,duration,gpus\na,0,60,1e12\n")
    with pytest.raises(InputError, match="column 'gpus': must be at most 10,000,000, got 1e12"):
        read_plain(tmp_path / "t.csv")
