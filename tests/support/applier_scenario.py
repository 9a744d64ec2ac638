"""GPUs for the applier's tests: a node whose layout can be put back, two plans for it, and what stands on it."""

import os
import shutil

from driver import Node

from provision.applier import apply
from provision.models.hardware.gpu import gpu_type
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

KIND = "a100-80gb"
PLANNED = ("0", "1", "2", "3")


def plan(*gpus, kind=KIND):
    """A plan whose GPUs are given as lists of (profile, start, {workload: processes})."""
    return Plan(
        version=1,
        instance="scenario",
        gpus=[{"gpu": kind, "mig": True, "slices": [_slice(*piece) for piece in gpu]} for gpu in gpus],
    )


def _slice(profile, start, replicas=None):
    return {
        "profile": profile,
        "start": start,
        "replicas": [
            {"workload": workload, "batch": 4, "processes": processes, "rate_rps": 10.0}
            for workload, processes in (replicas or {}).items()
        ],
    }


def instance_of(planned):
    """An instance for which a plan holds, whose replicas have their slices to themselves."""
    points, rates = {}, {}
    for _, _, piece, replica in planned.replicas():
        points.setdefault(replica.workload, set()).add((piece.profile, replica.batch, replica.processes, 100.0, 10.0))
        rates[replica.workload] = rates.get(replica.workload, 0.0) + replica.rate_rps
    return Instance(
        version=1, name=planned.instance, fleet=[{"gpu": planned.gpus[0].gpu, "price_per_hour": 1.0}],
        policy={"latency_budget": "half_slo"},
        workloads=[{"name": name, "model": name, "slo_ms": 500.0, "rate_rps": rate} for name, rate in rates.items()],
        performance={
            "version": 1, "name": "table", "kind": "measured-segments", "gpu": planned.gpus[0].gpu,
            "models": {name: {"points": sorted(found)} for name, found in points.items()},
        },
    )


FORMER = plan(
    [("3g.40gb", 0, {"vision": 1}), ("3g.40gb", 4, {"text": 2})],
    [("2g.20gb", 0, {"speech": 1}), ("1g.10gb", 6)],
    [("4g.40gb", 0, {"search": 1})],
    [],
)
TARGET = plan(
    [("4g.40gb", 0, {"vision": 1}), ("3g.40gb", 4, {"text": 2})],
    [("1g.10gb", 0, {"speech": 1}), ("2g.20gb", 2, {"speech": 1}), ("1g.10gb", 6)],
    [("4g.40gb", 0, {"search": 1}), ("2g.20gb", 4, {"vision": 1, "text": 1})],
    [("2g.20gb", 2)],
)


class Scenario:
    """Five A100s: four for the plans, of which one slice that stays is busy, and a busy one beside the plans."""

    def __init__(self, folder):
        self.folder, self.saved = folder / "now", folder / "saved"
        self.node, self.state = Node(self.folder / "node", [KIND] * 5, mig=True), self.folder / "s"
        with self.node.loaded():
            apply(plan([("3g.40gb", 4)]), self.folder / "other", gpus=["4"])
            apply(FORMER, self.state, gpus=PLANNED)
        busy = (self._device("4g.40gb"), self.node.instances(4)[0].devices[0][0])
        self.clients = {self.node.start_process(device) for device in busy}
        self.former = self.standing()
        shutil.copytree(self.folder, self.saved)

    def put_back(self):
        """Everything as it was, the record of calls included."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder)

    def apply(self, permissions=None):
        """Apply the target plan in this process, which has met the node."""
        return apply(TARGET, self.state, gpus=PLANNED, permissions=permissions)

    def standing(self):
        """Instances, daemons and environments, without what changes when an instance is made again."""
        return standing(self.node, self.state)

    def _device(self, profile):
        wanted = gpu_type(KIND).profiles[profile].profile_id
        found = (one for gpu in range(4) for one in self.node.instances(gpu) if one.profile_id == wanted)
        return next(found).devices[0][0]


def in_child(act):
    """How a child process that acts ends: its exit code, the number of the signal below zero."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def standing(node, state):
    """Per slice what is on it: (GPU, profile id, start) to compute instances, daemon and environments."""
    daemons = {daemon.device for daemon in node.daemons().values()}
    return {
        (gpu, one.profile_id, one.start): (
            tuple(profile for _, profile in one.devices),
            tuple(device in daemons for device, _ in one.devices),
            tuple(_environments(state, device) for device, _ in one.devices),
        )
        for gpu in range(len(node.gpus))
        for one in node.instances(gpu)
    }


def _environments(state, device):
    files = sorted((state / "slices" / device).glob("replica-*.env"))
    return tuple(
        tuple(line for line in path.read_text().splitlines() if device not in line) for path in files
    )


def places(node, gpu=0):
    """(profile id, start) of the instances of a GPU."""
    return [(one.profile_id, one.start) for one in node.instances(gpu)]
