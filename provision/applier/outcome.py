"""How runs end: the words for it, the RunOutcome that ``apply`` and ``rollback`` return, and notes on programs of the
node that still see the old MIG devices, with the commands that restart them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from provision.applier.serving.processes import processes
from provision.applier.steps import Step
from provision.models.base.fields import Record, Text

APPLIED = "applied"
"""The GPUs are as the plan says."""
QUARANTINED = "quarantined"
"""The GPUs are as the plan says, except slices that can neither be finished nor destroyed."""
RESTORED = "restored"
"""The former layout is there again, after a failure or a rollback."""
UNRESTORED = "unrestored"
"""The GPUs are neither as the plan says nor as they were before."""
DECLINED = "declined"
"""Nothing was done, because the question before the run was answered with no."""


class RunOutcome(Record):
    """How a run on this machine's GPUs ended.

    ``outcome`` is one of the words above, and ``steps`` are the steps that were planned. ``failure`` says why the plan
    was not reached. ``quarantined`` has a line for every slice that is quarantined, and ``unrestored`` a line for
    everything that could not be restored. ``notes`` tell which instances of others stay, and what is to be done
    elsewhere.
    """

    outcome: Text
    steps: tuple[Step, ...] = ()
    failure: Text | None = None
    quarantined: tuple[Text, ...] = ()
    unrestored: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()


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
