"""Programs on a node that still see the old MIG devices after a change, and the commands that restart them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from provision.applier.serving.processes import processes
from provision.applier.steps import Step

CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
KUBELET = Path("/var/lib/kubelet/device-plugins")
BLIND, PLUGIN_DAEMONS = "does not see the change", "kubectl -n NAMESPACE rollout restart daemonset"
CONSUMERS = {
    "nvidia-device-p": f"NVIDIA's device plugin {BLIND}: {PLUGIN_DAEMONS} nvidia-device-plugin-daemonset",
    "gpu-kubelet-plu": f"NVIDIA's DRA driver {BLIND}: {PLUGIN_DAEMONS} of its kubelet plugin",
    "dcgm-exporter": f"dcgm-exporter {BLIND}: {PLUGIN_DAEMONS} nvidia-dcgm-exporter, or systemctl restart it",
    "nv-hostengine": f"DCGM {BLIND}: systemctl restart nvidia-dcgm",
}
"""The action that each program needs, by the name of the program. Linux keeps the first 15 characters of a name."""


def blind(steps: Iterable[Step]) -> Iterator[str]:
    """Yield a line on every program that must be restarted after steps that created or destroyed MIG instances."""
    if not any(step.action.endswith(("_instance", "_compute")) for step in steps):
        return
    for folder in CDI_FOLDERS:
        if folder.is_dir() and any("nvidia" in path.name for path in folder.iterdir()):
            yield f"containers do not see the change: nvidia-ctk cdi generate --output={folder / 'nvidia.yaml'}"
    running = {one.name for one in processes()}
    found = [line for name, line in CONSUMERS.items() if name in running]
    if KUBELET.is_dir() and not found:
        found = [f"Kubernetes sees the change when its plugin is restarted: {PLUGIN_DAEMONS} NAME"]
    yield from found
