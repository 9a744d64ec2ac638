"""A small server that answers like Kubernetes' API: no cluster, but objects that must fit the published schemas.

Discovery, get, server-side apply, merge patches of labels, delete, dry runs. Objects are validated by
``kubernetes-validate``, strictly. Two controllers are played: Deployments become available and nodes partitioned after
so many looks, or never. Below are objects of clusters that run, as tests read them.
"""

import copy
import http.server
import json
import threading
from urllib.parse import parse_qs, urlparse

import kubernetes_validate
import yaml

VERSION = "1.34"
KINDS = {
    "v1": {"configmaps": ("ConfigMap", True), "services": ("Service", True), "nodes": ("Node", False),
           "pods": ("Pod", True)},
    "apps/v1": {"deployments": ("Deployment", True), "replicasets": ("ReplicaSet", True)},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
    "resource.k8s.io/v1": {"resourceclaimtemplates": ("ResourceClaimTemplate", True),
                           "resourceslices": ("ResourceSlice", False), "resourceclaims": ("ResourceClaim", True)},
}
PLURALS = {plural: kind for known in KINDS.values() for plural, (kind, _) in known.items()}
VERBS = ["get", "list", "patch", "delete", "create", "update"]


class Kube:
    """The server; ``objects`` by (kind, namespace, name). ``looks`` until what was asked for is done, None: never."""

    def __init__(self, nodes, namespaces=("default", "gpu-operator"), looks=2):
        self.namespaces, self.looks, self.partitions = namespaces, looks, "success"
        self.objects = {
            ("Node", "", name): {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {}}}
            for name in nodes
        }
        self.requests, self.waiting, self.refused, self.forbidden = [], {}, None, None
        handler = type("Handler", (_Handler,), {"kube": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kubeconfig(self, path):
        """Write a kubeconfig that leads here."""
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        named = {"cluster": "c", "user": "u"}
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}], "contexts": [{"name": "here", "context": named}],
        }))

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def add(self, objects):
        """Let objects stand on the cluster; each must fit its published schema."""
        for one in objects:
            kubernetes_validate.validate(one, VERSION, strict=True)
            meta = one["metadata"]
            self.objects[one["kind"], meta.get("namespace", ""), meta["name"]] = one

    def every(self, kind):
        """The list of all objects of a kind, or (status, message)."""
        if self.forbidden == kind:
            return 403, f"cannot list {kind} at the cluster scope"
        items = [one for key, one in self.objects.items() if key[0] == kind]
        return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}

    def labels(self, node):
        return self.objects["Node", "", node]["metadata"]["labels"]

    def named(self, kind):
        return {name for one, _, name in self.objects if one == kind}

    def patch(self, key, body, merge, dry):
        """The object after a patch, or (status, message)."""
        if self.refused and self.refused in key:
            return 403, f"{key[2]} is forbidden: exceeded quota"
        there = self.objects.get(key)
        if merge and there is None:
            return 404, f"{key[2]} not found"
        if key[1] and key[1] not in self.namespaces:
            return 404, f"namespaces {key[1]!r} not found"
        if not merge:
            try:
                kubernetes_validate.validate(body, VERSION, strict=True)
            except kubernetes_validate.ValidationError as error:
                return 422, f"{key[0]} {key[2]} is invalid: {error.message}"
        made = copy.deepcopy(there) if merge else copy.deepcopy(body)
        if merge:
            self._label(made, body["metadata"]["labels"])
        else:
            meta = made["metadata"]
            meta["generation"] = there["metadata"]["generation"] + (there["spec_of"] != body) if there else 1
            meta["managedFields"], made["spec_of"] = [{"manager": "provision"}], copy.deepcopy(body)
            if key[1]:
                meta["namespace"] = key[1]
        if not dry:
            self.objects[key] = made
            self.waiting[key] = self.looks
        return made

    def _label(self, made, labels):
        before = dict(made["metadata"]["labels"])
        kept = made["metadata"]["labels"]
        for name, value in labels.items():
            kept.pop(name, None)
            if value is not None:
                kept[name] = value
        split = "nvidia.com/mig.config"
        if kept.get(split) and kept.get(split) != before.get(split):
            kept["nvidia.com/mig.config.state"] = "pending"

    def get(self, key):
        """The object as its controllers have it by now."""
        found = self.objects.get(key)
        if found is None:
            return 404, f"{key[2]} not found"
        left = self.waiting.get(key)
        if left is not None:
            self.waiting[key] = max(left - 1, 0)
        if left == 0:
            if key[0] == "Deployment":
                replicas = found["spec"]["replicas"]
                found["status"] = {"observedGeneration": found["metadata"]["generation"],
                                   "availableReplicas": replicas, "updatedReplicas": replicas}
            if key[0] == "Node" and found["metadata"]["labels"].get("nvidia.com/mig.config.state") == "pending":
                found["metadata"]["labels"]["nvidia.com/mig.config.state"] = self.partitions
        return {name: value for name, value in found.items() if name != "spec_of"}


class _Handler(http.server.BaseHTTPRequestHandler):
    kube = None

    def do_GET(self):
        path = urlparse(self.path).path.strip("/")
        if path == "version":
            self._answer(200, {"major": "1", "minor": VERSION.split(".")[1]})
        elif path == "api":
            self._answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "apis":
            groups = [version.split("/") for version in KINDS if "/" in version]
            self._answer(200, {"kind": "APIGroupList", "groups": [
                {"name": name, "versions": [one := {"groupVersion": f"{name}/{version}", "version": version}],
                 "preferredVersion": one} for name, version in groups]})
        elif path.removeprefix("apis/").removeprefix("api/") in KINDS:
            version = path.removeprefix("apis/").removeprefix("api/")
            self._answer(200, {"kind": "APIResourceList", "groupVersion": version, "resources": [
                {"name": name, "singularName": "", "kind": kind, "namespaced": within, "verbs": VERBS}
                for name, (kind, within) in KINDS[version].items()]})
        elif path.rpartition("/")[2] in PLURALS:
            self._done(self.kube.every(PLURALS[path.rpartition("/")[2]]))
        else:
            self._done(self.kube.get(self._key()))

    def do_PATCH(self):
        body = yaml.safe_load(self.rfile.read(int(self.headers["Content-Length"])))
        query = parse_qs(urlparse(self.path).query)
        dry, merge = query.get("dryRun") == ["All"], "merge" in self.headers["Content-Type"]
        self.kube.requests.append(("dry" if dry else "real", body["kind"], body["metadata"]["name"]))
        self._done(self.kube.patch(self._key(), body, merge, dry))

    def do_DELETE(self):
        key = self._key()
        self.kube.requests.append(("delete", key[0], key[2]))
        self._done(self.kube.objects.pop(key, (404, "not found")))

    def _key(self):
        parts = urlparse(self.path).path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = rest[1] if rest[0] == "namespaces" else ""
        plural, name = rest[2:4] if namespace else rest[:2]
        return PLURALS[plural], namespace, name

    def _done(self, result):
        if isinstance(result, tuple):
            code, message = result
            self._answer(code, {"kind": "Status", "status": "Failure", "message": message, "code": code})
        else:
            self._answer(200, result)

    def _answer(self, code, content):
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        """Nothing is printed."""


# Objects with values of our own.
A100 = "NVIDIA-A100-SXM4-80GB"


def node(name, product, gpus=8, mig=None, replicas=1, strategy="none", single=""):
    """A node as the GPU operator labels it; ``mig`` has the number of MIG devices by profile (mixed strategy)."""
    shown = product + ("-SHARED" if replicas > 1 else "") + (f"-MIG-{single}" if single else "")
    labels = {"nvidia.com/gpu.product": shown,
              "nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.replicas": str(replicas),
              "nvidia.com/gpu.sharing-strategy": strategy, "nvidia.com/mig.capable": str(bool(mig or single)).lower()}
    capacity = {f"nvidia.com/mig-{profile}": str(number) for profile, number in (mig or {}).items()}
    if not mig:
        capacity["nvidia.com/gpu"] = str(gpus * replicas)
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": {"cpu": "96", "memory": "900Gi"} | capacity}}


def pod(name, on, resource, owner, namespace="shop", notes=None, env=None, args=None, claim=None, phase="Running"):
    """A pod with one server; ``notes`` are annotations below ``provision/``."""
    meta = {"name": name, "namespace": namespace,
            "annotations": {f"provision/{key}": str(value) for key, value in (notes or {}).items()}}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner + "-7d9f8b6c5d",
                                    "uid": "u", "controller": True}]
    container = {"name": "server", "image": "server:1", "env": [
        {"name": key, "value": str(value)} for key, value in (env or {}).items()]}
    if args:
        container["args"] = args
    spec = {"nodeName": on, "containers": [container]}
    if resource:
        container["resources"] = {"limits": {resource: "1"}}
    if claim:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def replica_set(owner, namespace="shop"):
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": owner + "-7d9f8b6c5d", "namespace": namespace, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": "d", "controller": True}]},
            "spec": {"selector": {"matchLabels": {"app": owner}}, "replicas": 1, "template": {
                "metadata": {"labels": {"app": owner}}, "spec": {"containers": [{"name": "server", "image": "s:1"}]}}}}


def resource_slice(on, devices, version="v1"):
    """A ResourceSlice of NVIDIA's driver. ``devices``: (name, attributes, first memory slice, number of them)."""
    listed = []
    for name, attributes, start, size in devices:
        body = {"attributes": {key: {"string": value} for key, value in attributes.items()}}
        if size:
            body["capacity"] = {f"memorySlice{at}": {"value": "1"} for at in range(start, start + size)}
        listed.append({"name": name} | ({"basic": body} if version == "v1beta1" else body))
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice",
            "metadata": {"name": f"{on}-gpu.nvidia.com"},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": on, "devices": listed,
                     "pool": {"name": on, "generation": 1, "resourceSliceCount": 1}}}


def resource_claim(name, on, device, namespace="shop", version="v1"):
    request = {"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com"}}
    if version == "v1beta1":
        request = {"name": "gpu", "deviceClassName": "mig.nvidia.com"}
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"devices": {"requests": [request]}},
            "status": {"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": on, "device": device}]}}}}


def shop():
    """Three A100 machines of 2 GPUs: one cut into 3g slices, two whole; more than the demand needs."""
    notes = {"resnet50": {"model": "resnet50", "slo-ms": 150, "rate-rps": 600},
             "bert": {"model": "bert", "slo-ms": 600, "rate-rps": 60},
             "vgg19": {"model": "vgg19", "slo-ms": 200, "rate-rps": 150}}
    objects = [node("n1", A100, 2, mig={"3g.40gb": 4}), node("n2", A100, 2), node("n3", A100, 2)]
    objects += [replica_set(name) for name in notes]
    seats = [("resnet50", "n1"), ("resnet50", "n1"), ("bert", "n1"), ("bert", "n2"), ("vgg19", "n2"), ("vgg19", "n3")]
    for number, (name, on) in enumerate(seats):
        resource = "nvidia.com/mig-3g.40gb" if on == "n1" else "nvidia.com/gpu"
        objects.append(pod(f"{name}-{number}", on, resource, name, notes=notes[name]))
    return objects
