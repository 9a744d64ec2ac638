"""How VELTAIR's gains depend on what had to be guessed, and on the seed.

Run as ``python benchmarks/papers/veltair.py [--queries N]``. Capacities on the mixed load, relative to layer-wise
scheduling: as shipped with three seeds, then with other parts of the QoS planned for, with half and twice the live part
of L3, and on the CPU calibrated to the paper's gains, as it is and with bandwidth to L3 low enough that layers take two
versions.
"""

import argparse
from itertools import islice

import numpy as np

from provision.commands.common import print_table
from provision.heuristics.veltair.profile import PLANNED
from provision.heuristics.veltair.veltair import Machine
from provision.models.cpu.cpu import CALIBRATED, PUBLISHED
from provision.models.cpu.networks import networks

SLOW_L3 = 0.48
SCHEDULERS = ("model-wise", "blocks-6", "blocks-11", "veltair-as", "veltair-ac", "veltair-full", "prema")


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--first", type=int, metavar="N", help="only the first N variants")
    options = parser.parse_args()
    columns = ["variant", "layers of several versions", "layer-wise rps", *SCHEDULERS]
    print_table(columns, [row(*variant, options.queries) for variant in islice(variants(), options.first)])


def variants():
    """What to vary: (name, machine settings, seed)."""
    for seed in range(3):
        yield f"as shipped, seed {seed}", {}, seed
    for planned in (0.6, 0.7, 0.9):
        yield f"{planned:.0%} of the QoS planned, not {PLANNED:.0%}", {"planned": planned}, 0
    for factor in (0.5, 2):
        cpu = PUBLISHED._replace(live_bytes=factor * PUBLISHED.live_bytes)
        yield f"{factor} times the live L3", {"cpu": cpu}, 0
    yield "calibrated", {"cpu": CALIBRATED}, 0
    slow = CALIBRATED._replace(core_l3_bps=SLOW_L3 * CALIBRATED.core_l3_bps)
    yield f"calibrated, {SLOW_L3} times the bandwidth to L3", {"cpu": slow}, 0


def row(name, settings, seed, queries):
    """Capacities of one variant."""
    machine = Machine(networks().values(), **settings)
    load = machine.load(np.arange(len(machine.networks)), queries, seed)
    base_rps = machine.capacity_rps("layer-wise", load)
    gains = (machine.capacity_rps(scheduler, load) / base_rps - 1 for scheduler in SCHEDULERS)
    several = f"{(machine.catalogue.kept > 1).sum()} of {len(machine.catalogue.kept)}"
    return [name, several, round(base_rps, 1), *(f"{gain:+.0%}" for gain in gains)]


if __name__ == "__main__":
    main()
