"""The pods of a plan with all that clients need to reach them: Deployments, Services and routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from provision.exporters.common import Exported
from provision.exporters.pods import deployments
from provision.exporters.routing.listening import listening, services
from provision.exporters.routing.routes import routes

if TYPE_CHECKING:
    from provision.exporters.pods import Pod
    from provision.models.problem.instance import Instance

APPLIED = ("deployments.yaml", "services.yaml")
"""The files that every cluster accepts. Routes need components that are not part of Kubernetes."""
NOTE = (
    "Every container is to listen at PROVISION_PORT, and to answer the health requests of the Open Inference Protocol "
    "there (`tritonserver --http-port=$PROVISION_PORT`), or of a language model `/health` (vLLM)."
)


def serving(instance: Instance, pods: Iterable[Pod], prefix: str) -> Exported:
    """``deployments.yaml``, ``services.yaml`` and the routes, with notes on them.

    Parameters
    ----------
    instance, pods
        The Instance, and its plan's Pods.
    prefix
        The prefix of the names of its objects.
    """
    found, backends = listening(instance, pods, prefix)
    texts = deployments(instance, found), services(backends)
    files, notes = routes(instance, backends, prefix)
    return Exported(dict(zip(APPLIED, texts, strict=True)) | files, (NOTE, *notes))
