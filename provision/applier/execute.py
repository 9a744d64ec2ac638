"""Carrying steps out, each announced in the journal before it is done; and putting a layout back after a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from provision.applier import changes, servers
from provision.applier.layout import CLIENTS, INSTANCES, PROCESSES, SliceLayout
from provision.applier.observe import foreign, observe
from provision.applier.steps import steps_between
from provision.instances.files.files import reason
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Record
from provision.models.base.known import known
from provision.models.hardware.gpu import WHOLE

if TYPE_CHECKING:
    from provision.applier.journal import Journal
    from provision.applier.layout import MachineLayout, Observed
    from provision.applier.nvml import Driver
    from provision.applier.services import Services
    from provision.applier.steps import Step

NEEDED = {
    "set_mig_mode": (INSTANCES, PROCESSES, CLIENTS),
    "create_instance": (INSTANCES,),
    "destroy_instance": (INSTANCES,),
    "create_compute": (INSTANCES,),
    "destroy_compute": (INSTANCES, PROCESSES, CLIENTS),
    "evict": (PROCESSES, CLIENTS),
}
"""What a driver must tell of a GPU before a step there; of its users nothing where they may be disturbed anyway.

An MPS daemon that is to stop knows its clients itself.
"""
ATTEMPTS = 2
"""Times that a layout is put back before what is missing is told."""


class Permissions(Record):
    """What a run may disturb: processes that are not the applier's own, MIG modes."""

    evict: Flag = False
    allow_mig_mode_change: Flag = False


class Executor:
    """Carries out steps one by one.

    Parameters
    ----------
    driver
        A Driver in use.
    services
        The Services of the state directory.
    journal
        The Journal of the same.
    permissions
        The Permissions.
    report
        Called with every step before it is done.
    """

    def __init__(
        self, driver: Driver, services: Services, journal: Journal, permissions: Permissions,
        report: Callable[[Step], None],
    ) -> None:
        self.driver, self.services, self.journal = driver, services, journal
        self.permissions, self.report = permissions, report

    def observe(self) -> Observed:
        """The present state."""
        return observe(self.driver, self.services)

    def check(self, steps: Sequence[Step], present: Observed) -> None:
        """Refuse steps that are not permitted or cannot be done here.

        Raises
        ------
        InputError
            Naming the GPU, what would be disturbed and the remedy.
        """
        for step in steps:
            self._check_known(step, present)
            if step.action == "start_mps":
                self.services.check_mps()
            if step.action == "evict" and not self.permissions.evict:
                raise InputError(f"{_place(step, present)} is in use: {step.text}? End its users or add --evict")
            if step.action == "set_mig_mode" and not self.permissions.allow_mig_mode_change:
                raise InputError(
                    f"{_place(step, present)}: a MIG mode differs or is pending: {step.text}? It may reset the GPU; "
                    "add --allow-mig-mode-change, or leave the GPU out with --gpus"
                )

    def _check_known(self, step: Step, present: Observed) -> None:
        """Refuse a step that needs to know what the driver does not tell."""
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
        """Carry out one step.

        Raises
        ------
        InputError
            When it cannot be done.
        """
        self.journal.write("step", action=step.action, gpu=step.gpu, text=step.text)
        self.report(step)
        try:
            getattr(self, f"_{step.action}")(step)
        except OSError as error:
            raise InputError(f"{self.services.state}: {reason(error)}; free space or correct its rights") from None

    def reach(self, target: MachineLayout, steps: Sequence[Step]) -> None:
        """Carry out the steps to a layout and check that it stands.

        Raises
        ------
        InputError
            For the first step that fails, or when the layout does not stand afterwards.
        """
        for step in steps:
            self.run(step)
        if left := steps_between(self.observe(), target):
            raise InputError(f"after the last step there is still to do: {left[0].text}; something else is at work")

    def restore(self, former: MachineLayout) -> list[str]:
        """Put a layout back as far as it goes; returns what could not be restored, as lines."""
        for _ in range(ATTEMPTS):
            problems = self._attempt(former)
            if not problems:
                break
        return problems

    def _attempt(self, former: MachineLayout) -> list[str]:
        problems, given_up = [], set()
        try:
            present = self.observe()
            for step in steps_between(present, former):
                if step.gpu not in given_up and (problem := self._problem(step, present)):
                    problems.append(problem)
                    given_up.add(step.gpu)
            left = steps_between(self.observe(), former)
        except InputError as error:
            return [*problems, str(error)]
        return [*problems, *(f"{_place(step, present)}: still to do: {step.text}" for step in left)] if left else []

    def _problem(self, step: Step, present: Observed) -> str | None:
        """Carry out a step; what went wrong, None when nothing did."""
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
        # Since the steps were planned a process may have ended and its id have become another's.
        _, processes = self.driver.devices(*step.place)
        there = {one.pid for one in processes}
        servers.evict([one.pid for one in step.clients if one.pid in there])

    def _remove_replica(self, step: Step) -> None:
        self.services.remove(self._device(step), known(step.replica))

    def _stop_mps(self, step: Step) -> None:
        self._check_idle(*step.place)
        self.services.daemon(self._device(step)).stop()

    def _destroy_compute(self, step: Step) -> None:
        self._check_idle(*step.place)
        changes.destroy_compute(self.driver, *step.place, known(step.compute))

    def _destroy_instance(self, step: Step) -> None:
        changes.destroy_instance(self.driver, *step.place)

    def _create_instance(self, step: Step) -> None:
        changes.create_instance(self.driver, *step.place)

    def _create_compute(self, step: Step) -> None:
        changes.create_compute(self.driver, *step.place, known(step.compute))
        changes.make_device_nodes()

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
        """Processes may have come since the steps were planned."""
        devices, processes = self.driver.devices(gpu, piece)
        for device in devices:
            mps_servers = self.services.daemon(device).servers() or ()
            if others := foreign(processes, mps_servers, self.services.sessions(device)):
                pids = ", ".join(f"{one.pid} {one.name}".strip() for one in others)
                raise InputError(f"{piece.label}: in use by process {pids}; end it, or apply with --evict")


def _place(step: Step, present: Observed) -> str:
    """GPU and slice in words."""
    if step.gpu is None:
        return "state directory"
    gpu = f"GPU {known(present.gpu(step.gpu)).index}"
    return f"{gpu}, {step.slice.label}" if step.slice else gpu
