"""NVML calls with a deadline: each ends with a result, or with an error of one line that says what to do. A mark tells
a MIG instance from a later one: the start of the driver, which none outlives, and its entry in /proc.
"""

import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pynvml

from provision.models.base.clock import present_stop
from provision.models.base.errors import InputError

LIMIT_S = 120.0
"""The seconds that a call may take. A healthy driver answers within a few, even when it resets a GPU."""
LOOK_S, STOPPED_S = 0.1, 5.0
"""The seconds between two looks at the Stop while a call is under way, and those that the call may go on after it."""

REMEDIES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install NVIDIA's driver; libnvidia-ml.so.1 is not found",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load NVIDIA's driver (modprobe nvidia) and look at dmesg if it refuses",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the library and the loaded driver are of different versions; reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "run as root, or give this user read access to the capability mig/config",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old for this; update it",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "this GPU, driver or virtual machine cannot do it; leave the GPU out (--gpus)",
    pynvml.NVML_ERROR_IN_USE: "end what uses it; provision status lists the processes",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "something else stands there; see provision status",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset the GPU (nvidia-smi --gpu-reset) or reboot",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU has fallen off the bus; reboot",
}
NAMES = {
    code: name.removeprefix("NVML_ERROR_").lower().replace("_", " ")
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}
BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The file with the id of this boot of the machine."""
MODULE = Path("/sys/module/nvidia")
"""The folder of the kernel's module. Linux gives it a new inode number, never used before, when the module is loaded.
"""
CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
"""The folder in which the driver's kernel module has a folder for every MIG instance."""


class DriverError(InputError):
    """Raised when NVML refuses a call. ``code`` is its error code."""

    def __init__(self, function: str, code: int) -> None:
        remedy = REMEDIES.get(code, "try again, and look at dmesg for lines with Xid if it stays")
        super().__init__(f"{function}: {NAMES.get(code, 'error')} (NVML error {code}): {remedy}")
        self.code = code


class Calls:
    """Makes calls one after another on a separate thread, so that a call that never returns can be detected."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[Any] = SimpleQueue()
        self.hung: str | None = None
        self.waiting = False
        """Whether a call is under way. Afterwards, whether it was left before its answer."""
        self.stop = present_stop()
        threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, function: str, *arguments: Any) -> Any:
        """The result of ``pynvml.function(*arguments)``.

        Raises
        ------
        DriverError
            If NVML refuses the call.
        InputError
            If this call or an earlier one was not answered within LIMIT_S. Whether it was carried out is unknown, and
            no further call is made.
        KeyboardInterrupt
            If it is not answered and a Stop was asked for STOPPED_S ago.
        """
        if not self.hung:
            # Every call has its own queue. If a call was left, its answer must not reach a later call.
            answer: SimpleQueue[Any] = SimpleQueue()
            self.asked.put((function, arguments, answer))
            self.waiting = True
            try:
                result, error = self._answered(answer)
            except Empty:
                self.hung = function
            self.waiting = False
        if self.hung:
            raise InputError(
                f"{self.hung}: NVML has not answered for {LIMIT_S:g} s, so nothing more is tried; when the driver is "
                "well again (see dmesg), provision apply goes on and provision rollback goes back"
            )
        if isinstance(error, pynvml.NVMLError):
            raise DriverError(function, error.value) from None
        if error is not None:
            raise error
        return result

    def _answered(self, answer: SimpleQueue[Any]) -> Any:
        """Wait for an answer; raises Empty if none comes within LIMIT_S."""
        waited_s = asked_s = 0.0
        while waited_s < LIMIT_S:
            with suppress(Empty):
                return answer.get(timeout=LOOK_S)
            waited_s, asked_s = waited_s + LOOK_S, asked_s + LOOK_S * self.stop.asked
            if asked_s > STOPPED_S:
                raise KeyboardInterrupt
        raise Empty

    def end(self) -> None:
        """End the thread."""
        self.asked.put(None)

    def _work(self) -> None:
        while (asked := self.asked.get()) is not None:
            function, arguments, answer = asked
            try:
                answer.put((getattr(pynvml, function)(*arguments), None))
            except Exception as error:
                answer.put((None, error))


def epoch() -> str:
    """A text that is the same as long as the driver was not started anew."""
    module = MODULE.stat().st_ino if MODULE.exists() else 0
    return f"{BOOT.read_text().strip()} {module}"


def mark(call: Calls, gpu: Any, instance: int | None) -> str:
    """A text that changes when a GPU instance of a GPU, or a compute instance in it, is made again; empty if unknown.

    Linux dates the entries of /proc when it first looks them up. It may forget them when memory is short, and date them
    again. So a text that is the same proves that the instance is, and one that differs proves nothing.
    """
    if instance is None or not CAPABILITIES.is_dir():
        return ""
    try:
        minor = call("nvmlDeviceGetMinorNumber", gpu)
        folder = CAPABILITIES / f"gpu{minor}/mig/gi{instance}"
        dated = [(path.name, path.stat()) for path in (folder, *sorted(folder.glob("ci*")))]
    except (DriverError, OSError):
        return ""
    return " ".join(f"{name}:{about.st_ino}:{about.st_ctime_ns}" for name, about in dated)
