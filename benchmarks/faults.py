"""Every NVML and MPS call of an apply goes wrong in turn: does the applier always end in the target or where it began?

From a layout with replicas, an MPS daemon and a busy slice a plan is applied over four GPUs, against the stand-in of
NVIDIA's driver in ``tests/support/driver``. Each call in turn fails with every error that it can give, each that
changes something also fails after it was carried out or never returns, and at each call the process is killed before
and after it. Then ``apply`` or ``rollback`` must lead to the target or the recorded former layout, with no change on a
GPU beside the plan, no client ended, and no journal lost.

Run as ``python benchmarks/faults.py [--sample N] [--seed S]``; ends with ``cases N failures M``, exit 1 if M > 0.

With ``--library PATH`` the scenarios of ``benchmarks/scenarios.yaml`` and those of ``tests/support/reliability``, A1 to
A25, are played instead, as far as any libnvidia-ml.so.1 can show them, on GPU 0 of the one in that folder (two teams
need GPU 1 too); a GPU that has MIG instances is refused. ``--library standin`` is the stand-in, compiled as such a
library, with new GPUs for each scenario; only there can be played what a driver has to be told.
"""

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
from applier_scenario import PLANNED, Scenario, in_child
from driver import Node
from driver.build import library
from driver.direct import DirectCalls
from driver.scenes import SCENES, clear, play, play_on
from reliability import SCENARIOS, Stage
from reliability import played as played_on

from provision.applier import Permissions, apply, locks, rollback, status
from provision.applier.driver import calls, nvml
from provision.applier.journal import Journal
from provision.applier.serving import mps, processes
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_types, names_type
from provision.models.plans.plan import Plan, PlannedGpu

Case = namedtuple("Case", "number name kind code way_out")

INVALID, UNSUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER, TIMEOUT = 2, 3, 4, 6, 9, 10
LOST, SYSTEM, IN_USE, MEMORY, RESOURCES, UNKNOWN = 15, 17, 19, 20, 23, 999
BY_NAME = {
    "nvmlInitWithFlags": (NO_PERMISSION, DRIVER, UNKNOWN),
    "nvmlShutdown": (UNKNOWN,),
    "nvmlDeviceGetCount_v2": (UNKNOWN,),
    "nvmlDeviceGetHandleByIndex_v2": (INVALID, NO_PERMISSION, LOST, UNKNOWN),
    "nvmlDeviceGetHandleByUUID": (INVALID, NOT_FOUND, LOST, UNKNOWN),
    "nvmlDeviceGetMigDeviceHandleByIndex": (INVALID, UNSUPPORTED, NOT_FOUND, UNKNOWN),
    "nvmlDeviceGetGpuInstances": (INVALID, UNSUPPORTED, NO_PERMISSION, UNKNOWN),
    "nvmlGpuInstanceGetComputeInstances": (INVALID, UNSUPPORTED, NO_PERMISSION, UNKNOWN),
    "nvmlDeviceCreateGpuInstanceWithPlacement": (INVALID, UNSUPPORTED, NO_PERMISSION, RESOURCES, UNKNOWN),
    "nvmlGpuInstanceCreateComputeInstance": (INVALID, UNSUPPORTED, NO_PERMISSION, RESOURCES, UNKNOWN),
    "nvmlComputeInstanceDestroy": (INVALID, UNSUPPORTED, NO_PERMISSION, IN_USE, UNKNOWN),
    "nvmlGpuInstanceDestroy": (INVALID, UNSUPPORTED, NO_PERMISSION, IN_USE, UNKNOWN),
}
LOOKS = (INVALID, UNSUPPORTED, LOST, UNKNOWN)
SKIPPED = 77
"""Exit status of a scenario that cannot be played."""
REJECTED, FAILED = 0, 1
"""What the MPS control program exits with: a refusal is only in its text."""
MEMORY = Path("/dev/shm")
STANDIN = "standin"
HANG_S = 0.5
"""After what time a call that hangs on purpose is given up."""


def cases_of(record) -> Iterator[Case]:
    """All cases for the calls of an apply that nothing befell."""
    for number, call in enumerate(record, 1):
        program = call.name.startswith("mps:")
        codes = (REJECTED, FAILED) if program else BY_NAME.get(call.name, LOOKS)
        wrongs = [("error", code) for code in codes]
        wrongs += [("kill_before", 0), ("kill_after", 0)]
        if call.change:
            wrongs += [("error_after", codes[-1]), ("hang", 0)]
        for kind, code in wrongs:
            for way_out in ("apply", "rollback") if kind.startswith("kill") and call.change else ("apply",):
                yield Case(number, call.name, kind, code, way_out)


class Sweep:
    """A scenario in a folder of its own, and the judgement of cases."""

    def __init__(self) -> None:
        self.held = tempfile.TemporaryDirectory(prefix="f", dir=MEMORY if MEMORY.is_dir() else None)
        self.scenario = Scenario(Path(self.held.name))
        self.begun = len(self.scenario.node.calls())
        self._apply_undisturbed()

    def _apply_undisturbed(self) -> None:
        with self.scenario.node.loaded(inside=True):
            self.scenario.apply()
        self.record = self.scenario.node.calls()[self.begun :]
        self.target = self.scenario.standing()

    def faults(self, case) -> list[str]:
        """What is wrong after a case: a list of lines."""
        scenario = self.scenario
        scenario.put_back()
        scenario.node.fault("call", case.number, case.kind, case.code)
        with scenario.node.loaded(inside=True):
            self._act(case.kind)
        last = Journal(scenario.state).last()
        wrong = [] if last.former is not None and last.verb == "apply" else ["the journal is lost"]
        if last.unfinished:
            wrong += self._way_out(case)
        elif scenario.standing() not in (scenario.former, self.target):
            wrong.append("the journal says finished, but neither the former layout nor the target stands")
        return [f"{case}: {line}" for line in wrong + self._harm()]

    def _way_out(self, case) -> list[str]:
        """Finish what was cut off by the way that the case names."""
        scenario = self.scenario
        go = scenario.apply if case.way_out == "apply" else lambda *given: rollback(scenario.state, *given)
        with scenario.node.loaded(inside=True), mock.patch.object(nvml, "Calls", DirectCalls):
            changed = scenario.node.counts[1]
            try:
                outcome = go()
            except InputError as error:
                # Where the journal cannot tell who made what stands, the user is asked before anything is changed.
                if not re.search("provision or something else made[?] Add --adopt", str(error)):
                    raise
                if scenario.node.counts[1] != changed:
                    return [f"{case.way_out} asks after it has changed something"]
                outcome = go(Permissions(adopt=True))
        wanted = self.target if case.way_out == "apply" else scenario.former
        return [] if scenario.standing() == wanted else [f"{case.way_out} does not lead there: {outcome}"]

    def _harm(self) -> list[str]:
        """GPUs beside the plan that were changed, and clients that were ended."""
        node = self.scenario.node
        changed = {call.gpu for call in node.calls()[self.begun :] if call.change} - set(map(int, PLANNED))
        alive = {process.pid for process in node.processes()}
        return [f"GPU {gpu} was changed" for gpu in sorted(changed)] + [
            f"client {pid} was ended" for pid in sorted(self.scenario.clients - alive)
        ]

    def _act(self, kind) -> None:
        """Apply, in a process of its own where the fault would end this one or leave a thread in it."""
        if kind == "hang":
            limits = ((calls, "LIMIT_S"), (mps, "LIMIT_S"), (mps, "ASK_S"))
            with contextlib.ExitStack() as short:
                for module, name in limits:
                    short.enter_context(mock.patch.object(module, name, HANG_S))
                in_child(self._apply)
            return
        with mock.patch.object(nvml, "Calls", DirectCalls):
            self._strike(kind)

    def _strike(self, kind) -> None:
        """Apply where no call hangs."""
        if kind.startswith("kill"):
            in_child(self._apply)
        else:
            self._apply()

    def _apply(self) -> None:
        try:
            self.scenario.apply()
        except InputError:
            return


_own = []


def _start() -> None:
    # The stand-in shows at once what was done, and no servers run whose processes would have to be looked at.
    locks.SETTLE_S = 0.0
    nowhere = tempfile.mkdtemp(prefix="f")
    processes.PROC = Path(nowhere)
    _own.append(Sweep())


def _judge(case) -> list[str]:
    try:
        return _own[0].faults(case)
    except Exception as error:
        return [f"{case}: {error!r}"]


def on_library(folder) -> int:
    """Play the scenarios on the library of a folder, each in a process of its own; the exit status."""
    failures = skipped = 0
    every, standin = SCENES | SCENARIOS, folder == STANDIN
    for name, scene in every.items():
        told = scene.get("standin") if isinstance(scene, dict) else None
        if told and not standin:
            skipped += 1
            print(f"skipped  {name}: only the stand-in can be told to do this")
            continue
        paths = f"{library() if standin else folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        with tempfile.TemporaryDirectory(prefix="l") as held:
            own = {"LD_LIBRARY_PATH": paths, "PROVISION_LOCKS": held, "TMPDIR": held}
            if standin:
                types = (told or {}).get("types", ["a100-80gb"] * (2 if name in SCENARIOS else 1))
                own |= Node(Path(held) / "node", types, (told or {}).get("mig", True)).environment()
            command = [sys.executable, __file__, "--scene", name, "--library", str(folder)]
            done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
        failures += done.returncode == 1
        skipped += done.returncode == SKIPPED
        verdict = {0: "holds", SKIPPED: "skipped"}.get(done.returncode, "FAILS")
        lines = (done.stdout + done.stderr).strip().splitlines()
        about = scene["symptom"] if isinstance(scene, dict) else scene.__doc__.splitlines()[0]
        print(f"{verdict:8} {name}: {' / '.join(lines[-3:]) or about}", flush=True)
    print(f"scenarios {len(every)} skipped {skipped} failures {failures}")
    return 1 if failures else 0


def played(name, node=None) -> int:
    """Play a scenario on GPU 0 of the library that this process loads, and clear the GPU; the exit status."""
    if name in SCENARIOS:
        return played_with_others(name, node)
    scene = SCENES[name]
    locks.SETTLE_S = 0.0
    with tempfile.TemporaryDirectory(prefix="s") as held:
        if node:
            wrong = play_on(node, scene, Path(held) / "t")
            print(*wrong, sep="\n")
            return 1 if wrong else 0
        state = Path(held) / "s"
        gpu = status(state)[0].gpus[0]
        if gpu.slices and gpu.mig:
            print(f"GPU 0 has MIG instances, which this would destroy: {gpu.slices[0].label}")
            return SKIPPED
        wanted = {profile for one in scene["plan"] for profile, *_ in one}
        kinds = [kind.name for kind in gpu_types().values()
                 if names_type(gpu.product, kind) and wanted <= kind.profiles.keys()]
        if not kinds:
            print(f"GPU 0 is a {gpu.product}, which has not all of {', '.join(sorted(wanted))}")
            return SKIPPED
        empty = Plan(version=1, instance="scenario", gpus=(PlannedGpu(gpu=kinds[0], mig=True, slices=()),))
        allowed = Permissions(evict_foreign=True, allow_mig_mode_change=True)
        try:
            if (began := apply(empty, state, ["0"], permissions=allowed)).outcome != "applied":
                print(f"MIG cannot be turned on: {began.failure}")
                return SKIPPED
            wrong = play(scene | {"type": kinds[0]}, Path(held) / "t", gpus=["0"])
        finally:
            clear(0)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def played_with_others(name, node) -> int:
    """Play a scenario in which others act, on GPU 0 and, if there is another of its type, on that; the exit status."""
    with tempfile.TemporaryDirectory(prefix="s") as held:
        gpus = status(Path(held) / "none")[0].gpus
        free = [gpu for gpu in gpus if gpu.product == gpus[0].product and not (gpu.mig and gpu.slices)][:2]
        if not free or free[0].index != 0:
            print("GPU 0 has MIG instances, which this would destroy")
            return SKIPPED
        try:
            stage = Stage(held, [str(gpu.index) for gpu in free], node)
        except StopIteration:
            print(f"GPU 0 is a {gpus[0].product}, which has not all slices that are needed")
            return SKIPPED
        empty = Plan(version=1, instance="scenario", gpus=[PlannedGpu(gpu=stage.kind, mig=True, slices=())] * len(free))
        allowed = Permissions(allow_mig_mode_change=True)
        if (began := apply(empty, Path(held) / "s", stage.gpus, permissions=allowed)).outcome != "applied":
            print(f"MIG cannot be turned on: {began.failure}")
            return SKIPPED
        wrong = played_on(name, stage)
        if not stage.cases:
            print("nothing of it can be shown on this library")
            return SKIPPED
    print(*wrong, f"{stage.cases} cases", sep="\n")
    return 1 if wrong else 0


def main() -> int:
    """Run all cases, or a sample, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="only so many cases, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--library", metavar="PATH",
                        help="folder of a libnvidia-ml.so.1 to play the scenarios on, or standin")
    parser.add_argument("--scene", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scene:
        return played(options.scene, Node(os.environ["NVML_STANDIN_FOLDER"]) if options.library == STANDIN else None)
    if options.library:
        return on_library(options.library)
    every = list(cases_of(Sweep().record))
    if options.sample:
        every = random.Random(options.seed).sample(every, options.sample)
    wrong = []
    with Pool(options.workers, _start) as pool:
        for done, found in enumerate(pool.imap_unordered(_judge, every, chunksize=20), 1):
            wrong += found
            print(*found, sep="\n" if found else "", end="\n" if found else "", flush=True)
            if done % 500 == 0:
                print(f"{done} of {len(every)}", file=sys.stderr)
    print(f"cases {len(every)} failures {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
