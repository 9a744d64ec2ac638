"""A small server that answers like Kubernetes' API: no cluster, but objects that must fit the published schemas.

Discovery, get, server-side apply, merge patches of labels, delete, dry runs. Objects are validated by
``kubernetes-validate``, strictly. Two controllers are played: Deployments become available and nodes partitioned after
so many looks, or never.
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
    "v1": {"configmaps": ("ConfigMap", True), "services": ("Service", True), "nodes": ("Node", False)},
    "apps/v1": {"deployments": ("Deployment", True)},
    "resource.k8s.io/v1": {"resourceclaimtemplates": ("ResourceClaimTemplate", True)},
}
VERBS = ["get", "list", "patch", "delete", "create", "update"]


class Kube:
    """The server; ``objects`` by (kind, namespace, name). ``looks`` until what was asked for is done, None: never."""

    def __init__(self, nodes, namespaces=("default", "gpu-operator"), looks=2):
        self.namespaces, self.looks, self.partitions = namespaces, looks, "success"
        self.objects = {
            ("Node", "", name): {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {}}}
            for name in nodes
        }
        self.requests, self.waiting, self.refused = [], {}, None
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
        kinds = {plural: kind for known in KINDS.values() for plural, (kind, _) in known.items()}
        return kinds[plural], namespace, name

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
