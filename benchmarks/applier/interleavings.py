"""Two and three appliers at once, call by call in random order: is anything destroyed that is not the actor's own?

On two GPUs of the stand-in of NVIDIA's driver, appliers with state directories of their own (now and then with the same
one) bring random plans to random GPUs, wait for each other or do not, are struck by an error at a random call, and
something else makes and destroys MIG instances meanwhile: its own, and also those of the appliers, in whose places it
puts its own, whole or half made. One of them makes its next call of NVML at a time;
which one is drawn. Afterwards nobody may have destroyed what somebody else made, unless ``--evict-foreign`` allowed
it; "applied" must mean that the plan stands, "refused" that nothing was changed, "restored" that what the applier owns
is what it owned before; and everybody must have come to an end.

Run as ``python benchmarks/applier/interleavings.py [--schedules N] [--seed S] [--results DIR]``;
ends with ``schedules N failures M``, exit status 1 if M > 0.
"""

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from multiprocessing import Pool
from pathlib import Path
from unittest import mock

import pynvml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from applier_scenario import KIND, plan
from driver import Node
from driver.direct import DirectCalls
from driver.layouts import create
from driver.makers import Makers, instance_number

from provision.applier import Permissions, apply, locks
from provision.applier.driver import changes, nvml
from provision.applier.driver.calls import DriverError
from provision.applier.journal import Journal
from provision.applier.serving import processes
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import gpu_type

STATES = sorted(geometry(gpu_type(KIND)).states)
PROFILES = geometry(gpu_type(KIND)).profiles
ENDS = ("applied", "refused", "restored", "unrestored", "quarantined")
COLUMNS = ("schedules", "applies", *ENDS, "failures")
MOST_TURNS = 20_000
"""A schedule that takes more turns has a deadlock, or waits for ever."""


class StuckError(BaseException):
    """The schedule does not end."""


class Turns:
    """Lets one thread go on at a time; which one is drawn at every turn."""

    def __init__(self, draw) -> None:
        self.draw, self.taken, self.gates = draw, 0, {}
        self.stuck = False

    def run(self, acts) -> None:
        """Run functions at once, to their ends."""
        threads = [threading.Thread(target=self._run, args=(act,)) for act in acts]
        for thread in threads:
            self.gates[thread] = threading.Semaphore(0)
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            thread.join()

    def _run(self, act) -> None:
        me = threading.current_thread()
        self.gates[me].acquire()
        try:
            act()
        finally:
            del self.gates[me]
            self._next()

    def _next(self) -> None:
        if self.gates:
            self.draw.choice(list(self.gates.values())).release()

    def turn(self) -> None:
        """The end of this thread's turn."""
        gate = self.gates.get(threading.current_thread())
        if gate is None:
            return
        self.taken += 1
        self.stuck = self.stuck or self.taken > MOST_TURNS
        if self.stuck:
            raise StuckError
        self._next()
        gate.acquire()


class Calls(DirectCalls):
    """Calls of NVML, each at the end of a turn; one may be refused."""

    turns, fault = None, {}

    def __call__(self, function, *arguments):
        if function != "nvmlShutdown":
            # At the end of an apply its locks are free: nobody else may go on before it is judged.
            self.turns.turn()
        name = threading.current_thread().name
        left = self.fault.get(name)
        if left is not None:
            self.fault[name] = left - 1
            if left == 0:
                raise DriverError(function, pynvml.NVML_ERROR_UNKNOWN)
        return super().__call__(function, *arguments)


class Schedule:
    """One schedule: who does what, in which order, and what came of it."""

    def __init__(self, number, folder) -> None:
        self.draw, self.folder = random.Random(number), folder
        self.node, self.makers = Node(folder / "node"), Makers()
        self.wrong, self.ends = [], Counter()

    def run(self) -> list[str]:
        """What went wrong, as lines."""
        draw, turns = self.draw, Turns(self.draw)
        Calls.turns, Calls.fault = turns, {}
        with self.node.loaded(inside=True), self.makers.booking():
            self._own_former()
            acts = [self._applier(at) for at in range(draw.choice((2, 2, 3)))]
            if draw.random() < 0.5:
                acts.append(self._stranger)
            pause = mock.patch.object(locks, "pause", lambda seconds: turns.turn())
            with pause, mock.patch.object(nvml, "Calls", Calls), contextlib.suppress(StuckError):
                turns.run(acts)
        if turns.stuck:
            self.wrong.append("no end: a deadlock")
        return self.wrong + [f"{actor} destroyed what {maker} made" for maker, actor in self.makers.taken]

    def _own_former(self) -> None:
        """Note the applier of the state directory ``s0`` as the maker of all present instances."""
        for kind in ("instance", "compute"):
            for row in self.node.state.rows[kind]:
                handle = instance_number(row.gpu, row) if kind == "instance" else (
                    4 << 60 | row.gpu << 48 | row.gi << 40 | row.id << 32 | row.serial)
                self.makers.maker[handle] = "s0"

    def _applier(self, at) -> Callable[[], None]:
        draw = self.draw
        gpus = draw.choice((["0"], ["1"], ["0", "1"]))
        wanted = plan(*([(PROFILES[kind].name, start) for start, kind in draw.choice(STATES)] for _ in gpus))
        evict, wait = draw.random() < 0.3, draw.random() < 0.5
        name = f"s{draw.choice((0, at))}"
        fault = draw.randrange(250) if draw.random() < 0.5 else None

        def act() -> None:
            before, stood = set(), set()

            def confirm(present, steps) -> bool:
                before.update(self._owned(name, gpus))
                # What it saw, before somebody else perhaps took it away.
                ids = {profile.name: profile.profile_id for profile in PROFILES}
                seen = ((gpu.index, piece) for gpu in present.gpus for piece in gpu.slices)
                stood.update((at, ids[piece.profile], piece.start) for at, piece in seen)
                stood.update((row.gpu, row.profile_id, row.start) for row in self.node.state.rows["instance"])
                return True

            if fault is not None:
                Calls.fault[threading.current_thread().name] = fault
            with self.makers.acting(name, allowed=evict):
                try:
                    permissions = Permissions(evict_foreign=evict)
                    end = apply(wanted, self.folder / name, gpus, None, permissions, confirm, wait=wait).outcome
                except InputError:
                    end = "refused"
                self._judge(name, end, wanted, gpus, before, stood)

        return act

    def _judge(self, name, end, wanted, gpus, before, stood) -> None:
        """Whether an ending tells the truth, at the moment at which it is told."""
        self.ends[end] += 1
        standing = self._standing()
        journal = Journal(self.folder / name).last()
        if end == "applied":
            rest = [set(gpu) for gpu in standing]
            ids = {profile.name: profile.profile_id for profile in PROFILES}
            goals = [{(ids[piece.profile], piece.start) for piece in gpu.slices} for gpu in wanted.gpus]
            there = [rest[int(gpu)] for gpu in gpus]
            orders = (there, there[::-1])
            if not any(all(goal <= found for goal, found in zip(goals, order, strict=True)) for order in orders):
                self.wrong.append(f"{name} says applied, and {goals} is not in {standing}")
            if journal is not None and journal.unfinished:
                self.wrong.append(f"{name} says applied, its journal is unfinished")
        elif end == "refused" and self.makers.changes:
            self.wrong.append(f"{name} says refused after {self.makers.changes} changes")
        elif end == "restored" and not before <= self._owned(name, gpus) <= before | stood:
            # What it was allowed to take from others, or others took from it meanwhile, it may have made again.
            self.wrong.append(f"{name} says restored, and {before} is now {self._owned(name, gpus)}")

    def _owned(self, name, gpus) -> set[tuple[int, int, int]]:
        """Places of the instances of a state directory on GPUs, which a run holds."""
        rows = self.node.state.rows["instance"]
        return {(row.gpu, row.profile_id, row.start) for row in rows
                if str(row.gpu) in gpus and self.makers.maker.get(instance_number(row.gpu, row)) == name}

    def _standing(self) -> list[list[tuple[int, int]]]:
        return [[(one.profile_id, one.start) for one in self.node.instances(gpu) if one.devices] for gpu in (0, 1)]

    def _stranger(self) -> None:
        """Something else makes instances where there is room, destroys them again, and replaces those of others."""
        with self.makers.acting("stranger", allowed=True):
            pynvml.nvmlInit()
            for _ in range(self.draw.randrange(1, 4)):
                with contextlib.suppress(pynvml.NVMLError):
                    made = self._replace() if self.draw.random() < 0.5 else self._make()
                    for _ in range(self.draw.randrange(40)):
                        Calls.turns.turn()
                    if made and self.draw.random() < 0.5:
                        pynvml.nvmlGpuInstanceDestroy(made)
            pynvml.nvmlShutdown()

    def _replace(self):
        """Destroy an instance, whoever made it, and make the same again, with or without a compute instance."""
        row = self.draw.choice(self.node.state.rows["instance"])
        gpu = pynvml.nvmlDeviceGetHandleByIndex(row.gpu)
        instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu, row.id)
        kinds = [one.profile_id for one in self.node.state.rows["compute"] if (one.gpu, one.gi) == (row.gpu, row.id)]
        for _ in kinds:
            Calls.turns.turn()
            pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
        Calls.turns.turn()
        pynvml.nvmlGpuInstanceDestroy(instance)
        Calls.turns.turn()
        made = create(gpu, row.profile_id, row.start, row.size)
        if kinds and self.draw.random() < 0.5:
            Calls.turns.turn()
            pynvml.nvmlGpuInstanceCreateComputeInstance(made, kinds[0])
        return made

    def _make(self):
        Calls.turns.turn()
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(self.draw.randrange(2))
            return pynvml.nvmlDeviceCreateGpuInstance(gpu, self.draw.choice((19, 14, 9)))
        except pynvml.NVMLError:
            return None


_own = []


def _start() -> None:
    held = tempfile.TemporaryDirectory(prefix="i", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    folder = Path(held.name)
    (folder / "proc").mkdir()
    for module, name, value in (
        (locks, "SETTLE_S", 0.0), (changes, "FREE_S", 0.0), (nvml, "SEEN_S", 0.0), (nvml, "LOOK_AGAIN_S", 0.0),
        # Nobody's servers run here, and a look at all processes takes longer than all else.
        (processes, "PROC", folder / "proc"),
    ):
        setattr(module, name, value)
    node = Node(folder / "begin/node", [KIND] * 2, mig=True)
    with node.loaded(inside=True):
        apply(plan([("3g.40gb", 0), ("1g.10gb", 4)], [("2g.20gb", 2)]), folder / "begin/s0")
    _own.append((held, folder))


def run(number) -> tuple[list[str], Counter[str]]:
    """The wrong of one schedule, and the endings of its appliers."""
    folder = _own[0][1]
    now = folder / "now"
    shutil.rmtree(now, ignore_errors=True)
    shutil.copytree(folder / "begin", now)
    schedule = Schedule(number, now)
    try:
        wrong = schedule.run()
    except Exception as error:
        wrong = [repr(error)]
    return [f"schedule {number}: {line}" for line in wrong], schedule.ends


def main() -> int:
    """Run the schedules and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--workers", type=int, default=2)
    results.add_results(parser)
    options = parser.parse_args()
    failures, ends = 0, Counter()
    numbers = range(options.seed, options.seed + options.schedules)
    with Pool(options.workers, _start) as pool:
        for wrong, ended in pool.imap_unordered(run, numbers, chunksize=10):
            failures += len(wrong)
            ends += ended
            print(*wrong, sep="\n" if wrong else "", end="\n" if wrong else "", flush=True)
    print(", ".join(f"{end} {count}" for end, count in sorted(ends.items())))
    print(f"schedules {options.schedules} failures {failures}")
    row = (options.schedules, ends.total(), *(ends[end] for end in ENDS), failures)
    results.write(options.results, "interleavings", COLUMNS, [row], (options.seed,))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
