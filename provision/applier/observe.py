"""The present state: GPUs and instances from NVML, daemons and replicas from a state directory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import TYPE_CHECKING

from provision.applier import servers
from provision.applier.layout import Observed, Process
from provision.instances.files.files import reason
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.applier.layout import ObservedGpu, ObservedSlice
    from provision.applier.nvml import Driver
    from provision.applier.servers import Running, Sessions
    from provision.applier.services import Services


def observe(driver: Driver, services: Services) -> Observed:
    """The present state.

    Parameters
    ----------
    driver
        A Driver in use.
    services
        The Services of the state directory.

    Raises
    ------
    InputError
        When the driver or a daemon does not answer, or the state directory cannot be read.
    """
    try:
        return _observe(driver, services)
    except OSError as error:
        raise InputError(f"{services.state}: {reason(error)}; run as its owner or name another with --state") from None


def _observe(driver: Driver, services: Services) -> Observed:
    running = services.running()
    kept = services.devices(running)
    gpus = tuple(_with_services(gpu, services, kept, running) for gpu in driver.observe())
    serving = {piece.device for gpu in gpus for piece in gpu.slices}
    leftovers = sorted(device for device in kept - serving if services.serves(device, running))
    return Observed(gpus=gpus, leftovers=leftovers)


def foreign(processes: Iterable[Process], mps_servers: Collection[int], sessions: Sessions) -> tuple[Process, ...]:
    """The processes on a device that the applier did not start: neither its MPS servers nor its replicas."""
    own = {session for replica in sessions.values() for session in replica.values()}
    others = [one.pid for one in processes if one.pid not in mps_servers and servers.session(one.pid) not in own]
    return tuple(Process(pid=pid, name=servers.name(pid)) for pid in others)


def _with_services(gpu: ObservedGpu, services: Services, kept: Set[str], running: Running) -> ObservedGpu:
    slices = tuple(_piece(piece, services, kept, running.get(piece.device or "", {})) for piece in gpu.slices)
    return gpu.model_copy(update={"slices": slices})


def _piece(piece: ObservedSlice, services: Services, kept: Set[str], sessions: Sessions) -> ObservedSlice:
    if piece.device is None or piece.device not in kept:
        return piece.model_copy(update={"clients": foreign(piece.clients, (), {})})
    mps_servers = services.daemon(piece.device).servers()
    update = {
        "mps": mps_servers is not None,
        "replicas": services.replicas(piece.device, sessions),
        "clients": foreign(piece.clients, mps_servers or (), sessions),
    }
    return piece.model_copy(update=update)
