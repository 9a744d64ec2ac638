"""Export to Kubernetes with dynamic resource allocation: a claim template per kind of slice, a Deployment per slice.

MIG is static: the GPU operator partitions the nodes. Slices with several processes or with SM percentages are shared
under MPS, by the configuration in their claim.
"""

from __future__ import annotations

from provision.exporters.claims import GATES, NEEDS, template, wanted
from provision.exporters.cluster import node_files, notes
from provision.exporters.common import Attachment, Exported, nodes, prefix, yaml_text
from provision.exporters.pods import check_spread, kustomization, slice_pods
from provision.exporters.routing.routes import APPLIED, serving
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """The claim templates, the Deployments, their kustomization, and the files that prepare the nodes."""
    name = prefix(plan)
    machines = nodes(plan, gpus_per_node, name)
    check_spread(instance, machines)
    kinds = dict.fromkeys(wanted(piece) for gpu in plan.gpus for piece in gpu.slices if piece.replicas)

    def attach(piece: Slice) -> Attachment:
        claims = [{"name": "slice", "resourceClaimTemplateName": f"{name}-{wanted(piece).name}"}]
        return {"claims": [{"name": "slice"}]}, {"resourceClaims": claims}

    served = serving(instance, slice_pods(instance, machines, name, attach), name)
    files = {
        "claims.yaml": yaml_text(*(template(f"{name}-{kind.name}", {"slice": kind}) for kind in kinds)),
        "kustomization.yaml": kustomization(["claims.yaml", *APPLIED]),
    }
    return Exported(files | served.files | node_files(machines, name), (*notes(machines, name), *served.notes, *NOTES))


NOTES = (f"{NEEDS}; the driver sees new MIG devices after a restart of its kubelet plugin.", f"{GATES}.")
