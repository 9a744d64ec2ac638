"""Calls to the API server of a cluster: get objects, apply them by server-side apply, delete them. Each call has a
deadline.

Source: Kubernetes API concepts, "Server-Side Apply" and "Dry-run"; the client is Kubernetes' own for Python.
"""

import copy
import json
from typing import Any

from provision.models.base.errors import InputError, optional

MANAGER = "provision"
"""The field manager under whose name fields are applied."""
CALL_S = 30.0
"""The seconds that a call may take. A healthy server answers within a few."""
NOT_FOUND, FORBIDDEN = 404, 403
KEPT = ("labels", "annotations", "name", "namespace")
"""The fields of an object's metadata that its author writes. The server writes the others."""

Object = dict[str, Any]


class NotAllowedError(InputError):
    """The user may not list a kind of objects."""


class Cluster:
    """The cluster that a kubeconfig names. Objects that name no namespace go to ``namespace``."""

    def __init__(self, namespace: str, context: str | None = None) -> None:
        with optional():
            from kubernetes import config, dynamic
            from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        self._refused, self._unreachable = ApiException, HTTPError
        self.namespace = namespace
        try:
            client = config.new_client_from_config(context=context)
            client.configuration.retries = 1
            self._client = dynamic.DynamicClient(client)
        except config.ConfigException as error:
            raise InputError(f"kubeconfig: {error}; set KUBECONFIG, or name a --context of it") from None
        except (ApiException, HTTPError) as error:
            raise InputError(f"the API server cannot be reached: {error}; see kubectl cluster-info") from None

    def get(self, wanted: Object) -> Object | None:
        """The object of this kind and name as it is on the cluster; None if there is none."""
        return self._call("get", wanted, name=wanted["metadata"]["name"])

    def every(self, version: str, kind: str) -> list[Object] | None:
        """All objects of a kind in all namespaces; None if the cluster does not know the version. Raises
        NotAllowedError if the user may not list the kind, and InputError if the server refuses, or does not answer.
        """
        from kubernetes.dynamic.exceptions import ResourceNotFoundError

        try:
            resource = self._client.resources.get(api_version=version, kind=kind)
            answer = resource.get(_request_timeout=CALL_S)
        except ResourceNotFoundError:
            return None
        except self._refused as error:
            if error.status == NOT_FOUND:
                return None
            if error.status == FORBIDDEN:
                raise NotAllowedError(f"{kind}: you may not list them; have a ClusterRole with get and list on "
                                 f"{resource.name} bound to your user") from None
            raise InputError(f"{kind}: the server refuses: {_reason(error)}") from None
        except self._unreachable as error:
            raise InputError(f"{kind}: no answer from the API server: {error}; try again") from None
        items: list[Object] = answer.to_dict().get("items") or []
        return [{"apiVersion": version, "kind": kind} | one for one in items]

    def apply(self, wanted: Object, dry_run: bool = False) -> Object:
        """Apply an object, and take over its fields from other managers. With ``dry_run``, the server only says whether
        it would do so.

        Raises
        ------
        InputError
            If the server refuses. The message has its reason.
        """
        options = {"dry_run": "All"} if dry_run else {}
        found = self._call(
            "server_side_apply", wanted, body=wanted, field_manager=MANAGER, force_conflicts=True, **options
        )
        if found is None:
            raise InputError(f"{label(wanted)}: its namespace is not there; create it")
        return found

    def labelled(self, node: str, labels: dict[str, str | None], dry_run: bool = False) -> None:
        """Set labels of a node. The value None removes a label."""
        patch = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
        options = {"dry_run": "All"} if dry_run else {}
        content = "application/merge-patch+json"
        if self._call("patch", patch, body=patch, name=node, content_type=content, **options) is None:
            raise InputError(f"node {node}: the cluster has none of this name; see kubectl get nodes")

    def delete(self, wanted: Object) -> None:
        """Delete an object and everything that belongs to it. If it does not exist, nothing happens."""
        self._call("delete", wanted, name=wanted["metadata"]["name"], propagation_policy="Background")

    def _call(self, verb: str, about: Object, **options: Any) -> Object | None:
        """The answer of the server; None if there is no such object."""
        from kubernetes.dynamic.exceptions import ResourceNotFoundError

        try:
            resource = self._client.resources.get(api_version=about["apiVersion"], kind=about["kind"])
            place = about["metadata"].get("namespace", self.namespace) if resource.namespaced else None
            answer = getattr(resource, verb)(namespace=place, _request_timeout=CALL_S, **options)
        except ResourceNotFoundError:
            version = about["apiVersion"]
            raise InputError(f"{label(about)}: the cluster knows no {version}; update it or use another --to") from None
        except self._refused as error:
            if error.status == NOT_FOUND:
                return None
            raise InputError(f"{label(about)}: the server refuses: {_reason(error)}") from None
        except self._unreachable as error:
            raise InputError(f"{label(about)}: no answer from the API server: {error}; try again") from None
        found: Object = answer.to_dict()
        return found


def _reason(error: Any) -> str:
    """The reason that the server gives."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"


def label(about: Object) -> str:
    """The kind and name of a Kubernetes object, for messages."""
    return f"{about['kind']} {about['metadata']['name']}"


def authored(found: Object) -> Object:
    """An object as its author wrote it, without the fields that the server adds."""
    kept = {name: value for name, value in copy.deepcopy(found).items() if name != "status"}
    kept["metadata"] = {name: value for name, value in kept["metadata"].items() if name in KEPT}
    return kept


def differing(wanted: Any, found: Any, at: str = "") -> str | None:
    """The path of the first field in which an object differs from what was applied; None if there is none.

    Fields of the object that were not applied are ignored.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        pairs = ((f"{at}.{name}".lstrip("."), value, found.get(name)) for name, value in wanted.items())
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = ((f"{at}[{n}]", value, found[n]) for n, value in enumerate(wanted))
    else:
        return None if wanted == found else at
    return next((path for name, value, other in pairs if (path := differing(value, other, name)) is not None), None)
