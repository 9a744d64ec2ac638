"""``provision import kubernetes`` and ``import gpus``: the state of a cluster, or of this machine, as a file."""

import socket
from collections import Counter
from collections.abc import Mapping, Sequence

from provision.applier.cluster.wanted import check_objects
from provision.applier.layout import Observed, ObservedGpu, ObservedSlice
from provision.cluster.assemble import assembled
from provision.cluster.devices import Device, Gpu, Pod
from provision.cluster.kubernetes import Found, found_in
from provision.cluster.metrics import WINDOW_S, Measured, measured, metrics_table
from provision.cluster.objects import Object, objects_in, objects_live
from provision.cluster.state import State, Values
from provision.instances.files.files import FilePath
from provision.instances.importers.importer import Imported, Importer, Source
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Positive
from provision.models.hardware.gpu import WHOLE, type_of

TOLD = 8
"""The most questions and notes that are printed one by one."""


def read_kubernetes(path: FilePath | None = None, context: str | None = None, prometheus: str | None = None,
                    metrics: FilePath | None = None, window_s: float = WINDOW_S, given: Mapping[str, str] | None = None,
                    performance: Sequence[FilePath] = (), name: str = "cluster") -> State:
    """Read the state of a Kubernetes cluster.

    Parameters
    ----------
    path
        A file with the cluster's objects, as ``kubectl get nodes,pods,replicasets,... -A -o json`` writes it; None to
        ask the cluster itself.
    context
        The context of the kubeconfig, if the cluster is asked.
    prometheus
        The address of a Prometheus server with the metrics of servers and GPUs; None for none.
    metrics
        A file with further rows of the table of metrics.
    window_s
        The seconds over which rates and latencies are taken.
    given
        Values by name, which take precedence over everything that is read.
    performance
        Files or names of performance data, used before those that ship for the GPUs.
    name
        The name of the state.

    Raises
    ------
    InputError
        If the cluster or the server cannot be read, or nothing that runs can be planned.
    """
    values, told, notes = Values(given or {}), _metrics(prometheus, metrics, window_s), list[str]()
    objects = objects_live(context, notes) if path is None else objects_in(path)
    check_objects(objects, path or "the cluster")
    found = found_in(objects, told.gpus if told else (), values)
    found.notes += notes
    return assembled(name, found, told, values, f"kubernetes {path or context or 'live'}", performance)


def read_machine(state: FilePath | None = None, prometheus: str | None = None, metrics: FilePath | None = None,
                 window_s: float = WINDOW_S, given: Mapping[str, str] | None = None,
                 performance: Sequence[FilePath] = (), name: str = "machine") -> State:
    """Read the state of this machine's GPUs: MIG instances, MPS daemons, servers of ``provision apply``, processes.

    ``state`` is the state directory of the applier; the other parameters are those of ``read_kubernetes``. Raises
    InputError if the driver does not answer, or nothing that runs can be planned.
    """
    from provision.applier.operations import default_state, status  # needs NVML's binding, which is optional

    values, told = Values(given or {}), _metrics(prometheus, metrics, window_s)
    observed, _ = status(state or default_state())
    return assembled(name, machine_found(observed), told, values, "NVML and the state directory", performance)


def _metrics(prometheus: str | None, metrics: FilePath | None, window_s: float) -> Measured | None:
    """What Prometheus tells; None without it."""
    if metrics is not None and prometheus is None:
        raise InputError("--metrics: is for --prometheus URL; add that or leave it out")
    return measured(prometheus, metrics_table(metrics), window_s) if prometheus else None


def machine_found(observed: Observed) -> Found:
    """The GPUs and server processes of a machine."""
    notes: list[str] = []
    gpus, pods = [], []
    for one in observed.gpus:
        kind = type_of(one.product)
        if kind is None:
            notes.append(f"GPU {one.index}: no GPU type is called {one.product!r}; add one with provision gpus --add "
                         "FILE; it is left out")
            continue
        names = {profile.nvml_profile: profile.name for profile in kind.profiles.values()}
        devices = []
        for piece in one.slices:
            profile = WHOLE if piece.enumerator is None else names.get(piece.enumerator, piece.profile)
            seated = _processes(one, piece)
            pods += seated
            devices.append(Device(profile, piece.start, pods=seated, most=max(len(seated), 1)))
        mps = any(piece.mps for piece in one.slices)
        gpus.append(Gpu(socket.gethostname(), one.index, kind, one.mig, devices, one.uuid, "mps" if mps else "none"))
    if not gpus:
        raise InputError(*(notes or ["this machine has no GPU; see nvidia-smi"]))
    return Found(gpus, pods, notes)


def _processes(gpu: ObservedGpu, piece: ObservedSlice) -> list[Pod]:
    """The replicas of the applier on a slice, and the other processes, as pods of this machine."""
    host = socket.gethostname()
    found = []
    for number, replica in enumerate(one for one in piece.replicas if one):
        environment = [{"name": name, "value": value} for name, value in replica.environment.items()]
        containers: list[Object] = [{"env": environment}] * max(replica.running, 1)
        found.append(Pod(host, f"{gpu.index}-{piece.start}-{number}", host, "provision", containers, {}, Counter(), []))
    for process in piece.clients:
        found.append(Pod(host, f"{process.pid}", host, process.name or f"pid-{process.pid}", [{"env": []}], {},
                         Counter(), []))
    return found


class OfRunning(Source):
    """Base of what runs: where further facts come from."""

    name: str = local("cluster", "N", "the name of the state")
    prometheus: str | None = local(None, "URL", "read rates, latencies and GPU use from this server")
    metrics: str | None = local(None, "FILE", "rows for the table of metric names")
    window_s: Positive = local(float(WINDOW_S), "S", "seconds over which rates are taken")
    values: dict[str, str] = local({}, "NAME=VALUE", "a value, or the answer to a question, such as "
                                                     "slo_ms.shop/search=200", "--set")
    performance: tuple[str, ...] = local(
        (), "FILE", "performance data of yours, used before the data that ships", action="append")

    @property
    def further(self) -> tuple[str | None, str | None, float, Mapping[str, str], Sequence[str], str]:
        """The fields in the order of the functions' parameters."""
        return self.prometheus, self.metrics, self.window_s, self.values, self.performance, self.name


class OfKubernetes(OfRunning):
    """A Kubernetes cluster."""

    path: str | None = operand("FILE", "objects as kubectl get -o json writes them", None, nargs="?")
    live: Flag = local(False, None, "ask the cluster of the kubeconfig")
    context: str | None = local(None, "C", "a context of the kubeconfig")

    def read(self) -> Imported:
        """Read a file, or ask the cluster."""
        if (self.path is None) != self.live:
            raise InputError("import kubernetes: give a file of kubectl get -o json, or --live, and not both")
        if self.context and not self.live:
            raise InputError("--context: is for --live; leave it out")
        return _told(read_kubernetes(self.path, self.context, *self.further))


class OfMachine(OfRunning):
    """This machine."""

    name: str = local("machine", "N", "the name of the state")
    state: str | None = local(None, "DIR", "the applier's state directory")

    def read(self) -> Imported:
        """Ask the driver."""
        return _told(read_machine(self.state, *self.further))


def _told(state: State) -> Imported:
    """The state with what is printed of it: what runs, the questions, and what was left out."""
    kept = sum(1 for gpu in state.gpus if gpu.stays)
    lines = [f"{len(state.gpus)} GPUs with {len(state.instance.workloads)} workloads that can be planned"
             + (f"; {kept} GPUs stay as they are" if kept else "")]
    lines += [f"{one.question} Taken: {one.default} ({one.because}); --set {one.name}=VALUE says otherwise."
              for one in state.questions[:TOLD]]
    if len(state.questions) > TOLD:
        lines.append(f"And {len(state.questions) - TOLD} more questions, which the file lists.")
    return Imported(state, tuple(lines), state.notes)


KUBERNETES = Importer("the running state of a Kubernetes cluster", OfKubernetes)
GPUS = Importer("the running state of this machine's GPUs", OfMachine)
