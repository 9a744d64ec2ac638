"""From every state of an A100 to many targets: does the applier get there, destroying as few instances as possible?

All 298 states of the five plain profiles against targets drawn from them, on one GPU of the stand-in of NVIDIA's
driver in ``tests/support/driver``. The target must stand afterwards, the driver's record must hold no more destroyed
instances than the best choice of instances to keep leaves, and a second apply must do nothing.

Run as ``python benchmarks/transitions.py [--states N] [--targets N] [--seed S]``; ends with ``cases N failures M``,
exit 1 if M > 0.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
from applier_scenario import KIND, plan
from driver import Node

from provision.applier import apply
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import gpu_type


def states() -> list[list[tuple[str, int]]]:
    """Every state as a list of (profile, start), in a fixed order."""
    shape = geometry(gpu_type(KIND))
    return [[(shape.profiles[kind].name, start) for start, kind in state] for state in sorted(shape.states)]


def fewest_destroyed(state, target) -> int:
    """By trial: the fewest instances to give up so that those kept are part of the target."""
    for gone in range(len(state) + 1):
        if any(set(kept) <= set(target) for kept in combinations(state, len(state) - gone)):
            return gone
    raise AssertionError("nothing kept is part of every target")


def standing(node) -> list[tuple[str, int]]:
    """The state of the only GPU; an instance without its compute instance does not count."""
    names = {profile.profile_id: profile.name for profile in gpu_type(KIND).mig.profiles}
    return sorted((names[one.profile_id], one.start) for one in node.instances(0) if len(one.devices) == 1)


def check(case) -> list[str]:
    """What is wrong with the ways from one state to its targets: a list of lines."""
    state, targets = case
    wrong = []
    with tempfile.TemporaryDirectory(prefix="t") as held:
        start = Path(held) / "start"
        node = Node(start / "node", [KIND], mig=True)
        with node.loaded():
            apply(plan(state), start / "s")
        for number, target in enumerate(targets):
            folder = Path(held) / str(number)
            shutil.copytree(start, folder)
            found = _way(Node(folder / "node"), folder / "s", state, target)
            wrong += [f"{state} to {target}: {line}" for line in found]
    return wrong


def _way(node, journal, state, target) -> Iterator[str]:
    with node.loaded():
        begun = len(node.calls())
        outcome = apply(plan(target), journal)
        made = node.calls()[begun:]
        again = apply(plan(target), journal)
    destroyed = sum(call.name == "nvmlGpuInstanceDestroy" for call in made)
    if standing(node) != sorted(target):
        yield f"ends in {standing(node)}: {outcome}"
    if destroyed != fewest_destroyed(state, target):
        yield f"destroys {destroyed} instances instead of {fewest_destroyed(state, target)}"
    if again.steps:
        yield f"a second apply does {again.steps}"


def main() -> int:
    """Check all ways, or a sample, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, help="only so many states, drawn at random")
    parser.add_argument("--targets", type=int, default=30, help="targets for each state (default: 30)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    draw, every = random.Random(options.seed), states()
    begins = draw.sample(every, options.states) if options.states else every
    cases = [(state, draw.sample(every, options.targets)) for state in begins]
    wrong = []
    with Pool(options.workers) as pool:
        for found in pool.imap_unordered(check, cases):
            wrong += found
    print(*wrong, sep="\n" if wrong else "", end="\n" if wrong else "")
    print(f"cases {len(begins) * options.targets} failures {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
