"""Rounds of the recorded cluster under any cap: what we count is what the engine counts, and fits."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.adapters.trust import decided as decision_of
from tests.adapters.trust import trusting
from tests.strategies.effort import examples
from wattsched.adapters.kubernetes.launches import Launch
from wattsched.adapters.kubernetes.load import Load, load_of
from wattsched.adapters.kubernetes.loop import Policy
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.plan import Round, plan_of, round_of
from wattsched.adapters.kubernetes.reading import Site, read
from wattsched.adapters.kubernetes.snapshot import load
from wattsched.adapters.plan import Kept


def site_of(fields: dict[str, Any]) -> KubernetesOptions:
    """The file of a site that believes its users."""
    return KubernetesOptions.model_validate(trusting(fields))


TRUSTING = site_of({})
RECORDED = Path(__file__).resolve().parents[3] / "examples" / "kubernetes.json"
SNAPSHOT = load(RECORDED)
PREFIX = "wattsched.io/"


def changed(change: Callable[[dict[str, Any]], object]) -> Site:
    """The recorded cluster after a change of its objects by name."""
    snapshot = copy.deepcopy(SNAPSHOT)
    objects = {one["metadata"]["name"]: one for one in (*snapshot["nodes"], *snapshot["pods"])}
    change(objects)
    return read(snapshot)


def annotated(name: str, **annotations: str) -> Site:
    """The recorded cluster with other annotations of a pod."""

    def change(objects: dict[str, Any]) -> None:
        written = {PREFIX + field.replace("_", "-"): text for field, text in annotations.items()}
        objects[name]["metadata"].setdefault("annotations", {}).update(written)

    return changed(change)


def load_at(site: Site, options: KubernetesOptions | None = None) -> Load:
    policy = Policy(options or TRUSTING)
    return load_of(site, policy.options, policy.ours)


def decided(site: Site, cap_w: float, options: KubernetesOptions | None = None) -> tuple[Round, Any]:
    """The round, and the decision under a cap."""
    round = round_of(load_at(site, options))
    return round, decision_of(round, cap_w)


def after(site: Site, plan: Any, options: KubernetesOptions | None = None) -> Load:
    """The load when the plan has been carried out, and what was evicted has gone."""
    gone = {
        pod.uid for job in load_at(site, options).ours.values() if job.name in plan.stops for pod in job.pods
    }
    left = Site(site.time_s, site.nodes, {uid: pod for uid, pod in site.pods.items() if uid not in gone})
    load = load_at(left, options)
    for start in plan.starts:
        bindings, why = load.placed(start)
        assert not why
        assert [one.node for one in bindings] == [one.node for one in start.bindings]
    return load


@given(st.floats(3_000, 20_000), st.booleans(), st.sampled_from([0.0, 4_000.0, 5_000.0]))
@settings(max_examples=examples(40), deadline=None)
def test_the_draw_is_what_the_engine_says_and_within_the_caps(
    cap_w: float, may_stop: bool, rack_w: float
) -> None:
    site = annotated("old", preemptible=json.dumps(may_stop))
    if may_stop:
        site = changed(lambda _: None)
    feed = {"name": "feed", "members": ["r1"], "power_cap_w": rack_w}
    options = site_of({"power_domains": [feed] if rack_w else []})
    round, decision = decided(site, cap_w, options)
    assume(decision.solved)
    plan = plan_of(round, decision)
    assert may_stop or not plan.stops
    assert not any(one.node == "gpu-3" for start in plan.starts for one in start.bindings)
    for start in plan.starts:
        assert len(start.bindings) == (start.job.pods[0].gang_size or 1)
    load = after(site, plan, options)
    assert load.power_w == pytest.approx(decision.result.totals["power_w"], rel=1e-9)
    assert load.power_w <= cap_w + 1e-6
    assert not rack_w or load.drawn_w["feed"] <= rack_w + 1e-6


@given(st.integers(0, 16), st.booleans())
@settings(max_examples=examples(20), deadline=None)
def test_namespaces_keep_to_their_quotas(gpus: int, may_stop: bool) -> None:
    """The pod of eight GPUs that runs counts whether or not it may be stopped."""
    site = read(SNAPSHOT) if may_stop else annotated("old", preemptible="false")
    options = site_of({"tenants": {"default": {"gpus": gpus}}})
    round, decision = decided(site, 20_000.0, options)
    assert decision.solved
    assert round.kept == ([] if may_stop else [Kept("default", 8, 3_200.0)])
    plan = plan_of(round, decision)
    own = [one for start in plan.starts for one in start.bindings if one.pod.namespace == "default"]
    stays = 8 * ("default/old" not in plan.stops)
    assert sum(one.pod.gpus for one in own) + stays <= max(gpus, 0 if may_stop else 8)


def test_a_label_names_the_tenant() -> None:
    def change(objects: dict[str, Any]) -> None:
        objects["old"]["metadata"].setdefault("labels", {})["team"] = "vision"

    tenants = {"vision": {"power_w": 1000.0}, "default": {"gpus": 3}}
    options = site_of({"tenants": tenants, "tenant_label": "team"})
    named = {job["name"]: job.get("tenant") for job in round_of(load_at(changed(change), options)).jobs}
    assert named.pop("default/old") == "vision"
    assert all(
        tenant == ("default" if name.startswith("default/") else None) for name, tenant in named.items()
    )


def test_the_watts_of_the_recorded_cluster_by_hand() -> None:
    # Bases; a pod of ours with 8 GPUs and one of others with 3; the idle rest of 32 GPUs.
    assert load_at(read(SNAPSHOT)).power_w == 4 * 200 + 3_200 + 3 * 400 + (32 - 11) * 50


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({"wieght": "2"}, "wattsched.io/wieght: is not a known field"),
        ({"options": "none"}, "wattsched.io/options: 'none' is no table of the options file"),
        ({"options": "{gpus: 1"}, "wattsched.io/options: is no JSON: '{gpus: 1'"),
        ({"gang": "g"}, "wattsched.io/gang: must be a label"),
        ({"options": "[]"}, "one object per option"),
        (
            {"options": '{"gpus": [4], "pool": ["A100"], "power_w": [1.0], "rate": [1]}'},
            "its pods ask for 2 GPUs, and its options are for 4",
        ),
        (
            {"options": '{"gpus": [2], "pool": ["H100"], "power_w": [1.0], "rate": [1]}'},
            "none of the GPU types",
        ),
        ({"model": "no-such-model"}, "'no-such-model' is none that is known"),
        ({"model": "yolov3"}, "'yolov3' has no option on the GPUs of this cluster"),
        ({"pools": '["H100"]'}, "'H100' is no GPU type"),
        ({"frequencies_mhz": "[1005]"}, "wattsched.io/frequencies-mhz: is read with a model alone"),
        ({"power_limits_w": "[200]"}, "wattsched.io/power-limits-w: is read with a model alone"),
        ({"batch_sizes": "[32]"}, "wattsched.io/batch-sizes: is read with a model alone"),
        ({"weight": "-1"}, "wattsched.io/weight"),
        ({"max_gpus": "4"}, "request settles"),
        ({"restart_s": "[" * 10_000}, "wattsched.io/restart-s"),
        ({"restart_s": "[" * 20_000}, "characters, the site allows 16,384"),
        ({"restart_s": "[" * 100_000}, "has 100,000 characters, and at most 65,536 are read"),
    ],
)
def test_what_is_wrong_with_annotations_is_said_and_others_go_on(annotations: Any, told: str) -> None:
    round = round_of(load_at(annotated("plain", **annotations)))
    assert told in round.left_out["default/plain"]
    assert {"default/bert", "default/gang:resnet"} <= {job["name"] for job in round.jobs}


@pytest.mark.parametrize("kind", ["A100-1g.5gb", "A100-SHARED-7"])
def test_pods_with_slices_get_nodes_that_offer_them(kind: str) -> None:
    resource = "nvidia.com/mig-1g.5gb" if "1g" in kind else "nvidia.com/gpu.shared"
    name = next(one["metadata"]["name"] for one in SNAPSHOT["nodes"])

    def change(objects: dict[str, Any]) -> None:
        node = objects[name]
        node["status"]["capacity"][resource] = node["status"]["allocatable"][resource] = "7"
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            del amounts["nvidia.com/gpu"]
        node["metadata"]["labels"]["nvidia.com/gpu.replicas"] = "7"
        for one in objects.values():
            if one.get("spec", {}).get("nodeName") == name:
                one["status"]["phase"] = "Succeeded"
        objects["plain"]["spec"]["containers"] = [{"resources": {"limits": {resource: "2"}}}]

    site = changed(change)
    load = load_at(site)
    assert load.node_w[name] == pytest.approx(200 + 50)
    round, decision = decided(site, 30_000.0)
    assert round.left_out.get("default/plain") is None
    starts = {start.name: start for start in plan_of(round, decision).starts}
    assert {one.node for one in starts["default/plain"].bindings} == {name}
    assert starts["default/plain"].power_w == pytest.approx(2 * 400 / 7)
    assert all(
        name not in {one.node for one in start.bindings}
        for key, start in starts.items()
        if "plain" not in key
    )
    assert after(site, plan_of(round, decision)).node_w[name] == pytest.approx(250 + 2 * 350 / 7)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"nodeSelector": {"disk": "fast"}}, "no node with nvidia.com/gpu is as its selector"),
        ({"schedulingGates": [{"name": "quota"}]}, "scheduling gates"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topologySpreadConstraints"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "pod affinity",
        ),
        ({"affinity": {"nodeAffinity": 3}}, "nodeAffinity: must be an object"),
        ({"tolerations": [{"operator": "Exists"}] * 501}, "has more than 500 conditions on nodes"),
        ({"resourceClaims": [{"name": "gpu"}]}, "has resourceClaims"),
        ({"containers": [{"name": "main"}]}, "asks for no nvidia.com/gpu"),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "9"}}}]}, "no node that it may have"),
    ],
)
def test_what_a_pod_asks_for_that_cannot_be_is_said(spec: Any, told: str) -> None:
    round = round_of(load_at(changed(lambda objects: objects["plain"]["spec"].update(spec))))
    assert told in round.left_out["default/plain"]


def test_selectors_and_taints_split_pools() -> None:
    def change(objects: dict[str, Any]) -> None:
        objects["gpu-4"]["metadata"]["labels"]["disk"] = "fast"
        objects["gpu-2"]["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        objects["plain"]["spec"]["nodeSelector"] = {"disk": "fast"}
        expression = {"key": "metadata.name", "operator": "In", "values": ["gpu-2"]}
        term = {"nodeSelectorTerms": [{"matchFields": [expression]}]}
        objects["bert"]["spec"] |= {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
            "tolerations": [{"key": "team", "operator": "Exists"}],
        }

    round, decision = decided(changed(change), 20_000.0)
    nodes = {start.job.name: start.bindings[0].node for start in plan_of(round, decision).starts}
    assert (nodes["default/plain"], nodes["default/bert"]) == ("gpu-4", "gpu-2")


def test_what_is_said_of_a_pod_goes_before_its_name_and_its_namespace() -> None:
    table = {"gpus": [2], "pool": ["A100"], "power_w": [100.0], "rate": [1.0]}
    options = site_of(
        {
            "tables": {"small": table},
            "namespaces": {"default": {"weight": 2.0, "model": "bert", "restart_s": 7.0}},
            "jobs": {"default/pl*": {"options": "small", "weight": 3.0}},
        }
    )
    round = round_of(load_at(annotated("plain", weight="5"), options))
    (record,) = (job for job in round.jobs if job["name"] == "default/plain")
    assert (record["weight"], record["restart_s"]) == (5.0, 7.0)
    assert record["options"] == {**table, "pool": ["A100/8"]}


def bound(objects: dict[str, Any], name: str, node: str, gang: dict[str, int]) -> None:
    """Let a pod of the gang be bound as we would."""
    pod = objects[name]
    launch = Launch(uid=pod["metadata"]["uid"], gpus=4, power_w=1_600.0, gang=gang)
    pod["metadata"]["annotations"] |= launch.annotations()
    pod["spec"]["nodeName"] = node


def test_a_gang_of_which_some_are_bound_keeps_room_for_the_others() -> None:
    gang = {"gpu-2": 2, "gpu-4": 1}
    load = load_at(changed(lambda objects: bound(objects, "resnet-1", "gpu-2", gang)))
    assert {one.pod.name: one.node for one in load.due} == {"resnet-0": "gpu-2", "resnet-2": "gpu-4"}
    assert load.power_w == load_at(read(SNAPSHOT)).power_w + 3 * (1_600 - 4 * 50)
    assert load.within({"": load.power_w - 1}, load.due)
    assert not load.within({"": load.power_w}, load.due)
    assert "default/gang:resnet" not in load.waiting


def test_a_part_of_a_gang_without_room_for_the_others_is_told() -> None:
    def change(objects: dict[str, Any]) -> None:
        bound(objects, "resnet-1", "gpu-2", {"gpu-2": 2, "gpu-4": 1})
        for name in ("gpu-2", "gpu-4"):
            objects[name]["spec"]["unschedulable"] = True

    site = changed(change)
    assert "no room left" in round_of(load_at(site)).left_out["default/gang:resnet"]
    assert not load_at(site).due


@pytest.mark.parametrize(
    "launch", ["{}", "no JSON", json.dumps({"uid": "another", "gpus": 8, "power_w": 1.0}), "[" * 100_000]
)
def test_a_pod_that_is_not_as_we_bound_it_is_only_counted(launch: str) -> None:
    load = load_at(annotated("old", preemptible="true", launch=launch))
    assert not load.ours
    assert load.power_w == load_at(read(SNAPSHOT)).power_w


def test_a_pod_that_is_about_to_go_leaves_its_room_to_decisions_and_counts_until_then() -> None:
    def change(objects: dict[str, Any]) -> None:
        objects["old"]["metadata"]["deletionTimestamp"] = "2026-11-25T12:44:30Z"

    site = changed(change)
    load = load_at(site)
    assert load.power_w == load_at(read(SNAPSHOT)).power_w
    rows = {row["name"]: row for row in round_of(load).cluster["nodes"]}
    assert ("unavailable" in rows["gpu-1"], rows["gpu-1"]["reserved_w"]) == (False, 0.0)
    assert not load.has_room(site.pods[load.waiting["default/plain"].pods[0].uid], "gpu-1")
    late = load_at(Site(site.time_s + 3_600, site.nodes, site.pods))
    assert {row["name"]: row for row in round_of(late).cluster["nodes"]}["gpu-1"]["reserved_w"] == 3_200


@given(st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=examples(40), deadline=None)
def test_gangs_of_any_shape_are_bound_whole_and_counted_right(gpus: int, pods: int) -> None:
    def change(objects: dict[str, Any]) -> None:
        objects["gpu-3"]["spec"].pop("unschedulable")

    site = changed(change)
    snapshot = {**copy.deepcopy(SNAPSHOT), "pods": []}
    template = next(one for one in SNAPSHOT["pods"] if one["metadata"]["name"] == "plain")
    for i in range(pods):
        pod = copy.deepcopy(template)
        pod["metadata"] |= {"name": f"g-{i}", "uid": f"uid-{i}", "labels": {PREFIX + "gang": "g"}}
        pod["metadata"]["annotations"] = {PREFIX + "gang-size": str(pods)}
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        snapshot["pods"].append(pod)
    site = Site(site.time_s, site.nodes, read(snapshot).pods)
    round, decision = decided(site, 50_000.0)
    plan = plan_of(round, decision)
    whole = -(-pods // (8 // gpus))
    assert len(plan.starts) == (whole <= 4)
    load = after(site, plan)
    assert load.power_w == pytest.approx(decision.result.totals["power_w"])
    assert sum(load.used.values()) == (gpus * pods if plan.starts else 0)


UNKNOWN = st.sampled_from([None, "NVIDIA-GeForce-RTX-3090"])


@given(UNKNOWN, st.floats(3_000, 20_000), st.booleans())
@settings(max_examples=examples(20), deadline=None)
def test_gpus_whose_watts_are_not_known_stop_nobody_and_count_at_a_bound(
    product: str | None, cap_w: float, cordoned: bool
) -> None:
    """On gpu-3 there is a pod of others with 3 GPUs; on gpu-1 one of ours with 8."""

    def change(objects: dict[str, Any]) -> None:
        for name in ("gpu-1", "gpu-3"):
            objects[name]["metadata"]["labels"].pop("nvidia.com/gpu.product")
            objects[name]["metadata"]["labels"] |= {"nvidia.com/gpu.product": product} if product else {}
        objects["gpu-3"]["spec"]["unschedulable"] = cordoned

    site = changed(change)
    load = load_at(site)
    # Those of ours draw what they were started with; the most of known types is 150 W idle, 1,000 W in use.
    assert load.power_w == 4 * 200 + 3_200 + (3 * 1_000 + 5 * 150) + 16 * 50
    (note,) = load.site.notes
    assert all(word in note for word in ("'gpu-1', 'gpu-3'", product or "'gpu'", "gpu_types", "1000 W"))
    round, decision = decided(site, cap_w)
    if not decision.solved:
        assert cap_w < load.power_w
        return
    plan = plan_of(round, decision)
    assert not {one.node for start in plan.starts for one in start.bindings} & {"gpu-1", "gpu-3"}
    assert load.power_w + sum(
        load.added_w(one.node, one.launch) for start in plan.starts for one in start.bindings
    ) == pytest.approx(decision.result.totals["power_w"])


@given(st.sets(st.sampled_from(["r1", "gpu-1", "r2", "gone", "r9"]), min_size=1), st.floats(3_000, 20_000))
@settings(max_examples=examples(20), deadline=None)
def test_members_of_power_domains_that_are_gone_are_told_and_draw_nothing(
    members: set[str], cap_w: float
) -> None:
    site = changed(lambda _: None)
    site.nodes.pop("gpu-1")
    left = changed(lambda _: None)
    left = Site(left.time_s, site.nodes, {uid: pod for uid, pod in left.pods.items() if pod.node != "gpu-1"})
    feed = {"name": "feed", "members": sorted(members), "power_cap_w": 5_000.0}
    options = site_of({"power_domains": [feed]})
    round, decision = decided(left, cap_w, options)
    told = " ".join(round.load.site.notes)
    gone = members & {"gpu-1", "gone", "r9"}
    assert bool(told) == bool(gone)
    assert all(f"'{name}'" in told for name in gone)
    assert not gone or all(word in told for word in ("'feed'", "site's file", "topology.kubernetes.io/rack"))
    assert decision.solved
    plan = plan_of(round, decision)
    assert after(left, plan, options).drawn_w["feed"] <= 5_000.0 + 1e-6
