"""The stage of the scenarios: GPUs, strangers, calls that go wrong, and the books of what is destroyed."""

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path
from unittest import mock

import pynvml
from applier_scenario import instance_of, plan
from driver.direct import DirectCalls
from driver.scenes import clear, make

from provision.applier import Permissions, apply, locks, rollback, status
from provision.applier.driver import calls, changes, nvml
from provision.applier.driver.calls import DriverError
from provision.applier.journal import Journal
from provision.applier.serving import servers
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_types, names_type

FORMER = [("3g.40gb", 0), ("1g.10gb", 4)]
TARGET = [("2g.20gb", 0), ("1g.10gb", 3), ("1g.10gb", 4)]
BESIDE = ("1g.10gb", 6)
"""The layouts from and to which appliers go here, and a slice that is in nobody's way."""
CHANGES = ("nvmlDeviceCreateGpuInstance", "nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy",
           "nvmlGpuInstanceDestroy")
CODES = (2, 3, 4, 6, 9, 10, 15, 17, 19, 20, 23, 999)
ASKS = "provision or something else made? Add --adopt"
ADOPT, REFUSE, EVICT = Permissions(adopt=True), Permissions(adopt=False), Permissions(evict_foreign=True)


class Wrong(DirectCalls):
    """Calls of NVML of which one goes wrong: the ``number``-th, or the ``number``-th of those that change something."""

    number, how, changing, code, counted, names = 0, "", False, 999, 0, ()

    def __call__(self, function, *arguments):
        if self.changing and not function.startswith(CHANGES):
            return super().__call__(function, *arguments)
        Wrong.counted += 1
        Wrong.names = (*Wrong.names, function)
        if Wrong.counted != Wrong.number:
            return super().__call__(function, *arguments)
        if isinstance(self.how, signal.Signals):
            signal.raise_signal(self.how)
            return super().__call__(function, *arguments)
        if self.how == "silent":
            return None
        if self.how in ("kill after", "after"):
            super().__call__(function, *arguments)
        if self.how.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise DriverError(function, self.code)


@contextlib.contextmanager
def quiet():
    """Within, nothing is printed."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


@contextlib.contextmanager
def wrong(number, how, changing=False, code=999):
    """Within, a call of NVML of this process goes wrong."""
    for name, value in {"number": number, "how": how, "changing": changing, "code": code, "counted": 0}.items():
        setattr(Wrong, name, value)
    Wrong.names = ()
    with mock.patch.object(nvml, "Calls", Wrong):
        yield


class Stage:
    """One or two GPUs of a type with MIG on and without instances, a folder, and what strangers do there.

    ``draws`` says how many calls or lines are drawn where not all go wrong in turn. With 1, scenarios are short.
    """

    def __init__(self, folder, gpus=("0", "1"), node=None, draws=3, seed=0):
        self.folder, self.gpus, self.node = Path(folder), gpus, node
        self.draws, self.draw = draws, random.Random(seed)
        self.book, self.boot = self.folder / "destroyed", self.folder / "boot"
        self.book.touch()
        self.boot.write_text("first")
        self.cases = self.states = 0
        wanted = {profile for profile, _ in (*FORMER, *TARGET, BESIDE)}
        gpu = status(self.folder / "none")[0].gpus[int(gpus[0])]
        fitting = (one.name for one in gpu_types().values() if names_type(gpu.product, one))
        self.kind = next(kind for kind in fitting if wanted <= set(gpu_types()[kind].profiles))

    def drawn(self, most, times=1):
        """Some of the calls from a third of them on, by their numbers; before that, an applier only looks."""
        return self.draw.sample(range(most // 3, most + 1), self.draws * times)

    def plan(self, *gpus):
        return plan(*gpus, kind=self.kind)

    @contextlib.contextmanager
    def lit(self):
        """Within, appliers use this stage's boot, locks and patience, and what they destroy is booked."""
        real = pynvml.nvmlGpuInstanceDestroy

        def destroy(instance):
            info = pynvml.nvmlGpuInstanceGetInfo(instance)
            real(instance)
            with open(self.book, "a") as book:
                book.write(f"{pynvml.nvmlDeviceGetIndex(info.device)} {info.placement.start}\n")

        self.real_destroy, patience_s = real, 0.1 if self.node else 0.3
        with contextlib.ExitStack() as patched:
            for module, name, value in (
                (pynvml, "nvmlGpuInstanceDestroy", destroy), (calls, "BOOT", self.boot), (locks, "SETTLE_S", 0.0),
                (nvml, "SEEN_S", patience_s), (changes, "FREE_S", patience_s), (servers, "SETTLE_S", 0.05),
                (nvml, "LOOK_AGAIN_S", 0.02), (changes, "POLL_S", 0.02),
            ):
                patched.enter_context(mock.patch.object(module, name, value))
            yield self

    def case(self, stood=True):
        """Begin a case: no instances, a state directory of its own, in which the former plan was applied if it stood.
        """
        self.cases += 1
        self.empty()
        self.states += 1
        state = self.folder / f"s{self.states}"
        if stood:
            apply(self.plan(FORMER), state, self.gpus[:1])
        return state

    def empty(self):
        for gpu in self.gpus:
            with mock.patch.object(pynvml, "nvmlGpuInstanceDestroy", self.real_destroy):
                clear(int(gpu))

    def reboot(self):
        """Everything is gone, and the machine has another boot id."""
        self.empty()
        self.boot.write_text(f"boot {time.monotonic_ns()}")

    def stranger(self, *place, gpu="0", whole=True):
        make(int(gpu), *place, whole=whole)

    def remove(self, start, gpu="0"):
        """A stranger destroys the instance at a start, whoever made it."""
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
        for identity in range(16):
            with contextlib.suppress(pynvml.NVMLError):
                instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, identity)
                if pynvml.nvmlGpuInstanceGetInfo(instance).placement.start == start:
                    for one in range(8):
                        with contextlib.suppress(pynvml.NVMLError):
                            compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, one)
                            pynvml.nvmlComputeInstanceDestroy(compute)
                    self.real_destroy(instance)
        pynvml.nvmlShutdown()

    def destroyed(self, start, gpu="0"):
        """How often an applier destroyed an instance at a start."""
        return self.book.read_text().splitlines().count(f"{gpu} {start}")

    def standing(self, gpu="0"):
        """What stands on a GPU, complete, as (profile, start)."""
        slices = status(self.folder / "none")[0].gpus[int(gpu)].slices
        return sorted((piece.profile, piece.start) for piece in slices if piece.computes)

    def calls(self, changing=False):
        """How many calls an apply from the former to the target layout makes."""
        state = self.case()
        with wrong(0, "", changing):
            apply(self.plan(TARGET), state, self.gpus[:1])
        self.cases -= 1
        return Wrong.counted

    def apply(self, state, permissions=None, **options):
        return apply(self.plan(TARGET), state, self.gpus[:1], permissions=permissions, **options)

    def end(self, act):
        """How an act ends: its outcome, or "refused" and the line."""
        try:
            return act().outcome, ""
        except InputError as error:
            return "refused", str(error)

    def files(self, state, **changed):
        """The arguments of an apply of the target plan, of whose fields some are changed."""
        wanted = self.plan([(*place, {f"w{at}": 1}) for at, place in enumerate(TARGET)])
        write(instance_of(wanted), self.folder / "instance.json", force=True)
        (self.folder / "plan.json").write_text(json.dumps(wanted.model_dump(mode="json", exclude_none=True) | changed))
        return [str(self.folder / "plan.json"), "--instance", str(self.folder / "instance.json"), "--state", str(state),
                "--gpus", self.gpus[0]]

    def finish(self, state, way):
        """Finish a run that was cut off; answer with --adopt if that is asked."""
        def act(permissions=None):
            return self.apply(state, permissions) if way == "apply" else rollback(state, permissions)

        former = [(piece.profile, piece.start) for piece in Journal(state).last().former.gpus[0].slices]
        outcome, line = self.end(act)
        if ASKS in line:
            outcome, line = self.end(lambda: act(ADOPT))
        goal = TARGET if way == "apply" else [place for place in former if place != BESIDE]
        if outcome not in ("applied", "restored") or self.standing() != sorted([*goal, BESIDE]):
            yield f"{way} ends {outcome} {line} with {self.standing()}"
        if self.destroyed(BESIDE[1]):
            yield "a stranger's instance was destroyed"
