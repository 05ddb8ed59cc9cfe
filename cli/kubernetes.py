"""``wattsched kubernetes``: decide what a Kubernetes cluster runs, round after round, and do it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import click

from wattsched.cli.completion import named
from wattsched.cli.failures import NO_SOLUTION, BadInput
from wattsched.cli.following import (
    Jobs,
    follow,
    listening_at,
    measured,
    metrics_at,
    require_sense,
    stopping,
    tell_given_back,
)
from wattsched.cli.outputs import Command, Output, require_extra
from wattsched.cli.parameters import FileName, Number, filling, journal_quota, refuse_given
from wattsched.cli.serve import is_loopback
from wattsched.inputs import printable

if TYPE_CHECKING:
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.kubernetes.actions import Actions
    from wattsched.adapters.kubernetes.extender import Extender
    from wattsched.adapters.kubernetes.launches import Launches
    from wattsched.adapters.kubernetes.loop import Policy, Report
    from wattsched.adapters.kubernetes.snapshot import Snapshot
    from wattsched.adapters.kubernetes.watching import Mirror
    from wattsched.serve.journal import Journal
    from wattsched.serve.recorded import RecordedSession

MOST_S = 86_400
CAP = "cap.json"
"""Key of a ConfigMap with the cap."""
DEFAULT_SCHEDULER = "default-scheduler"
"""Scheduler of pods that name none."""


@dataclass(frozen=True)
class Asked:
    """How rounds are decided.

    Parameters
    ----------
    power_w : float, optional
        Watts that the site may draw.
    budget : str, optional
        File with the watts and announced changes (.json), read anew in every round.
    config_map : str, optional
        NAMESPACE/NAME of a ConfigMap that has such a file as 'cap.json'.
    options : str, optional
        File of the site: watts of GPU types, options of jobs (.json).
    scheduler_name : str
        Pods that name this scheduler are ours.
    lease_namespace : str
        Namespace of the Lease that one process holds which applies.
    objective : str
        What is optimised.
    every : float
        Seconds from round to round.
    deadline : float
        Seconds for a decision.
    change_cost : float
        Price of a running job that stops, in the unit of the objective.
    """

    power_w: float | None = None
    budget: str | None = None
    config_map: str | None = None
    options: str | None = None
    scheduler_name: str = "wattsched"
    lease_namespace: str = "wattsched"
    objective: str = "work-value"
    every: float = 10.0
    deadline: float = 5.0
    change_cost: float = 0.0


SECONDS = Number(above=0, most=MOST_S)


@click.command("kubernetes", cls=Command)
@click.option("--shadow", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("--apply", "do_apply", is_flag=True, help="Bind and evict pods.")
@click.option("--give-back", is_flag=True, help="Take what we wrote off all pods, and end.")
@click.option("--once", is_flag=True, help="One round, and no more.")
@filling(
    "asked",
    Asked,
    power_w={"type": Number(above=0), "metavar": "W"},
    budget={"type": FileName(), "metavar": "FILE"},
    config_map={"metavar": "NAMESPACE/NAME"},
    options={"type": FileName(), "metavar": "FILE"},
    scheduler_name={"metavar": "NAME"},
    lease_namespace={"metavar": "NAME"},
    **named("objective"),
    every={"type": SECONDS, "metavar": "S"},
    deadline={"type": SECONDS, "metavar": "S"},
    change_cost={"type": Number(0), "metavar": "C"},
)
@click.option("--kubeconfig", type=FileName(), metavar="FILE", help="In place of the usual configuration.")
@click.option("--extender", metavar="[HOST:]PORT", help="Answer the default scheduler, and bind nothing.")
@click.option("--tokens", metavar="FILE", help="Who may ask the extender; needed beyond loopback.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A name that the extender is asked by."
)
@click.option("--all-pods", is_flag=True, help="With --extender: all pods with GPUs, not the marked alone.")
@click.option("--journal", metavar="FILE", help="Write what was decided and done (SQLite).")
@journal_quota
@metrics_at
@click.option(
    "--snapshot", type=FileName(), metavar="FILE", help="Decide of a saved snapshot, without a cluster."
)
@click.option("--record", type=Output((".json",)), metavar="FILE", help="Save what the API says (.json).")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each round on standard output.")
def command(
    shadow: bool,
    do_apply: bool,
    give_back: bool,
    once: bool,
    asked: Asked,
    kubeconfig: str | None,
    extender: str | None,
    tokens: str | None,
    hosts: tuple[str, ...],
    all_pods: bool,
    journal: str | None,
    journal_quota: float,
    metrics: str | None,
    snapshot: str | None,
    record: str | None,
    as_json: bool,
) -> int:
    """Decide what a Kubernetes cluster runs, round after round.

    Ours are pods with 'schedulerName: wattsched'; with --extender those of the default scheduler that ask for
    GPUs and have a label or an annotation of ours. All others are left alone and count as load.
    """
    from wattsched.adapters.kubernetes.api import KubernetesError
    from wattsched.adapters.kubernetes.launches import Launches, key_beside
    from wattsched.adapters.kubernetes.lease import Lease, identity_of
    from wattsched.adapters.kubernetes.loop import Policy, Rounds
    from wattsched.adapters.kubernetes.options import KubernetesOptions
    from wattsched.adapters.kubernetes.reading import read
    from wattsched.adapters.kubernetes.site import stated_names
    from wattsched.adapters.names import require_names
    from wattsched.adapters.options import stated_in
    from wattsched.adapters.rounds import require_work
    from wattsched.serve.journal import Journal

    if give_back and (shadow or do_apply or extender is not None):
        raise BadInput("--give-back: cannot be combined with --shadow, --apply or --extender")
    do_apply = do_apply or give_back
    _require_sense(shadow, do_apply, asked, journal, snapshot)
    if extender is None:
        refuse_given(("tokens", "hosts", "all_pods"), "needs --extender")
        if do_apply and asked.scheduler_name == DEFAULT_SCHEDULER:
            told = "binds these pods, too, so that two would; give another name, or --extender"
            raise BadInput(f"--scheduler-name: '{DEFAULT_SCHEDULER}' {told}")
    elif not do_apply or once:
        raise BadInput("--extender needs --apply, and cannot be combined with --once")
    else:
        require_extra("--extender", "serve")
    require_work(asked.objective)
    if snapshot is None:
        require_extra("asking the API", "kubernetes")
    once = once or snapshot is not None
    policy = Policy(
        options=stated_in(asked.options, KubernetesOptions),
        scheduler_name=_scheduler_name(asked, extender),
        marked=extender is not None and not all_pods,
        objective=asked.objective,
        every_s=asked.every,
        deadline_s=asked.deadline,
        change_cost=asked.change_cost,
        apply=do_apply,
    )
    try:
        with ExitStack() as stack:
            cluster = _Cluster(kubeconfig, snapshot, record)
            budget = _budget(asked, cluster, policy.options.fail_safe_w)
            if snapshot is not None:
                budget.stand_at(float(cluster.look()["time"]))
            budget.cap()  # a file that cannot be read is refused before anything is done
            folder = stack.enter_context(TemporaryDirectory(prefix="wattsched-"))
            path = Path(folder) / "journal" if journal is None else Path(journal)
            kept = stack.enter_context(Journal(path, quota_mb=journal_quota))
            stop = Event()
            stack.enter_context(stopping(stop, kept))
            key = key_beside(journal) if do_apply and journal is not None else None
            actions = partial(cluster.actions, launches=Launches(key))
            if extender is not None:
                actions = partial(
                    actions, extender=stack.enter_context(_extending(extender, tokens, hosts, kept, policy))
                )
            if cluster.api is not None and journal is not None and do_apply:
                tell = partial(click.echo, err=True)
                identity = identity_of(journal)
                name = policy.scheduler_name
                stack.enter_context(
                    Lease(identity, tell, api=cluster.api, namespace=asked.lease_namespace, name=name)
                )
            if do_apply or not once:
                stack.enter_context(cluster.watched())
            if do_apply or once:
                names = stated_names(read(cluster.look(), policy.options.gpu_label), policy.options)
                require_names(names, partial(click.echo, err=True), apply=do_apply and not give_back)
            rounds = Rounds(policy, budget, kept, cluster.look, actions)
            rounds.stop = stop
            if give_back:
                return tell_given_back(rounds.give_back())
            note = stack.enter_context(measured(metrics, kept))
            return follow(rounds, jobs_of, once=once, as_json=as_json, do_apply=do_apply, note=note)
    except KubernetesError as error:
        click.echo(f"no round: {printable(str(error))}", err=True)
        return NO_SOLUTION


class _Cluster:
    """A cluster that is watched, asked once, or was saved."""

    def __init__(self, kubeconfig: str | None, snapshot: str | None, record: str | None) -> None:
        from wattsched.adapters.kubernetes.api import Api, take
        from wattsched.adapters.kubernetes.snapshot import load

        self._record = record
        self.api = None if snapshot is not None else Api(kubeconfig)
        self.mirror: Mirror | None = None
        self._take: Callable[[], Snapshot] = (
            partial(load, str(snapshot)) if self.api is None else partial(take, self.api)
        )

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch it meanwhile."""
        from wattsched.adapters.kubernetes.watching import Mirror

        assert self.api is not None  # a saved one is looked at once
        with closing(Mirror(self.api)) as self.mirror:
            self._take = self.mirror.snapshot
            yield

    def look(self) -> Snapshot:
        """A snapshot, saved where that was asked for."""
        from wattsched.adapters.kubernetes.snapshot import save

        found = self._take()
        if self._record is not None:
            save(self._record, found)
        return found

    def actions(
        self, journal: RecordedSession, launches: Launches, extender: Extender | None = None
    ) -> Actions:
        """Actions on it."""
        from wattsched.adapters.kubernetes.actions import Actions
        from wattsched.adapters.kubernetes.announcing import Announcing

        assert self.api is not None  # refused before
        assert self.mirror is not None
        if extender is not None:
            return Announcing(self.api, self.mirror, journal, launches, extender=extender)
        return Actions(self.api, self.mirror, journal, launches)


def _scheduler_name(asked: Asked, extender: str | None) -> str:
    """Scheduler of our pods: the one that is not ours asks an extender."""
    own = asked.scheduler_name == Asked.scheduler_name
    return DEFAULT_SCHEDULER if own and extender is not None else asked.scheduler_name


@contextmanager
def _extending(
    at: str, tokens: str | None, hosts: tuple[str, ...], journal: Journal, policy: Policy
) -> Iterator[Extender]:
    """Answer the scheduler, in a thread."""
    host = at.rpartition(":")[0].strip("[]") or "127.0.0.1"
    if tokens is None and not is_loopback(host):
        raise BadInput(f"--extender {at}: others can reach this, so --tokens FILE has to say who may ask")
    from wattsched.adapters.kubernetes.extender import Extender
    from wattsched.adapters.kubernetes.reading import read_pod
    from wattsched.adapters.kubernetes.routes import ASKING, router_of, watch
    from wattsched.serve.app import create
    from wattsched.serve.server import served_beside
    from wattsched.serve.tokens import Tokens

    extender = Extender(lambda pod: policy.ours(read_pod(pod)), 3 * policy.every_s + policy.deadline_s)
    extender.publish({})  # pods wait for the first round
    known = None if tokens is None else Tokens(tokens)
    names = [*hosts, host]
    app = create(journal, None, known, [router_of(extender)], fixed=True, asking=ASKING, hosts=names)
    watch(extender, app.state.service.metrics)
    with listening_at("--extender", at) as bound, served_beside(app, bound):
        yield extender


def _budget(asked: Asked, cluster: _Cluster, fail_safe_w: float | None) -> Budget:
    """The cap, from where it was said to be."""
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.kubernetes.api import KubernetesError
    from wattsched.instances.errors import InputError

    ahead_s = asked.every + asked.deadline + 30.0
    if asked.config_map is None:
        return Budget(asked.power_w, asked.budget, ahead_s=ahead_s, fail_safe_w=fail_safe_w)
    namespace, _, name = asked.config_map.partition("/")
    if not namespace or not name:
        raise BadInput(f"--config-map: must be NAMESPACE/NAME, got '{asked.config_map}'")

    def source() -> object:
        assert cluster.api is not None  # refused before
        try:
            return json.loads(cluster.api.read_config_map(namespace, name, CAP))
        except (KubernetesError, ValueError, RecursionError) as error:
            raise InputError([str(error)]) from None

    named = f"ConfigMap {asked.config_map}"
    return Budget(file=named, ahead_s=ahead_s, source=source, fail_safe_w=fail_safe_w)


def _require_sense(
    shadow: bool, do_apply: bool, asked: Asked, journal: str | None, snapshot: str | None
) -> None:
    """Refuse options that do not go together."""
    require_sense(shadow, do_apply, journal, snapshot)
    caps = {"--power-w": asked.power_w, "--budget": asked.budget, "--config-map": asked.config_map}
    if len(given := [name for name, value in caps.items() if value is not None]) > 1:
        raise BadInput(f"{given[0]}: cannot be combined with {given[1]}, which states the watts")
    if snapshot is not None:
        refuse_given(("kubeconfig", "config_map"), "cannot be combined with --snapshot")


def jobs_of(report: Report) -> Jobs:
    """Jobs of a round, by what is done to them."""
    return {
        "start": report.started,
        "stop": report.stopped,
        "join": report.joined,
        "postpone": report.postponed,
        "wait": report.waiting,
    }
