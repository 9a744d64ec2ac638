"""The scenarios of ``benchmarks/scenarios.yaml``, played on the driver that pynvml has loaded: stand-in or mock."""

import contextlib
import ctypes
import re
import threading
from pathlib import Path
from unittest import mock

import pynvml
import yaml
from applier_scenario import plan

from provision.applier import Permissions, apply, status
from provision.applier.driver import calls, changes, nvml
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan, PlannedGpu

PATH = Path(__file__).resolve().parents[3] / "benchmarks/scenarios.yaml"
SCENES = yaml.safe_load(PATH.read_text())
PATIENCE_S = 0.3
"""How long a call may hang, and what a driver says may be waited for."""


def planned(gpus, kind):
    """A plan of the GPUs that a scenario lists; None is a GPU with MIG off."""
    made = [PlannedGpu(gpu=kind, mig=False, slices=()) if one is None else plan(one, kind=kind).gpus[0] for one in gpus]
    return Plan(version=1, instance="scenario", gpus=tuple(made))


class Faults:
    """Calls of NVML that go wrong in this process, by the rules of the file."""

    def __init__(self, faults):
        self.faults, self.counts = faults, {}
        self.free = threading.Event()

    @contextlib.contextmanager
    def striking(self):
        """Within, the calls go wrong; one that hangs comes back afterwards, undone."""
        with contextlib.ExitStack() as patched:
            for name in {fault["call"] for fault in self.faults}:
                patched.enter_context(mock.patch.object(pynvml, name, self._faulty(name, getattr(pynvml, name))))
            try:
                yield
            finally:
                self.free.set()

    def _faulty(self, name, real):
        def call(*arguments):
            number = self.counts[name] = self.counts.get(name, 0) + 1
            for fault in self.faults:
                first = fault.get("number", 1)
                if fault["call"] == name and first <= number < first + fault.get("count", 1):
                    return self._strike(fault, real, arguments)
            return real(*arguments)

        return call

    def _strike(self, fault, real, arguments):
        if fault["kind"] == "pretend":
            return fault.get("result")
        if fault["kind"] == "hang":
            self.free.wait()
            return None
        if fault["kind"] == "after":
            real(*arguments)
        raise pynvml.NVMLError(fault["code"])


def standing(state):
    """Per GPU what stands as [profile, start], as the driver tells; None with MIG off."""
    return [[[piece.profile, piece.start] for piece in gpu.slices if piece.computes] if gpu.mig else None
            for gpu in status(state)[0].gpus]


def make(gpu, profile, start, whole=True):
    """Something else makes a MIG instance, if whole with its compute instance."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    for at in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, at)
            if info.name.removeprefix("MIG ") == profile:
                break
    size = {one["name"]: one["size"] for one in SIZES}[profile]
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, info.id, ctypes.byref(place))
    for at in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT if whole else 0):
        with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            offered = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(made, at, 0)
            if offered.multiprocessorCount == info.multiprocessorCount:
                pynvml.nvmlGpuInstanceCreateComputeInstance(made, offered.id)
                break
    pynvml.nvmlShutdown()


def clear(gpu):
    """Destroy every MIG instance of a GPU."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    for at in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, at)
            for instance in listed(pynvml.c_nvmlGpuInstance_t, info, pynvml.nvmlDeviceGetGpuInstances, handle):
                for one in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
                    with contextlib.suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
                        kind = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, one, 0)
                        ask = pynvml.nvmlGpuInstanceGetComputeInstances
                        for compute in listed(pynvml.c_nvmlComputeInstance_t, kind, ask, instance):
                            pynvml.nvmlComputeInstanceDestroy(compute)
                pynvml.nvmlGpuInstanceDestroy(instance)
    pynvml.nvmlShutdown()


def listed(handles, info, ask, of):
    """The handles that NVML lists for a profile."""
    found, count = (handles * info.instanceCount)(), ctypes.c_uint(info.instanceCount)
    ask(of, info.id, found, ctypes.byref(count))
    return found[: count.value]


SIZES = [{"name": "1g.10gb", "size": 1}, {"name": "2g.20gb", "size": 2}, {"name": "3g.40gb", "size": 4}]


def play(scene, state, tell=lambda scene: None, reset=lambda: None, gpus=None):
    """What is wrong with how a scenario ends, as lines.

    ``tell`` tells the driver what only it can do, ``reset`` resets its GPUs; ``gpus`` may be used, by default all.
    """
    kind = scene.get("type", "a100-80gb")
    if "before" in scene:
        apply(planned(scene["before"], kind), state, gpus)
    for other in scene.get("others", ()):
        make(*other)
    tell(scene)
    permissions = Permissions(**dict.fromkeys(scene.get("permissions", ()), True))
    wanted = planned(scene["plan"], kind)

    def once(permissions=permissions):
        try:
            done = apply(wanted, state, gpus, permissions=permissions)
            lines = (done.failure or "", *done.quarantined, *done.unrestored, *done.notes)
            return done.outcome, "; ".join(lines)
        except InputError as error:
            return "refused", str(error)

    with (
        Faults(scene.get("faults", ())).striking(), mock.patch.object(calls, "LIMIT_S", PATIENCE_S),
        mock.patch.object(nvml, "SEEN_S", PATIENCE_S), mock.patch.object(changes, "FREE_S", 2 * PATIENCE_S),
    ):
        outcome, said = once()
    return list(_wrong(scene, outcome, said, state, permissions, once, reset))


def play_on(node, scene, state):
    """What is wrong with how a scenario ends on GPUs of the stand-in, which are told what only they can do."""
    told, gpus = scene.get("standin", {}), range(len(node.gpus))

    def tell(scene):
        for gpu in gpus:
            if "settles" in told:
                node.settle(gpu, told["settles"])
            if "answers" in told:
                node.answer(gpu, told["answers"])

    return play(scene, state, tell, lambda: [node.reset(gpu) for gpu in gpus])


def _wrong(scene, outcome, said, state, permissions, once, reset):
    if outcome != scene["outcome"]:
        yield f"ends {outcome}, not {scene['outcome']}: {said}"
    if not re.search(scene.get("said", ""), said):
        yield f"does not say {scene['said']!r}: {said}"
    counted = scene.get("standin", {}).get("answers") == "counted"
    if "left" in scene and not counted and (left := standing(state)[: len(scene["left"])]) != scene["left"]:
        yield f"leaves {left}, not {scene['left']}"
    if scene.get("reset"):
        reset()
    if scene.get("asks") and not re.search(r"provision or something else made\?", (asked := once())[1]):
        yield f"does not ask: {asked}"
    told = permissions.model_copy(update={"adopt": scene.get("asks")})
    if "again" in scene and (after := once(told))[0] != scene["again"]:
        yield f"ends {after} the next time, not {scene['again']}"
