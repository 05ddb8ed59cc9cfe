"""The API server: lists, bindings and evictions, through the official client."""

from __future__ import annotations

import binascii
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from wattsched.adapters.rounds import UnansweredError
from wattsched.environment.extras import missing
from wattsched.instances.errors import InputError
from wattsched.reading.inputs import echo, open_file

_PAGE = 500
_UNAUTHORIZED = 401
_WATCH_S, _TIMEOUT_S = 30, 10.0
"""A watch is renewed so often; a request may take so long."""


class KubernetesError(UnansweredError):
    """The API server refused, with an HTTP `status`, or did not answer (0), and may still have acted."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def certain(self) -> bool:
        """True if the request was refused, and so is not done."""
        return 400 <= self.status < 500


class Api:
    """A client of the API server.

    Every question raises a `KubernetesError` where there is no answer, or a refusal: 404 for what is gone,
    409 for a pod that is bound already or another one, 410 for a version that is too old, and 429 where a
    disruption budget forbids an eviction now.

    Parameters
    ----------
    kubeconfig : str, optional
        File; default: that of a pod's service account, or of the user.

    Attributes
    ----------
    before_change : callable
        Is called before a pod is changed, and may raise a `KubernetesError` to prevent it.

    Raises
    ------
    KubernetesError
        Where there is no configuration, or the client is not installed.
    InputError
        For a kubeconfig that cannot be used.
    """

    def __init__(self, kubeconfig: str | None = None) -> None:
        settings = _settings(kubeconfig)
        from kubernetes import client

        self._kubeconfig = kubeconfig
        self.core = client.CoreV1Api(client.ApiClient(settings))
        self.leases = client.CoordinationV1Api(self.core.api_client)
        self.before_change: Callable[[], None] = lambda: None
        self._eviction = ""
        self._watches = set[Any]()

    def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method of the client, and return the document that the server answers."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = self._answer(method, *arguments, _request_timeout=_TIMEOUT_S, **named)
            return json.loads(answer.data)
        except ApiException as error:
            raise refusal(error.status, error.body or error.reason) from None
        except (HTTPError, OSError) as error:
            text = echo(error, quote="", most=200)
            raise KubernetesError(f"the API server does not answer: {text}") from None
        except ValueError as error:
            text = echo(error, quote="", most=200)
            raise KubernetesError(f"the API server answers no JSON: {text}") from None

    def call_or_none(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call the API as `call` does; return None for what is not there."""
        try:
            return self.call(method, *arguments)
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    def _answer(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Ask, and once more with what the configuration says now if the server does not know us."""
        from kubernetes import client
        from kubernetes.client.exceptions import ApiException

        try:
            return method(*arguments, _preload_content=False, **named)
        except ApiException as error:
            if error.status != _UNAUTHORIZED:
                raise
        # Its token may have been renewed. Methods ask through the client that is there when they are called.
        try:
            settings = _settings(self._kubeconfig)
        except InputError as error:
            raise KubernetesError(str(error), _UNAUTHORIZED) from None
        self.core.api_client = self.leases.api_client = client.ApiClient(settings)
        return method(*arguments, _preload_content=False, **named)

    def listed(self, method: Callable[..., Any], **named: Any) -> tuple[list[Any], str]:
        """All objects that a method of the client lists, page by page, and the version of the list."""
        found, going_on = list[Any](), ""
        while True:
            more = {"_continue": going_on} if going_on else {}
            page = self.call(method, limit=_PAGE, **named, **more)
            try:
                found += page["items"] or []
                going_on = page["metadata"].get("continue") or ""
                version = page["metadata"]["resourceVersion"]
            except (KeyError, TypeError, AttributeError):
                raise KubernetesError("the API server answers no list") from None
            if not going_on:
                return found, version

    def watched(self, method: Callable[..., Any], version: str) -> Iterator[dict[str, Any]]:
        """Events of what a method lists, since a version; the first is empty: the watch stands."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = self._answer(
                method,
                watch=True,
                resource_version=version,
                allow_watch_bookmarks=True,
                timeout_seconds=_WATCH_S,
                _request_timeout=(_TIMEOUT_S, _WATCH_S + _TIMEOUT_S),
            )
            self._watches.add(answer)
            try:
                yield {}
                rest = b""
                for part in answer.stream(65_536):
                    *lines, rest = (rest + part).split(b"\n")
                    yield from (_event(line) for line in lines if line)
            finally:
                self._watches.discard(answer)
                answer.close()
        except ApiException as error:
            raise refusal(error.status, error.body or error.reason) from None
        except (HTTPError, OSError, ValueError) as error:
            raise KubernetesError(f"the watch broke off: {echo(error, quote='', most=200)}") from None

    def end_watches(self) -> None:
        """End all watches that stand; who waits for their events goes on at once."""
        for answer in list(self._watches):
            with suppress(OSError, ValueError, RuntimeError):  # it has ended by itself
                answer.shutdown()

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A pod as it is now; None for one that is gone."""
        found: dict[str, Any] | None = self.call_or_none(self.core.read_namespaced_pod, name, namespace)
        return found

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Bind a pod to a node, and annotate it, in one step."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            # Servers before 1.22 do not look at the uid.
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._change(self.core.create_namespaced_pod_binding, name, namespace, body)

    def annotate(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> None:
        """Annotate a pod; None takes an annotation off."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        self._change(self.core.patch_namespaced_pod, name, namespace, body)

    def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        """Ask for the eviction of a pod, or only whether it would be granted."""
        body = {
            "apiVersion": f"policy/{self._eviction_version()}",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}} | ({"dryRun": ["All"]} if dry_run else {}),
        }
        self._change(self.core.create_namespaced_pod_eviction, name, namespace, body)

    def write_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        """Write an event."""
        self._change(self.core.create_namespaced_event, namespace, event)

    def _change(self, method: Callable[..., Any], *arguments: Any) -> None:
        self.before_change()
        self.call(method, *arguments)

    def _eviction_version(self) -> str:
        """Version of evictions, which servers before 1.22 have as a beta only."""
        if not self._eviction:
            resources = self.call(self.core.get_api_resources)["resources"]
            versions = {one["name"]: one.get("version") or "v1" for one in resources}
            self._eviction = versions.get("pods/eviction", "v1")
        return self._eviction

    def read_config_map(self, namespace: str, name: str, key: str) -> str:
        """Text of a key of a ConfigMap."""
        found = self.call(self.core.read_namespaced_config_map, name, namespace)
        text = (found.get("data") or {}).get(key)
        if not isinstance(text, str):
            raise KubernetesError(f"the ConfigMap '{namespace}/{name}' has no '{key}'", 404)
        return text


def _settings(kubeconfig: str | None) -> Any:
    """Configuration of the client: where the server is, and who we are."""
    try:
        import urllib3
        from kubernetes import client, config
        from yaml import YAMLError
    except ImportError:
        raise KubernetesError(f"asking the API needs {missing('kubernetes')}") from None
    settings: Any = client.Configuration()
    try:
        try:
            if kubeconfig is not None:
                with open_file(kubeconfig):  # of a pipe the client would wait for an end
                    pass
                raise config.ConfigException  # on to the file, also within a pod
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            config.load_kube_config(kubeconfig, client_configuration=settings)
    except OSError as error:
        text = f"{error.filename}: {error.strerror.lower()}" if error.filename and error.strerror else error
        raise KubernetesError(f"no configuration of a cluster: {echo(text, quote='', most=300)}") from None
    except config.ConfigException as error:
        # What follows a brace is an entry of the file, which may hold a token.
        text = echo(re.sub(r"\{.*", "...", str(error), flags=re.DOTALL), quote="", most=300)
        if any(map(os.path.isfile, _files(kubeconfig))):
            raise InputError([f"is no kubeconfig: {text}"], os.pathsep.join(_files(kubeconfig))) from None
        raise KubernetesError(f"no configuration of a cluster: {text}") from None
    except YAMLError as error:
        # Its own words quote the file.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", see line {mark.line + 1}, column {mark.column + 1}"
        file = os.pathsep.join(_files(kubeconfig)) if mark is None else mark.name
        raise InputError([f"is no YAML{where}"], file) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        text = f": {error}" if isinstance(error, binascii.Error) else ""
        raise InputError([f"is no kubeconfig{text}"], os.pathsep.join(_files(kubeconfig))) from None
    settings.retries = False
    if not settings.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    key_of = settings.get_api_key_with_prefix
    settings.get_api_key_with_prefix = lambda *asked, **named: _token(key_of(*asked, **named))
    return settings


def _files(kubeconfig: str | None) -> list[str]:
    """Files with the configuration, of which a user may have several."""
    named = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [os.path.expanduser(name) for name in named.split(os.pathsep)]


def _token(text: str | None) -> str | None:
    """Token without the end of its line; one that no header takes is refused: the client would repeat it."""
    token = text and text.strip()
    if token and not (token.isascii() and token.isprintable()):
        raise KubernetesError("the token of the configuration must be one line of ASCII")
    return token


def refusal(status: int | None, body: Any) -> KubernetesError:
    """Return the error of a refusal or, without a status, of an API server that does not answer."""
    try:
        text = json.loads(body)["message"]
    except (ValueError, TypeError, KeyError):
        text = body
    if not status:  # as of a certificate that is not believed: nobody refused
        text = ": ".join(str(text).splitlines())
        return KubernetesError(f"the API server does not answer: {echo(text, quote='', most=300)}")
    return KubernetesError(f"the API server refuses: {echo(text, quote='', most=300)} ({status})", status)


def _event(line: bytes) -> dict[str, Any]:
    """Event in a line of a watch; a `KubernetesError` where it says that the watch failed."""
    event: dict[str, Any] = json.loads(line)
    if event["type"] == "ERROR":
        status = event["object"]
        text = echo(status.get("message", "the watch failed"), quote="", most=200)
        raise KubernetesError(text, status.get("code") or 0)
    return event
