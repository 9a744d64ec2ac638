"""Export as a Helm chart: the manifests of the Kubernetes export, with values that name the image of each model.

Source: Helm's documentation of charts; the manifests are those of ``kubernetes``.
"""

from __future__ import annotations

import re

from provision.draw.words import plural
from provision.exporters import kubernetes
from provision.exporters.cluster import LABELLING, operator_notes
from provision.exporters.common import Exported, nodes, prefix, yaml_text
from provision.exporters.pods import image_names
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

IMAGE = re.compile(r'^( +image: )"?([a-z0-9-]+)"?$', re.MULTILINE)
TEMPLATES = ("claims.yaml", "deployments.yaml", "services.yaml", "mig-config.yaml")
ROUTES = ("gateway", "istio")
"""The values of ``routing`` that name a template of routes."""
NOTES = (
    f"`--set routing=` {' or '.join(ROUTES)} adds the routes of gateway.yaml or istio.yaml.",
    "`helm install NAME . --set images.MODEL=REGISTRY/IMAGE` for each model of values.yaml, or name them there.",
)


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``Chart.yaml``, ``values.yaml``, templates of the manifests, and the script that labels the nodes."""
    name, served = prefix(plan), kubernetes.render(plan, instance, gpus_per_node)
    plain = served.files
    chart = {
        "apiVersion": "v2", "name": name, "version": "1.0.0", "type": "application",
        "description": f"{plural(plan.gpu_count, 'GPU')} for {plan.instance}",
    }
    files = {
        "Chart.yaml": yaml_text(chart),
        "values.yaml": yaml_text({"images": {one: one for one in image_names(instance).values()}, "routing": "none"}),
        "label-nodes.sh": plain["label-nodes.sh"],
    } | {f"templates/{file}": _template(plain[file]) for file in TEMPLATES if file in plain}
    files |= {f"templates/{one}.yaml": _chosen(one, plain[f"{one}.yaml"]) for one in ROUTES if f"{one}.yaml" in plain}
    before = operator_notes(nodes(plan, gpus_per_node, name), name)
    return Exported(files, (*before, LABELLING, *NOTES, *kubernetes.NOTES))


def _template(text: str) -> str:
    """A manifest as a template. Braces in it are escaped, and images come from the values."""
    plain = text.replace("{{", "{{ `{{` }}")
    return IMAGE.sub(r"\1{{ index .Values.images `\2` | quote }}", plain)


def _chosen(routing: str, text: str) -> str:
    """A template that Helm renders only if the values choose this routing."""
    return f'{{{{- if eq .Values.routing "{routing}" }}}}\n{_template(text)}{{{{- end }}}}\n'
