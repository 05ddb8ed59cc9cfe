"""``wattsched kubernetes``: decide what a Kubernetes cluster runs, round after round, and do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import click

from wattsched.cli.clusters import FILE, SHARED, ClusterRounds, listening_at
from wattsched.cli.failures import BadInput
from wattsched.cli.outputs import Command, require_extra
from wattsched.cli.parameters import filling, refuse_given
from wattsched.cli.serve import is_loopback

if TYPE_CHECKING:
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.kubernetes.api import Api
    from wattsched.adapters.kubernetes.extender import Extender
    from wattsched.adapters.kubernetes.loop import Policy, Rounds
    from wattsched.adapters.options import Stated
    from wattsched.serve.journal import Journal

CAP = "cap.json"
"""Key of a ConfigMap with the cap."""
DEFAULT_SCHEDULER = "default-scheduler"
"""Scheduler of pods that name none."""


@dataclass(frozen=True)
class KubernetesRounds(ClusterRounds):
    """Options of ``wattsched kubernetes``, and what it does in its own way.

    Parameters
    ----------
    apply : bool
        Bind and evict pods.
    give_back : bool
        Take what we wrote off all pods, and end.
    change_cost : float
        Price of a running job that stops, in the unit of the objective.
    snapshot : str, optional
        Decide of a saved snapshot, without a cluster.
    record : str, optional
        Save what the API says (.json).
    config_map : str, optional
        NAMESPACE/NAME of a ConfigMap that has such a file as 'cap.json'.
    scheduler_name : str
        Pods that name this scheduler are ours.
    lease_namespace : str
        Namespace of the Lease that one process holds which applies.
    node_key : str, optional
        Key of 32 bytes by which agents on nodes know the settings of pods.
    kubeconfig : str, optional
        In place of the usual configuration.
    extender : str, optional
        Answer the default scheduler, and bind nothing.
    tokens : str, optional
        Who may ask the extender; needed beyond loopback.
    hosts : tuple of str
        A name that the extender is asked by.
    all_pods : bool
        With --extender: all pods with GPUs, not the marked alone.
    """

    not_given_back: ClassVar[tuple[str, ...]] = (*ClusterRounds.not_given_back, "extender")
    caps: ClassVar[tuple[str, ...]] = (*ClusterRounds.caps, "config_map")

    every: float = 10.0
    config_map: str | None = None
    scheduler_name: str = "wattsched"
    lease_namespace: str = "wattsched"
    node_key: str | None = None
    kubeconfig: str | None = None
    extender: str | None = None
    tokens: str | None = None
    hosts: tuple[str, ...] = ()
    all_pods: bool = False

    def require_sense(self) -> None:
        """Refuse options that do not go together."""
        super().require_sense()
        if self.snapshot is not None:
            refuse_given(("kubeconfig", "config_map"), "cannot be combined with --snapshot")
        else:
            require_extra("asking the API", "kubernetes")
        if not self.apply:
            refuse_given(("node_key",), "needs --apply")
        if self.extender is None:
            refuse_given(("tokens", "hosts", "all_pods"), "needs --extender")
            if self.changes and self.scheduler_name == DEFAULT_SCHEDULER:
                told = "binds these pods, too, so that two would; give another name, or --extender"
                raise BadInput(f"--scheduler-name: '{DEFAULT_SCHEDULER}' {told}")
        elif not self.apply or self.once:
            raise BadInput("--extender needs --apply, and cannot be combined with --once")
        else:
            require_extra("--extender", "serve")

    def policy(self) -> Policy:
        """Return the policy of rounds; with an extender, pods of the default scheduler are ours."""
        from wattsched.adapters.kubernetes.loop import Policy
        from wattsched.adapters.kubernetes.options import KubernetesOptions
        from wattsched.adapters.options import stated_in

        of_default = self.extender is not None and self.scheduler_name == KubernetesRounds.scheduler_name
        return Policy(
            options=stated_in(self.options, KubernetesOptions),
            scheduler_name=DEFAULT_SCHEDULER if of_default else self.scheduler_name,
            marked=self.extender is not None and not self.all_pods,
            **self.policy_fields,
        )

    @cached_property
    def api(self) -> Api:
        """Client of the API server."""
        from wattsched.adapters.kubernetes.api import Api

        return Api(self.kubeconfig)

    def stated_names(self, rounds: Rounds) -> list[Stated]:
        """Return the names that are stated of the cluster, and those that it has."""
        from wattsched.adapters.kubernetes.options import stated_names

        return stated_names(rounds.seen(), rounds.policy.options)

    def made_budget(self, **limits: Any) -> Budget:
        """Return the budget that reads the cap where the options say it is; `limits` as for `Budget`."""
        from wattsched.adapters.budget import Budget
        from wattsched.adapters.kubernetes.api import KubernetesError
        from wattsched.instances.errors import InputError

        if self.config_map is None:
            return super().made_budget(**limits)
        namespace, _, name = self.config_map.partition("/")
        if not namespace or not name:
            raise BadInput(f"--config-map: must be NAMESPACE/NAME, got '{self.config_map}'")

        def source() -> object:
            try:
                return json.loads(self.api.read_config_map(namespace, name, CAP))
            except (KubernetesError, ValueError, RecursionError) as error:
                raise InputError([str(error)]) from None

        return Budget(file=f"ConfigMap {self.config_map}", source=source, **limits)

    def rounds(self, policy: Policy, budget: Budget, journal: Journal, stack: ExitStack) -> Rounds:
        """Return the rounds on the cluster; the stack holds its watches, Lease and extender."""
        from wattsched.adapters.kubernetes import snapshot
        from wattsched.adapters.kubernetes.actions import Actions
        from wattsched.adapters.kubernetes.launches import Launches, key_beside, key_in
        from wattsched.adapters.kubernetes.lease import Lease, identity_of
        from wattsched.adapters.kubernetes.loop import Rounds

        actions: Any = Actions
        launches = Launches()
        if self.changes and self.journal is not None:
            node_key = None if self.node_key is None else key_in(self.node_key)
            launches = Launches(key_beside(self.journal), node_key)
            if self.extender is not None:
                from wattsched.adapters.kubernetes.announcing import Announcing

                extender = stack.enter_context(self._extending(self.extender, journal, policy))
                actions = partial(Announcing, extender=extender)
            identity, name = identity_of(self.journal), policy.scheduler_name
            lease = Lease(identity, self.tell, api=self.api, namespace=self.lease_namespace, name=name)
            stack.enter_context(lease)
        if self.single and not self.changes:
            return Rounds(policy, budget, journal, self.looking(snapshot, lambda: snapshot.take(self.api)))
        mirror = stack.enter_context(closing(snapshot.Mirror(self.api)))
        look = self.looking(snapshot, mirror.snapshot)
        return Rounds(policy, budget, journal, look, lambda of: actions(self.api, mirror, of, launches))

    @contextmanager
    def _extending(self, at: str, journal: Journal, policy: Policy) -> Iterator[Extender]:
        """Answer the default scheduler at ``[HOST:]PORT``, in a thread, by the extender that is yielded."""
        host = at.rpartition(":")[0].strip("[]") or "127.0.0.1"
        if self.tokens is None and not is_loopback(host):
            raise BadInput(f"--extender {at}: others can reach this, so --tokens FILE has to say who may ask")
        from wattsched.adapters.kubernetes.extender import ASKING, Extender, router_of, watch
        from wattsched.adapters.kubernetes.reading import read_pod
        from wattsched.serve.app import create
        from wattsched.serve.server import served_beside
        from wattsched.serve.tokens import Tokens

        stale_s = 3 * policy.every_s + policy.deadline_s  # two rounds may fail
        extender = Extender(lambda pod: policy.ours(read_pod(pod)), stale_s)
        extender.publish({})  # pods wait for the first round
        known = None if self.tokens is None else Tokens(self.tokens)
        names = [*self.hosts, host]
        app = create(journal, None, known, [router_of(extender)], fixed=True, asking=ASKING, hosts=names)
        watch(extender, app.state.service.metrics)
        with listening_at("--extender", at) as bound, served_beside(app, bound):
            yield extender


@click.command("kubernetes", cls=Command)
@filling(
    "rounds",
    KubernetesRounds,
    **SHARED,
    config_map={"metavar": "NAMESPACE/NAME"},
    scheduler_name={"metavar": "NAME"},
    lease_namespace={"metavar": "NAME"},
    node_key=FILE,
    kubeconfig=FILE,
    extender={"metavar": "[HOST:]PORT"},
    tokens={"metavar": "FILE"},
    hosts={"name": "--allow-host", "multiple": True, "metavar": "NAME"},
)
def command(rounds: KubernetesRounds) -> int:
    """Decide what a Kubernetes cluster runs, round after round.

    Ours are pods with 'schedulerName: wattsched'; with --extender those of the default scheduler that ask for
    GPUs and have a label or an annotation of ours. All others are left alone and count as load.
    """
    return rounds.run()
