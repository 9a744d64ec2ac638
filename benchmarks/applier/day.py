"""A day of a node: a thousand applies of random plans. Do journal, driver and status drift apart?

On three A100s and an A30 of the stand-in of NVIDIA's driver, random plans with replicas and MPS are applied to random
GPUs one after another; now and then a call fails, the last run is rolled back, the node is rebooted and the last plan
applied again, or something else makes or destroys a MIG instance. After each of them what ``status`` tells must be what
the driver holds; what it calls the applier's own must be what the applier made; what the run said must be what the
journal says; an applied plan must be no step away; and no daemon or environment may be left without its slice.

Run as ``python benchmarks/applier/day.py [--applies N] [--seed S]``;
ends with ``applies N failures M``, exit status 1 if M > 0.
"""

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pynvml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
from applier_scenario import KIND, plan
from driver import Node
from driver.direct import DirectCalls
from driver.makers import Makers, instance_number

from provision.applier import Permissions, apply, apply_last, difference, locks, rollback, status
from provision.applier.driver import nvml
from provision.applier.journal import Journal
from provision.applier.serving import processes
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import gpu_type
from provision.models.plans.plan import Plan

KINDS = [KIND, KIND, KIND, "a30"]
ALLOWED = Permissions(evict_foreign=True, allow_mig_mode_change=True)
FAILING = (
    "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy", "nvmlGpuInstanceGetInfo", "mps:-d", "mps:quit", "nvmlDeviceGetUUID",
)


class Day:
    """A node over a day, and what drifted."""

    def __init__(self, folder, seed) -> None:
        self.draw, self.folder, self.state = random.Random(seed), folder, folder / "s"
        self.node, self.makers = Node(folder / "node", KINDS, mig=True), Makers(other="applier")
        self.shapes = {kind: geometry(gpu_type(kind)) for kind in set(KINDS)}
        self.ends, self.wrong = Counter(), []

    def run(self, applies) -> list[str]:
        """What drifted, as lines."""
        with self.node.loaded(inside=True), self.makers.booking():
            for number in range(applies):
                self._happen()
                wanted, gpus = self._plan()
                if self.draw.random() < 0.1:
                    kind = self.draw.choice(("error", "error_after"))
                    self.node.fault(self.draw.choice(FAILING), self.draw.randrange(1, 4), kind, 999)
                end = self._end(lambda wanted=wanted, gpus=gpus: apply(wanted, self.state, gpus, None, ALLOWED))
                self.node.forget_faults()
                self._judge(number, end, wanted, gpus)
        return self.wrong

    def _happen(self) -> None:
        """What happens between two applies."""
        chance = self.draw.random()
        if chance < 0.05:
            self._end(lambda: rollback(self.state, ALLOWED))
        elif chance < 0.07:
            self.node.reboot()
            self._end(lambda: apply_last(self.state, ALLOWED))
        elif chance < 0.2:
            self._stranger()

    def _end(self, act) -> str:
        """How a run ends; one that could not be undone is rolled back until it is."""
        try:
            end = act().outcome
        except InputError as error:
            end = "refused"
            self.ends["not finished" if "not finished" in str(error) else "refused"] += 1
            if "not finished" in str(error):
                self.node.forget_faults()
                rollback(self.state, ALLOWED)
            return end
        self.ends[end] += 1
        if end == "unrestored":
            self.node.forget_faults()
            end = rollback(self.state, ALLOWED).outcome
        return end

    def _plan(self) -> tuple[Plan, list[str]]:
        """A random plan for random GPUs, and their indices."""
        indices = sorted(self.draw.sample(range(len(KINDS)), self.draw.randrange(1, len(KINDS) + 1)))
        gpus = []
        for index in indices:
            shape = self.shapes[KINDS[index]]
            places = self.draw.choice(sorted(shape.states))
            pieces = [(shape.profiles[kind].name, start, self._replicas()) for start, kind in places]
            gpus += plan(pieces, kind=KINDS[index]).gpus
        return Plan(version=1, instance="day", gpus=tuple(gpus)), [str(index) for index in indices]

    def _replicas(self) -> dict[str, int]:
        chosen = self.draw.sample(["vision", "text", "speech"], self.draw.choice((0, 1, 1, 1)))
        return {name: self.draw.choice((1, 1, 2)) for name in chosen}

    def _stranger(self) -> None:
        """Something else makes an instance where there is room, or destroys one that it made."""
        with self.makers.acting("stranger"):
            pynvml.nvmlInit()
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlDeviceCreateGpuInstance(pynvml.nvmlDeviceGetHandleByIndex(self.draw.randrange(3)), 19)
            pynvml.nvmlShutdown()

    def _judge(self, number, end, wanted, gpus) -> None:
        for line in self._drift(end, wanted, gpus):
            self.wrong.append(f"apply {number}: {line}")

    def _drift(self, end, wanted, gpus) -> Iterator[str]:
        present, last = status(self.state)
        told, own, unsure = [], set(), set()
        for gpu in present.gpus:
            ids = {profile.enumerator: profile.id for profile in gpu.profiles}
            places = [(gpu.index, ids[piece.enumerator], piece.start, piece.devices) for piece in gpu.slices]
            told += places
            own |= {place for place, piece in zip(places, gpu.slices, strict=True) if not piece.strange}
            unsure |= {place[:3] for place, piece in zip(places, gpu.slices, strict=True) if piece.unsure}
        held = [(gpu, one.profile_id, one.start, tuple(device for device, _ in one.devices))
                for gpu in range(len(KINDS)) for one in self.node.instances(gpu)]
        if sorted(told) != sorted(held):
            yield f"status tells {told}, the driver holds {held}"
        made = {(row.gpu, row.profile_id, row.start) for row in self.node.state.rows["instance"]
                if self.makers.maker.get(instance_number(row.gpu, row)) == "applier"}
        if not {place[:3] for place in own} <= made:
            yield f"status calls {own} the applier's own, which made {made}"
        if forgotten := made - {place[:3] for place in own} - unsure:
            yield f"status calls {forgotten} strangers', which the applier made"
        ended = Journal(self.state).last()
        if end != "refused" and (ended is None or ended.unfinished or last.outcome != end):
            yield f"the run says {end}, the journal {ended and ended.outcome}"
        if end == "applied" and (steps := difference(wanted, self.state, gpus)[1]):
            yield f"applied, and still to do: {[step.text for step in steps]}"
        devices = {device for place in held for device in place[3]}
        if homeless := {daemon.device for daemon in self.node.daemons().values()} - devices:
            yield f"daemons without a slice: {homeless}"
        if end == "applied" and (left := present.leftovers):
            yield f"left behind: {left}"


def main() -> int:
    """Live a day and print what drifted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--applies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="d", dir=memory if memory.is_dir() else None) as held:
        (Path(held) / "proc").mkdir()
        # No servers run whose processes would have to be looked at.
        locks.SETTLE_S, processes.PROC, nvml.Calls = 0.0, Path(held) / "proc", DirectCalls
        day = Day(Path(held), options.seed)
        wrong = day.run(options.applies)
    print(*wrong, sep="\n" if wrong else "", end="\n" if wrong else "")
    print(", ".join(f"{end} {count}" for end, count in sorted(day.ends.items())))
    print(f"applies {options.applies} failures {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
