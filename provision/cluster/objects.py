"""Reads Kubernetes' objects from a file, as ``kubectl get ... -A -o json`` writes them, or from the API server."""

import json
from pathlib import Path
from typing import Any

import yaml

from provision.applier.cluster.api import Cluster, NotAllowedError
from provision.instances.files.files import FilePath, read_text
from provision.models.base.errors import InputError

Object = dict[str, Any]
READ = {
    "Node": ("v1",), "Pod": ("v1",), "ReplicaSet": ("apps/v1",),
    "ResourceSlice": ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"),
    "ResourceClaim": ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"),
    "PodDisruptionBudget": ("policy/v1",),
}
"""The kinds of objects that are read, with the versions known, newest first."""
OPTIONAL = {"ResourceSlice", "ResourceClaim", "PodDisruptionBudget"}
"""Kinds that a cluster need not know."""


def objects_in(path: FilePath) -> list[Object]:
    """The objects in a file of ``kubectl get -o json`` or ``-o yaml``; a List counts as its items. Raises InputError if
    the file cannot be read, or has no objects of Kubernetes.
    """
    text = read_text(path)
    try:
        documents = [json.loads(text)] if Path(path).suffix == ".json" else list(
            yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: is no {'JSON' if Path(path).suffix == '.json' else 'YAML'}: {error}; write it anew "
                         "with kubectl get -o json") from None
    found: list[Object] = []
    for document in documents:
        items = document.get("items") if isinstance(document, dict) and "items" in document else [document]
        if not isinstance(items, list) or not all(isinstance(one, dict) and isinstance(one.get("kind"), str)
                                                  and isinstance(one.get("metadata"), dict) for one in items):
            raise InputError(f"{path}: has something that is no object of Kubernetes; write it with kubectl get "
                             "nodes,pods,replicasets,resourceslices,resourceclaims,poddisruptionbudgets -A -o json")
        found += items
    for one in found:
        known = READ.get(one["kind"], ())
        if known and one.get("apiVersion") not in known:
            raise InputError(f"{path}: {one['kind']} {one['metadata'].get('name')}: version {one.get('apiVersion')!r} "
                             f"is unknown; ask the server for {known[0]}, as in kubectl get {one['kind'].lower()}s."
                             f"{'.'.join(reversed(known[0].split('/')))}")
    return found


def objects_live(context: str | None, notes: list[str]) -> list[Object]:
    """The objects of the cluster that the kubeconfig names; adds a note if it does without a kind. Raises InputError if
    the server cannot be reached, or the user may not list one of the kinds.
    """
    cluster = Cluster("default", context)
    found: list[Object] = []
    for kind, versions in READ.items():
        try:
            listed = next((one for version in versions if (one := cluster.every(version, kind)) is not None), None)
        except NotAllowedError as error:
            if kind != "PodDisruptionBudget":
                raise
            notes.append(f"{error}; until then budgets are not known, and moves may break them")
            continue
        if listed is None and kind not in OPTIONAL:
            raise InputError(f"{kind}: the cluster knows no {versions[0]}; use one of version 1.29 or later")
        found += listed or []
    return found
