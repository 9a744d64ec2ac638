"""Export to KServe: an InferenceService per replica on a claimed slice, and an InferenceGraph per workload that splits
requests.

All server processes of a slice share one claim, also if they belong to several replicas. Language models have a
ServingRuntime of vLLM, and services of it with the arguments of each replica. Source: KServe's API reference,
serving.kserve.io/v1beta1 InferenceService, v1alpha1 InferenceGraph and ServingRuntime.
"""

from math import floor
from typing import Any, TypeAlias

from provision.exporters.common import Exported, nodes, prefix, slice_name, slugs, yaml_text
from provision.exporters.kubernetes import GATES, NEEDS, claim, wanted
from provision.exporters.language_models import language_models, memory_notes, vllm_arguments
from provision.exporters.mig_parted import LABELLING, node_files, operator_notes
from provision.exporters.pods import NODE_LABEL, check_spread, environment, image_names, kustomization
from provision.exporters.routing import probes
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import as_deployed, predict_slice

LONGEST = 18
"""The most characters of a workload's slug. KServe appends to names of services, which may have 63 characters."""
PERCENT, PORT = 100, 8080
FORMAT, VLLM_IMAGE = "vllm", "vllm/vllm-openai:latest"
Steps: TypeAlias = dict[str, tuple[float, float]]
"""The replicas of a workload: by the name of the service, the routed rate and the highest rate in requests/s."""

NOTES = (
    f"{NEEDS}, and a KServe whose predictors take resourceClaims. {GATES}: the nodes are partitioned beforehand.",
    "Images are named after the models and serve at port 8080, health requests of the Open Inference Protocol (of "
    "language models `/health`) among them: `kustomize edit set image MODEL=REGISTRY/IMAGE` for each, then `kubectl "
    "apply -k .`.",
    "Language models run in the ServingRuntime of `runtime.yaml`; put the Hugging Face name or another URI of each in "
    "the place of `storageUri` in services.yaml.",
    "The InferenceGraph of a workload deals its requests by whole percents; no replica gets more than it can serve.",
)


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """The claims, InferenceServices, InferenceGraphs, their kustomization, and the files that prepare the nodes."""
    name, instance = prefix(plan), as_deployed(instance, plan)
    machines = nodes(plan, gpus_per_node, name)
    check_spread(instance, machines)
    names, runtime = slugs((workload.name for workload in instance.workloads), LONGEST), f"{name}-vllm"
    claims: list[dict[str, Any]] = []
    services: list[dict[str, Any]] = []
    steps: dict[str, Steps] = {workload.name: {} for workload in instance.workloads}
    for node in machines:
        for index, gpu in node.gpus:
            for position, piece in enumerate(gpu.slices):
                place = f"{name}-{slice_name(index, position)}"
                if piece.replicas:
                    claims.append(claim(place, {"slice": wanted(piece)}))
                for replica, predicted in zip(piece.replicas, predict_slice(instance, gpu.gpu, piece), strict=True):
                    service = f"{place}-{names[replica.workload]}"
                    server = _server(runtime, instance, gpu.gpu, piece, replica)
                    services.append(_service(service, node.name, place, replica.processes, server))
                    steps[replica.workload][service] = replica.rate_rps, _most_rps(instance, replica, known(predicted))
    graphs = [_graph(f"{name}-{names[one]}", one, found) for one, found in steps.items() if found]
    documents = {"claims.yaml": claims, "services.yaml": services, "graphs.yaml": graphs}
    memory: list[str] = []
    if language_models(instance):
        memory = list(memory_notes(plan, instance))
        documents |= {"runtime.yaml": [_runtime(runtime)]}
    files = {file: yaml_text(*several) for file, several in documents.items()}
    files["kustomization.yaml"] = kustomization(list(documents))
    notes = (*operator_notes(machines, name), LABELLING, *NOTES, *memory)
    return Exported(files | node_files(machines, name), notes)


def _service(name: str, node: str, place: str, processes: int, server: dict[str, Any]) -> dict[str, Any]:
    """The InferenceService of a replica, with a pod per server process; ``server`` is the predictor's part of it."""
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"}},
        "spec": {
            "predictor": {
                "minReplicas": processes,
                "maxReplicas": processes,
                "deploymentStrategy": {"type": "Recreate"},
                "nodeSelector": {NODE_LABEL: node},
                **server,
                "resourceClaims": [{"name": "slice", "resourceClaimName": place}],
            }
        },
    }


def _server(runtime: str, instance: Instance, gpu: str, piece: Slice, replica: Replica) -> dict[str, Any]:
    """What a replica runs: a container of its own, or a language model with the arguments of vLLM."""
    workload, model = instance.workload[replica.workload], instance.model_of(replica)
    common = {"env": environment(instance, piece, replica), "resources": {"claims": [{"name": "slice"}]}}
    common |= probes(workload, PORT)
    if workload.tokens:
        return {"model": {"modelFormat": {"name": FORMAT}, "runtime": runtime, "storageUri": f"hf://{model}",
                          "args": list(vllm_arguments(instance, gpu, piece, replica))} | common}
    return {"containers": [{"name": "kserve-container", "image": image_names(instance)[model]} | common]}


def _runtime(name: str) -> dict[str, Any]:
    """The ServingRuntime of vLLM, to which every service adds its own arguments."""
    container = {
        "name": "kserve-container", "image": VLLM_IMAGE, "command": ["vllm", "serve", "/mnt/models"],
        "args": [f"--port={PORT}"], "ports": [{"containerPort": PORT, "protocol": "TCP"}],
    }
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": name},
        "spec": {"supportedModelFormats": [{"name": FORMAT, "version": "1"}], "multiModel": False,
                 "containers": [container]},
    }


def _most_rps(instance: Instance, replica: Replica, found: Prediction) -> float:
    """The highest rate (requests/s) at which a replica keeps its SLO; at least its routed rate."""
    workload = instance.workload[replica.workload]
    if workload.tokens:
        return found.throughput_rps
    rule = instance.policy.rule_for(workload)
    most_rps = rule.carried_rps(replica.batch, replica.processes, found, instance.budget_ms(workload))
    return max(most_rps, replica.rate_rps)


def _graph(name: str, workload: str, steps: Steps) -> dict[str, Any]:
    """The InferenceGraph that divides a workload's requests among its replicas."""
    dealt = percents(workload, list(steps.values()))
    targets = [{"serviceName": service, "weight": percent} for service, percent in zip(steps, dealt, strict=True)]
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "InferenceGraph",
        "metadata": {"name": name},
        "spec": {"nodes": {"root": {"routerType": "Splitter", "steps": targets}}},
    }


def percents(workload: str, replicas: list[tuple[float, float]]) -> list[int]:
    """The whole percentages of a workload's requests that its replicas get, close to their rates.

    ``replicas`` are pairs (rate, highest rate) in requests/s. Raises InputError if whole percentages give some replica
    more than it can serve.
    """
    total_rps = sum(rate_rps for rate_rps, _ in replicas)
    exact = [PERCENT * rate_rps / total_rps for rate_rps, _ in replicas]
    dealt = [floor(one) for one in exact]
    # The rest is given out percent by percent. Each percent goes to the replica that is furthest below its rate, among
    # the replicas that can take one more.
    by_remainder = sorted(range(len(exact)), key=lambda at: dealt[at] - exact[at])
    room = [at for at in by_remainder if (dealt[at] + 1) * total_rps <= PERCENT * replicas[at][1] * (1 + 1e-9)]
    left = PERCENT - sum(dealt)
    if left > len(room):
        raise InputError(
            f"kserve: {workload} has {len(replicas)} replicas, and whole percents of its rate give some of them more "
            "than they can serve; plan with headroom, or use --to kubernetes"
        )
    for at in room[:left]:
        dealt[at] += 1
    return dealt
