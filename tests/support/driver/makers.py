"""Who made and who destroyed the MIG instances of the stand-in: every call of NVML is booked to its actor."""

import contextlib
import ctypes
import threading
from unittest import mock

import pynvml

CREATES = (
    "nvmlDeviceCreateGpuInstance", "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
)
DESTROYS = ("nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy")


class Makers:
    """The books: ``maker`` of every instance by its handle; ``taken``, who destroyed of whom what he may not.

    Calls on threads where nobody acts are those of ``other``, who may destroy what others made.
    """

    def __init__(self, other=None):
        self.maker, self.taken, self.other = {}, [], other
        self.here = threading.local()

    @contextlib.contextmanager
    def acting(self, actor, allowed=False):
        """Within, the calls of this thread are the actor's, who is or is not allowed to destroy what others made."""
        former = vars(self.here).copy()
        vars(self.here).update(actor=actor, allowed=allowed, changes=0)
        try:
            yield
        finally:
            vars(self.here).update({"actor": None} | former)

    @property
    def actor(self):
        return getattr(self.here, "actor", None) or self.other

    @property
    def changes(self):
        """How many instances the actor of this thread tried to make or destroy."""
        return self.here.changes

    def _change(self):
        self.here.changes = getattr(self.here, "changes", 0) + 1

    @contextlib.contextmanager
    def booking(self):
        """Within, calls are booked."""
        with contextlib.ExitStack() as patched:
            for name in CREATES:
                patched.enter_context(mock.patch.object(pynvml, name, self._creating(getattr(pynvml, name))))
            for name in DESTROYS:
                patched.enter_context(mock.patch.object(pynvml, name, self._destroying(getattr(pynvml, name))))
            yield self

    def _creating(self, real):
        def create(*arguments):
            self._change()
            handle = real(*arguments)
            self.maker[number(handle)] = self.actor
            return handle

        return create

    def _destroying(self, real):
        def destroy(handle):
            self._change()
            known = number(handle)
            done = real(handle)
            maker = self.maker.pop(known, None)
            if maker != self.actor and not getattr(self.here, "allowed", self.other):
                self.taken.append((maker, self.actor))
            return done

        return destroy


def number(handle):
    """A handle of NVML as a number, the same for the same instance."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def instance_number(gpu, row):
    """The handle that the stand-in gives a GPU instance, from a row of its state."""
    return 3 << 60 | gpu << 48 | row.id << 40 | row.serial
