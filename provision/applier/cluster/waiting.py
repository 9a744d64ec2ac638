"""Waits for a cluster: until nodes are partitioned and pods are available."""

import time
from collections.abc import Callable, Sequence

from provision.applier.cluster.api import Cluster, Object, label
from provision.models.base.clock import Deadline, end_if_asked
from provision.models.base.errors import InputError

WITHIN_S = 900.0
"""The seconds that partitioning may take, and after it the start of the servers."""
POLL_S = 1.0
"""Seconds between two queries of the cluster."""


def wait_until_none(missing: Callable[[], str | None], within_s: float) -> None:
    """Wait until ``missing`` returns None. Until then it returns a sentence that says what is missing. Raises
    InputError if something is still missing after ``within_s`` seconds. The message has the sentence.
    """
    until = Deadline(within_s)
    while (what := missing()) is not None:
        end_if_asked()
        if until.over:
            raise InputError(f"{what} after {within_s:g} s; see kubectl describe")
        time.sleep(POLL_S)


def unavailable(cluster: Cluster, objects: Sequence[Object]) -> str | None:
    """A sentence on a Deployment whose pods are not all available yet; None if all are."""
    for one in objects:
        if one["kind"] != "Deployment":
            continue
        found = cluster.get(one) or {}
        status, replicas = found.get("status", {}), one["spec"]["replicas"]
        seen = status.get("observedGeneration", 0) >= found.get("metadata", {}).get("generation", 1)
        if not seen or status.get("availableReplicas", 0) < replicas or status.get("updatedReplicas", 0) < replicas:
            return f"{label(one)}: {status.get('availableReplicas', 0)} of {replicas} pods available"
    return None
