"""Observes the present state: GPUs and instances from NVML, daemons and replicas from a state directory."""

from collections.abc import Collection, Iterable, Set

from provision.applier.driver.calls import epoch
from provision.applier.driver.nvml import Driver
from provision.applier.journal import Run
from provision.applier.layout import INSTANCES, Made, Observed, ObservedGpu, ObservedSlice, Process
from provision.applier.serving import processes
from provision.applier.serving.servers import Running, Sessions
from provision.applier.serving.services import Services
from provision.instances.files.files import reason
from provision.models.base.errors import InputError


def observe(driver: Driver, services: Services, last: Run | None = None, adopt: bool | None = None) -> Observed:
    """Observe the present state.

    Parameters
    ----------
    driver
        A Driver with an open session.
    services
        The Services of the state directory.
    last
        The last Run of the state directory. MIG instances that it does not record as made are foreign.
    adopt
        Whether instances of which nobody can tell whether they were made count as made; None if that is open.

    Raises
    ------
    InputError
        If the driver or a daemon does not answer, or if the state directory cannot be read.
    """
    try:
        running = services.running()
        kept = services.devices(running)
        gpus = tuple(
            _judged(gpu, _with_services(gpu, services, kept, running), driver, last, adopt) for gpu in driver.observe()
        )
        serving = {piece.device for gpu in gpus for piece in gpu.slices}
        leftovers = sorted(device for device in kept - serving if services.serves(device, running))
    except OSError as error:
        raise InputError(f"{services.state}: {reason(error)}; run as its owner or name another with --state") from None
    return Observed(gpus=gpus, leftovers=leftovers)


def standing(last: Run | None, present: Observed) -> tuple[Made, ...]:
    """The instances that the applier made and that still exist. On GPUs that cannot be observed, all in the journal
    count.
    """
    now = epoch()
    own = [_record(piece, gpu.uuid, now, last) for gpu in present.gpus for piece in gpu.slices
           if piece.enumerator is not None and not piece.foreign]
    untold = [made for made in last.owned if _untold(present.gpu(made.gpu))] if last else []
    return (*own, *untold)


def _record(piece: ObservedSlice, gpu: str, now: str, last: Run | None) -> Made:
    """The record of an own instance; the former one as long as it is open whether the instance is still the same."""
    former = last.made_at((gpu, *piece.key), now) if last and piece.unsure else None
    return former or piece.made(gpu, now)


def _untold(gpu: ObservedGpu | None) -> bool:
    return gpu is None or INSTANCES in gpu.unknown


def foreign(listed: Iterable[Process], mps_servers: Collection[int], sessions: Sessions) -> tuple[Process, ...]:
    """The processes on a device that are neither MPS servers nor replicas of the applier."""
    own = {session for replica in sessions.values() for session in replica.values()}
    others = [one.pid for one in listed if one.pid not in mps_servers and processes.session_of(one.pid) not in own]
    return tuple(Process(pid=pid, name=processes.name(pid)) for pid in others)


def _judged(listed: ObservedGpu, gpu: ObservedGpu, driver: Driver, last: Run | None, adopt: bool | None) -> ObservedGpu:
    """The GPU with its slices marked as foreign or not. ``listed`` has all processes, ``gpu`` those of others."""
    now = epoch()
    slices = []
    for every, piece in zip(listed.slices, gpu.slices, strict=True):
        place = gpu.uuid, *piece.key
        interrupted = last is not None and last.epoch == now and place in last.unsure
        made = last.made_at(place, now) if last else None
        served = len(piece.clients) < len(every.clients)
        judged = piece.judged(made, driver.stands(place), interrupted, served, adopt)
        if piece.enumerator is not None and not judged.foreign and not judged.unsure:
            driver.own(place)
        slices.append(judged)
    return gpu.model_copy(update={"slices": tuple(slices)})


def _with_services(gpu: ObservedGpu, services: Services, kept: Set[str], running: Running) -> ObservedGpu:
    slices = tuple(_piece(piece, services, kept, running.get(piece.device or "", {})) for piece in gpu.slices)
    return gpu.model_copy(update={"slices": slices})


def _piece(piece: ObservedSlice, services: Services, kept: Set[str], sessions: Sessions) -> ObservedSlice:
    if piece.device is None or piece.device not in kept:
        return piece.model_copy(update={"clients": foreign(piece.clients, (), {})})
    mps_servers, trouble = services.daemon(piece.device).looked_at()
    update = {
        "mps": mps_servers is not None,
        "trouble": trouble,
        "replicas": services.replicas(piece.device, sessions),
        "clients": foreign(piece.clients, mps_servers or (), sessions),
    }
    return piece.model_copy(update=update)
