"""Carries out steps. Each is announced in the journal before it is done. After a failure, the former layout is
restored.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from pynvml import NVML_ERROR_INSUFFICIENT_RESOURCES

from provision.applier.driver import changes
from provision.applier.driver.calls import DriverError, epoch, mark
from provision.applier.driver.nvml import Driver
from provision.applier.journal import Journal, JournalError, Run
from provision.applier.layout import (
    CLIENTS,
    INSTANCES,
    PROCESSES,
    Compute,
    MachineLayout,
    Made,
    Observed,
    ObservedSlice,
    Place,
    SliceLayout,
)
from provision.applier.match import fitted, room_for
from provision.applier.observe import foreign, observe
from provision.applier.serving import servers
from provision.applier.serving.services import Services
from provision.applier.steps import Step, broken, steps_between
from provision.applier.undo import WayBack, way_back
from provision.instances.files.files import reason
from provision.models.base.clock import Stop, end_if_asked, stopping
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Record
from provision.models.base.objects import known
from provision.models.hardware.gpu import WHOLE

NEEDED = {
    "set_mig_mode": (INSTANCES, PROCESSES, CLIENTS),
    "create_instance": (INSTANCES,),
    "destroy_instance": (INSTANCES,),
    "create_compute": (INSTANCES,),
    "destroy_compute": (INSTANCES, PROCESSES, CLIENTS),
    "evict": (PROCESSES, CLIENTS),
}
"""The facts that a driver must be able to tell about a GPU before an action is done there, by action.

Processes and clients need not be known if they may be disturbed anyway. To stop an MPS daemon, the driver need not know
the daemon's clients, because the daemon itself does.
"""
ATTEMPTS = 2
"""The number of attempts to restore a layout before the rest is reported as not restored."""


class Permissions(Record):
    """What a run may disturb. Processes and MIG instances are foreign if the applier did not start or make them.

    ``evict`` allows it to end processes that are in the way, ``evict_foreign`` to remove foreign MIG instances, and
    ``allow_mig_mode_change`` to change MIG modes.

    ``adopt`` says whether foreign instances of the plan's profiles and starts may be taken over, and slices with
    foreign processes shared. Instances of which nobody can tell whether the applier made them, because a run was cut
    off or the driver reuses UUIDs, count as made by it if ``adopt`` is true, and as foreign if it is false. If it
    is None, a run that concerns such an instance is refused.
    """

    evict: Flag = False
    evict_foreign: Flag = False
    allow_mig_mode_change: Flag = False
    adopt: Flag | None = None


class PutBack(NamedTuple):
    """The result of putting a layout back.

    ``problems`` says what could not be undone, and ``kept`` what others made and stays. ``present`` is the observed
    state; None if something could not be undone or could not be observed.
    """

    problems: list[str]
    kept: tuple[str, ...]
    present: Observed | None = None


class Executor:
    """Carries out steps one by one.

    Parameters
    ----------
    driver
        A Driver with an open session.
    services
        The Services of the state directory.
    journal
        The Journal of the state directory.
    permissions
        The Permissions.
    report
        Called with every step before it is done.
    """

    def __init__(self, driver: Driver, services: Services, journal: Journal, permissions: Permissions,
                 report: Callable[[Step], None]) -> None:
        self.driver, self.services, self.journal = driver, services, journal
        self.permissions, self.report = permissions, report

    def observe(self) -> Observed:
        """Observe the present state."""
        return observe(self.driver, self.services, self.journal.last(), self.permissions.adopt)

    def check(self, steps: Sequence[Step], present: Observed) -> None:
        """Refuse steps that are not permitted or cannot be done here. Raises InputError if a step is refused. The
        message names the GPU, what would be disturbed, and the remedy.
        """
        for step in steps:
            self._check_known(step, present)
            if step.action == "start_mps":
                self.services.check_mps()
            if (step.foreign or step.action == "adopt") and (refusal := self._refusal(step, steps, present)):
                raise InputError(f"{_place(step, present)}{refusal}")
            if step.action == "evict" and not self.permissions.evict:
                raise InputError(f"{_place(step, present)} is in use: {step.text}? End its users or add --evict")
            if step.action == "set_mig_mode" and not self.permissions.allow_mig_mode_change:
                raise InputError(
                    f"{_place(step, present)}: a MIG mode differs or is pending: {step.text}? It may reset the GPU; "
                    "add --allow-mig-mode-change, or leave the GPU out with --gpus"
                )

    def _refusal(self, step: Step, steps: Sequence[Step], present: Observed) -> str | None:
        """Why a step may not destroy or use what others made or use; None if it may."""
        if step.foreign and known(step.observed).unsure:
            return f": {step.text}? Add --adopt if provision did, or --no-adopt if something else did"
        if step.action != "adopt":
            room = room_for(known(step.slice), known(present.gpu(known(step.gpu))), steps)
            return None if self.permissions.evict_foreign else (
                f" was made by something else and stands in the way: {step.text}? Leave the GPU out with --gpus or add "
                f"--evict-foreign{room}"
            )
        taking = f": {step.text}? Leave the GPU out with --gpus, or add --adopt to take it over"
        return None if self.permissions.adopt else taking

    def _check_known(self, step: Step, present: Observed) -> None:
        """Refuse a step that needs information which the driver does not give."""
        unknown = known(present.gpu(step.gpu)).unknown if step.gpu else ()
        missing = [name for name in NEEDED.get(step.action, ()) if name in unknown]
        if INSTANCES in missing:
            raise InputError(
                f"{_place(step, present)}: {step.text}? Its driver does not tell which MIG instances there are; use "
                "another driver, or leave the GPU out with --gpus"
            )
        if missing and not self.permissions.evict:
            raise InputError(
                f"{_place(step, present)}: {step.text}? Its driver does not tell which {' and '.join(missing)} there "
                "are; make sure that none are and add --evict, or leave the GPU out with --gpus"
            )

    def run(self, step: Step) -> None:
        """Carry out one step. A step that has begun is finished although a Stop is asked for. Raises InputError if the
        step cannot be done, and KeyboardInterrupt if a Stop was asked for before it begins.
        """
        end_if_asked()
        self.journal.write("step", action=step.action, gpu=step.gpu, text=step.text, place=_spot(step))
        self.report(step)
        try:
            with stopping(Stop()):
                getattr(self, f"_{step.action}")(step)
        except OSError as error:
            raise InputError(f"{self.services.state}: {reason(error)}; free space or correct its rights") from None

    def reach(self, target: MachineLayout, steps: Sequence[Step]) -> tuple[list[str], Observed]:
        """Carry out the steps to a layout, and check that the GPUs then have it.

        Suppose that the GPU instance of a slice is created, but its compute instance cannot be created, and the GPU
        instance cannot be destroyed either. Then the slice is quarantined: the other steps are carried out without it.

        Returns
        -------
        list of str
            A line for every slice that is quarantined.
        Observed
            The state afterwards.

        Raises
        ------
        InputError
            If a step fails, or if the GPUs do not have the layout afterwards.
        """
        quarantined: dict[Place, str] = {}
        for step in steps:
            if _spot(step) in quarantined:
                continue
            try:
                self.run(step)
            except JournalError:
                raise
            except InputError as error:
                if step.action != "create_compute" or not (stuck := self._stuck(step)):
                    raise
                quarantined[known(_spot(step))] = f"{_place(step, self.observe())}: {error}; {stuck}"
        present = self.observe()
        left = [step for step in steps_between(present, fitted(target, present)) if _spot(step) not in quarantined]
        if left:
            raise InputError(f"after the last step there is still to do: {left[0].text}; something else is at work")
        return list(quarantined.values()), present

    def _stuck(self, step: Step) -> str | None:
        """Remove a slice whose compute instance could not be created. Return the error; None if the slice is gone, or
        its removal was not tried.
        """
        if self.driver.call.hung:
            return None
        uuid, wanted = step.place
        try:
            here = known(self.observe().gpu(uuid))
            found = next((piece for piece in here.slices if piece.key == wanted.key), None)
            if found is None or found.strange:
                return None
            for undo in broken(here, found):
                self.run(undo)
        except JournalError:
            raise
        except InputError as error:
            return None if self.driver.call.hung else str(error)
        return None

    def restore(self, run: Run) -> PutBack:
        """Undo what a run changed, as far as that is possible."""
        for _ in range(ATTEMPTS):
            back = self._attempt(run)
            if not back.problems:
                break
        return back

    def _attempt(self, run: Run) -> PutBack:
        problems, given_up = [], set()
        kept: tuple[str, ...] = ()
        try:
            present = self.observe()
            for step in steps_between(present, self._back(present, run).layout):
                if step.gpu not in given_up and (problem := self._problem(step, present)):
                    problems.append(problem)
                    given_up.add(step.gpu)
            present = self.observe()
            back = self._back(present, run)
            left, kept = steps_between(present, back.layout), back.kept
        except InputError as error:
            return PutBack([*problems, str(error)], kept)
        undone = [f"{_place(step, present)}: still to do: {step.text}" for step in left]
        unsolved = [*back.obstacles, *(problems if left else ()), *undone]
        return PutBack(unsolved, kept, None if unsolved else present)

    def _back(self, present: Observed, run: Run) -> WayBack:
        """The way back from a run, given all that the journal has recorded of it."""
        return way_back(present, self.journal.last() or run, self.permissions.evict_foreign and run.verb == "rollback")

    def _problem(self, step: Step, present: Observed) -> str | None:
        """Carry out a step; return what went wrong, or None."""
        try:
            self.check([step], present)
            self.run(step)
        except InputError as error:
            return f"{_place(step, present)}: {step.text}: {error}"
        return None

    def _clear_leftovers(self, step: Step) -> None:
        self.services.clear(known(step.device))

    def _set_mig_mode(self, step: Step) -> None:
        uuid, enabled = known(step.gpu), known(step.mig)
        if enabled:
            self._check_idle(uuid, SliceLayout(profile=WHOLE))
        changes.set_mig_mode(self.driver, uuid, enabled)

    def _evict(self, step: Step) -> None:
        # Since the steps were planned, a process may have ended, and another process may now have its id.
        _, processes = self.driver.devices(*step.place)
        there = {one.pid for one in processes}
        servers.evict([one.pid for one in step.clients if one.pid in there])

    def _remove_replica(self, step: Step) -> None:
        self.services.remove(self._device(step), known(step.replica))

    def _stop_mps(self, step: Step) -> None:
        self._check_idle(*step.place)
        self.services.daemon(self._device(step)).stop()

    def _adopt(self, step: Step) -> None:
        uuid, piece = step.place
        if not step.foreign:
            return
        seen = known(step.observed).model_copy(update={"foreign_computes": ()})
        self.driver.own((uuid, *piece.key))
        self.journal.write("adopted", made=seen.made(uuid, epoch()).model_dump(mode="json"))

    def _destroy_compute(self, step: Step) -> None:
        self._check_idle(*step.place)
        changes.destroy_compute(self.driver, *step.place, known(step.compute))

    def _destroy_instance(self, step: Step) -> None:
        changes.destroy_instance(self.driver, *step.place, step.observed.instance if step.observed else None)
        self.journal.write("gone", place=_spot(step))

    def _create_instance(self, step: Step) -> None:
        uuid, piece = step.place
        try:
            self._record(uuid, piece, changes.create_instance(self.driver, uuid, piece))
        except InputError as error:
            if isinstance(error, DriverError) and error.code == NVML_ERROR_INSUFFICIENT_RESOURCES:
                # If an instance is there, this call has not created it.
                self.journal.write("gone", place=_spot(step))
                raise InputError(f"{error}{room_for(piece, known(self.observe().gpu(uuid)), ())}") from None
            # If this look fails too, the journal leaves open what stands there, and the user is asked.
            with contextlib.suppress(InputError):
                self._look_after(step)
            raise

    def _look_after(self, step: Step) -> None:
        """After a failed creation of an instance, record whether the driver has created it all the same."""
        uuid, piece = step.place
        if not self.driver.listed((uuid, *piece.key)):
            self.journal.write("gone", place=_spot(step))
            return
        handle, identity, _ = self.driver.find(uuid, piece)
        self.driver.own((uuid, *piece.key), handle)
        self._record(uuid, piece, identity)

    def _create_compute(self, step: Step) -> None:
        uuid, piece = step.place
        compute = known(step.compute)
        try:
            self._record_compute(uuid, piece, changes.create_compute(self.driver, uuid, piece, compute))
        except InputError:
            with contextlib.suppress(InputError):  # as for instances
                if made := changes.created_compute(self.driver, uuid, piece, compute):
                    self._record_compute(uuid, piece, made)
            raise
        changes.make_device_nodes()

    def _record_compute(self, uuid: str, piece: SliceLayout, made: tuple[str, Compute]) -> None:
        """Record in the journal that a compute instance was created in an instance of the applier."""
        last = self.journal.last()
        before = last.made_at((uuid, *piece.key), epoch()) if last else None
        if before:
            self._record(uuid, piece, before.instance, {*before.parts, made})

    def _record(self, uuid: str, piece: SliceLayout, instance: int | None,
                parts: Collection[tuple[str, Compute]] = ()) -> None:
        """Record in the journal that an instance was created and has been seen, with the compute instances in it."""
        ordered = sorted(parts, key=lambda part: part[1].start)
        made = Made(
            gpu=uuid, enumerator=piece.enumerator, start=piece.start, instance=instance, epoch=epoch(),
            devices=tuple(device for device, _ in ordered), computes=tuple(compute for _, compute in ordered),
            mark=mark(self.driver.call, self.driver.handle(uuid), instance),
        )
        self.journal.write("made", made=made.model_dump(mode="json"))

    def _start_mps(self, step: Step) -> None:
        device = self._device(step)
        self.services.daemon(device).start(device)

    def _add_replica(self, step: Step) -> None:
        self.services.add(self._device(step), known(step.replica), known(step.slice))

    def _device(self, step: Step) -> str:
        devices, _ = self.driver.devices(*step.place)
        if len(devices) != 1:
            label = known(step.slice).label
            raise InputError(f"{label}: has {len(devices)} CUDA devices, not one; something else changes it")
        return devices[0]

    def _check_idle(self, gpu: str, piece: SliceLayout) -> None:
        """Refuse a slice that now has other processes or compute instances than when the steps were planned."""
        devices, processes = self.driver.devices(gpu, piece)
        if isinstance(piece, ObservedSlice) and not set(devices) <= set(piece.devices):
            raise InputError(f"{piece.label}: has other compute instances by now: something else changes this GPU")
        for device in devices:
            mps_servers, _ = self.services.daemon(device).looked_at()
            if others := foreign(processes, mps_servers or (), self.services.sessions(device)):
                pids = ", ".join(f"{one.pid} {one.name}".strip() for one in others)
                raise InputError(f"{piece.label}: in use by process {pids}; end it, or apply with --evict")


def _spot(step: Step) -> Place | None:
    """The GPU, enumerator and start of the slice that a step changes; None for other steps."""
    return (step.gpu, *step.slice.key) if step.gpu and step.slice else None


def _place(step: Step, present: Observed) -> str:
    """The GPU and the slice of a step, as text for messages."""
    if step.gpu is None:
        return "state directory"
    gpu = f"GPU {known(present.gpu(step.gpu)).index}"
    return f"{gpu}, {step.slice.label}" if step.slice else gpu
