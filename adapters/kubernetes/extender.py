"""The scheduler's extender over HTTP: it asks about a pod and its nodes, and the last decision answers.

The default scheduler asks while it places a pod, so nothing is decided here: rounds in the background publish
what they decided, and a question is answered from that alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Lock
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from wattsched.instances.errors import InputError, shown, validated
from wattsched.serve.app import Answer, document_of
from wattsched.serve.metrics import Metrics

HIGHEST_SCORE = 10
"""Highest score of a node in the protocol; the least is 0."""

ASKING = ("/kubernetes/filter", "/kubernetes/prioritize", "/kubernetes/preempt")
"""Paths of the routes; none of them changes anything."""

_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}

_FIELDS = ("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims")


class _Object(BaseModel):
    """A part of an object of Kubernetes; what else it has is not looked at."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Metadata(_Object):
    name: str = Field(min_length=1)
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Named(_Object):
    metadata: _Metadata


class _NodeList(_Object):
    items: list[_Named] | None = None


class ExtenderArgs(_Object):
    """Arguments with which the scheduler filters and scores nodes: a pod, and nodes or their names."""

    pod: _Named = Field(alias="Pod")
    nodes: _NodeList | None = Field(None, alias="Nodes")
    node_names: list[str] | None = Field(None, alias="NodeNames")


class _Uid(_Object):
    uid: str = Field("", alias="UID")


class _MetaVictims(_Object):
    pods: list[_Uid] | None = Field(None, alias="Pods")
    violations: int = Field(0, alias="NumPDBViolations")


class _Victims(_Object):
    pods: list[_Named] | None = Field(None, alias="Pods")
    violations: int = Field(0, alias="NumPDBViolations")


class ExtenderPreemptionArgs(_Object):
    """Arguments with which the scheduler asks before it evicts pods for another one: the victims by node."""

    pod: _Named = Field(alias="Pod")
    victims: dict[str, _Victims] | None = Field(None, alias="NodeNameToVictims")
    meta_victims: dict[str, _MetaVictims] | None = Field(None, alias="NodeNameToMetaVictims")


@dataclass(frozen=True)
class Asked:
    """A question, read.

    Attributes
    ----------
    pod : mapping
        As the API has it.
    names : list of str
        Of the nodes that the scheduler would take.
    nodes : list of mapping, optional
        The nodes themselves, where they were sent instead of their names.
    """

    pod: Mapping[str, Any]
    names: list[str]
    nodes: list[Mapping[str, Any]] | None


@dataclass(frozen=True)
class Opinion:
    """Decision on a pod, as the scheduler is told of it.

    Attributes
    ----------
    node : str
        The one node that it may be placed on; empty where it waits.
    why : str
        Why it waits.
    """

    node: str = ""
    why: str = ""

    @property
    def refusal(self) -> str:
        """Reason given for every other node."""
        return f"wattsched: decided for {self.node}" if self.node else f"wattsched: waits, {self.why}"


UNSEEN = Opinion(why="as the next round decides")
"""Opinion on a pod of ours that no round has seen yet."""


def read_args(document: Any) -> Asked:
    """Read the arguments of a filter or prioritize call."""
    found = _by_name(document)
    args = validated(ExtenderArgs, found)
    pod = found["Pod"]
    if args.node_names is not None:
        return Asked(pod, args.node_names, None)
    if args.nodes is None:
        raise InputError(["NodeNames: is missing, and so is Nodes"])
    nodes = found["Nodes"].get("items") or []
    return Asked(pod, [node["metadata"]["name"] for node in nodes], nodes)


def filtered(asked: Asked, opinion: Opinion | None) -> dict[str, Any]:
    """``ExtenderFilterResult``: without an opinion every node passes.

    A refused node has the reason in ``FailedNodes``; it is seen in the events of the pod.
    """
    if opinion is None:
        passing, failed = asked.names, dict[str, str]()
    else:
        passing = [name for name in asked.names if name == opinion.node]
        failed = {name: opinion.refusal for name in asked.names if name != opinion.node}
    if asked.nodes is None:
        return {"Nodes": None, "NodeNames": passing, "FailedNodes": failed, "Error": ""}
    kept = [node for node, name in zip(asked.nodes, asked.names, strict=True) if name not in failed]
    return {"Nodes": {"metadata": {}, "items": kept}, "NodeNames": None, "FailedNodes": failed, "Error": ""}


def prioritised(asked: Asked, opinion: Opinion | None) -> list[dict[str, Any]]:
    """``HostPriorityList``: the decided node has the highest score, all others have 0."""
    decided = None if opinion is None else opinion.node
    return [{"Host": name, "Score": HIGHEST_SCORE * (name == decided)} for name in asked.names]


def preempted(document: Any, opinion_of: Callable[[Mapping[str, Any]], Opinion | None]) -> dict[str, Any]:
    """``ExtenderPreemptionResult``: nobody is evicted for a pod of ours, as rounds decide who stops."""
    found = _by_name(document)
    args = validated(ExtenderPreemptionArgs, found)
    if opinion_of(found["Pod"]) is not None:
        return {"NodeNameToMetaVictims": {}}
    offered: dict[str, tuple[list[str], int]] = {}
    for node, meta in (args.meta_victims or {}).items():
        offered[node] = [pod.uid for pod in meta.pods or ()], meta.violations
    for node, whole in (args.victims or {}).items():
        offered[node] = [pod.metadata.uid for pod in whole.pods or ()], whole.violations
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
            for node, (uids, violations) in offered.items()
        }
    }


def _by_name(document: Any) -> dict[str, Any]:
    """Arguments by their names in Go, which reads them in any case of letters."""
    if not isinstance(document, dict):
        raise InputError([f"the request must be an object, got {shown(document)}"])
    known = {name.lower(): name for name in _FIELDS}
    return {known.get(str(name).lower(), str(name)): value for name, value in document.items()}


class Extender:
    """The last decision, and what it says of a pod; safe from several threads.

    Parameters
    ----------
    ours : callable
        Whether a pod, as the API has it, is one that rounds decide on.
    stale_s : float
        A decision that is older counts for nothing: the scheduler goes on by itself.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        ours: Callable[[Mapping[str, Any]], bool],
        stale_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ours, self.stale_s, self.clock = ours, stale_s, clock
        self.counts = {"node": 0, "waits": 0, "none": 0}  # of questions, by their answers
        self._changing = Lock()
        # When the scheduler was last told the node of a pod, by uid and `clock`.
        self._told_node_s = dict[str, float]()
        # One reference, so that a reader sees one decision as a whole.
        self._published: tuple[float, Mapping[str, Opinion]] | None = None

    def publish(self, opinions: Mapping[str, Opinion]) -> None:
        """Take a decision, by the uid of each pod, for the last one."""
        with self._changing:
            self._published = (self.clock(), dict(opinions))
            self._told_node_s = {uid: at_s for uid, at_s in self._told_node_s.items() if uid in opinions}

    def change(self, opinions: Mapping[str, Opinion]) -> None:
        """Change what the last decision says of some pods, all at once; it stays as old as it is."""
        with self._changing:
            then_s, known = self._published or (self.clock(), {})
            self._published = (then_s, {**known, **opinions})

    def note_told_node(self, uid: str) -> None:
        """Take it that the scheduler was just told the node of a pod."""
        self._told_node_s[uid] = self.clock()

    def told_node_ago_s(self, uid: str) -> float:
        """Seconds since the scheduler was last told the node of a pod; infinite where it never was."""
        with self._changing:
            return self.clock() - self._told_node_s.get(uid, -inf)

    @property
    def age_s(self) -> float:
        """Seconds since the last decision; infinite before the first."""
        return inf if self._published is None else self.clock() - self._published[0]

    def asked_for(self, pod: Mapping[str, Any]) -> Opinion | None:
        """Return `opinion` on a pod, and count the question."""
        with self._changing:  # who is told a node is known before it can be refused again
            found = self.opinion(pod)
            if found is not None and found.node:
                self.note_told_node(pod["metadata"].get("uid", ""))
        self.counts["none" if found is None else "node" if found.node else "waits"] += 1
        return found

    def opinion(self, pod: Mapping[str, Any]) -> Opinion | None:
        """Return the decision on a pod; None where it is not ours, or the decision is late.

        One of ours that no round has seen yet waits for the next: it would be placed before anything is
        decided, and members of a gang before the gang is there.
        """
        published = self._published
        if published is None or self.clock() - published[0] > self.stale_s or not self._ours(pod):
            return None
        return published[1].get(pod["metadata"].get("uid", "")) or UNSEEN


def router_of(extender: Extender) -> APIRouter:
    """Routes that the scheduler calls, for `wattsched.serve.app.create`."""
    router = APIRouter(prefix="/kubernetes", tags=["kubernetes"])

    @router.post("/filter", summary="ExtenderArgs: nodes that a pod may be placed on", openapi_extra=_BODY)
    async def filter(request: Request) -> Response:
        asked = read_args(await document_of(request))
        return Answer(filtered(asked, extender.asked_for(asked.pod)))

    @router.post("/prioritize", summary="ExtenderArgs: scores of nodes, 0 to 10", openapi_extra=_BODY)
    async def prioritize(request: Request) -> Response:
        asked = read_args(await document_of(request))
        return Answer(prioritised(asked, extender.opinion(asked.pod)))

    @router.post("/preempt", summary="ExtenderPreemptionArgs: whom to evict", openapi_extra=_BODY)
    async def preempt(request: Request) -> Response:
        return Answer(preempted(await document_of(request), extender.opinion))

    return router


def watch(extender: Extender, metrics: Metrics) -> None:
    """Let Prometheus see how old an extender's decision is, and how it has answered so far."""
    about = "Age of the decision that questions are answered by"
    metrics.watch("wattsched_extender_decision_age_seconds", about, lambda: extender.age_s)
    answers = {"node": "sent to their node", "waits": "refused", "none": "left to the scheduler"}
    for kind, text in answers.items():
        number = partial(extender.counts.__getitem__, kind)
        metrics.watch(f"wattsched_extender_{kind}", f"Pods {text}", number)
