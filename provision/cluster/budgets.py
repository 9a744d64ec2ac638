"""Reads PodDisruptionBudgets: how many pods of a group may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.cluster.state import Budget, StateSlice


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels fit a selector of Kubernetes; an empty one fits all."""
    for one in selector.get("matchExpressions") or []:
        value, among = labels.get(one["key"]), one.get("values") or []
        fits = {"In": value in among, "NotIn": value not in among, "Exists": value is not None,
                "DoesNotExist": value is None}
        if not fits.get(one["operator"], False):
            return False
    return all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())


def budgets_of(objects: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> Iterator[Budget]:
    """Yield the budgets among these objects, each with those of the pods that it protects."""
    metas = [one["metadata"] for one in pods]
    for one in objects:
        selector, namespace = (one.get("spec") or {}).get("selector"), one["metadata"].get("namespace", "default")
        held = tuple(f"{namespace}/{meta['name']}" for meta in metas if meta.get("namespace", "default") == namespace
                     and selector is not None and matches(selector, meta.get("labels") or {}))
        yield Budget(name=f"{namespace}/{one['metadata']['name']}", pods=held,
                     allowed=int((one.get("status") or {}).get("disruptionsAllowed", 0)))


def held_by(piece: StateSlice, budgets: Iterable[Budget]) -> str:
    """Why the pods of a slice cannot be evicted together; empty if they can."""
    return next((f"disruption budget {one.name} allows {one.allowed} evictions" for one in budgets
                 if len(set(one.pods) & set(piece.pods)) > one.allowed), "")
