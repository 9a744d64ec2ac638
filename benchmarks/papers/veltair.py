"""VELTAIR's gains over layer-wise scheduling, and how they depend on the seed and on what had to be guessed.

Run as ``python benchmarks/papers/veltair.py [--queries N] [--seeds S ...] [--cpus C ...] [--parts P ...]``.

- ``gains``: capacities by class of load (figure 12) on the CPU of the published layer times and on that calibrated to
  the paper's gains, with BERT on 384 tokens, as in the public program, and on 128; every seed.
- ``guesses``: on the mixed load, every seed, other parts of the QoS planned for, half and twice the live part
  of L3, all bandwidths of L3 and of DRAM a tenth up and down, the same for the micro-kernel's efficiency, and L3 slow
  enough that layers take several versions.
- ``networks``: the cores that a query of each network needs on average to keep its QoS, and its part of the mixed
  load's work.
- ``shapes``: the paper's shapes, what they are and whether they come out, by CPU, tokens and seed.
- ``tolerant``: figure 6 on its layer (3 x 3 convolution, 14 x 14, 256 channels) on 16 cores, on CPUs whose L3 is slower
  and slower: how many versions are best at some level of interference, how much longer the one that is best at the
  highest level takes alone than the fastest, how much the fastest alone slows there, and the part of all layers with
  several versions.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product

import numpy as np
import results

from provision.draw.output import print_table
from provision.heuristics.veltair.profile import PLANNED
from provision.heuristics.veltair.veltair import PREMA, PREMA_PRINTED, Machine
from provision.heuristics.veltair.versions import candidates_of, levels_s
from provision.models.cpu.cpu import CALIBRATED, CPUS, PUBLISHED
from provision.models.cpu.layers import BERT_TOKENS, conv, networks
from provision.studies.study import FIGURES, MIX, Study, shapes

SLOW_L3 = 0.48
TOKENS = (BERT_TOKENS, 128)
BASE = "layer-wise"
SCHEDULERS = ("model-wise", "blocks-6", "blocks-11", "veltair-as", "veltair-ac", "veltair-full", "veltair-printed",
              PREMA, PREMA_PRINTED)
CLASSES = ("light", "medium", "heavy", MIX)
TOLD = ("mean", "min", "max")
PARTS = ("gains", "guesses", "networks", "shapes", "tolerant")
SLOWER_L3 = (1.0, 0.5, 0.25, 0.12, 0.06)
FIGURE_6, FIGURE_6_CORES = conv("figure 6", 14, 256, 256, 3), 16
NUDGED = ("efficiency", "core_l3_bps", "dram_bps", "crowded")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--cpus", nargs="*", default=[*CPUS], choices=(*CPUS,))
    parser.add_argument("--tokens", type=int, nargs="*", default=[*TOKENS], help="of BERT")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--first", type=int, metavar="N", help="only the first N rows of every part")
    results.add_results(parser)
    options = parser.parse_args()
    makers = {"gains": gains, "guesses": guesses, "networks": needed, "shapes": shaped,
              "tolerant": tolerated}
    for part in options.parts:
        columns, rows = makers[part](options)
        found = list(islice(rows, options.first))
        print_table(columns, [[f"{cell:+.0%}" if isinstance(cell, float) else cell for cell in row] for row in found])
        results.write(options.results, f"veltair-{part}", columns, found, options.seeds)


def gains(options) -> tuple[list[str], Iterator[list[object]]]:
    """Columns and rows: gains over layer-wise scheduling by CPU, tokens, class and seed, and over the seeds."""
    def rows() -> Iterator[list[object]]:
        for cpu, tokens in product(options.cpus, options.tokens):
            machine = Machine(networks(tokens).values(), CPUS[cpu])
            found = [_by_class(machine, options.queries, seed) for seed in options.seeds]
            for name in CLASSES:
                each = np.array([one[name] for one in found])
                yield from ([cpu, tokens, name, str(seed), *row] for seed, row in zip(options.seeds, each, strict=True))
                for told in TOLD:
                    yield [cpu, tokens, name, told, *getattr(each, told)(axis=0)]

    return ["cpu", "bert_tokens", "load", "seed", *SCHEDULERS], rows()


def _by_class(machine, queries, seed) -> dict[str, np.ndarray]:
    """Per class the mean gain of every scheduler over the class's networks; that on the mixed load."""
    names = [network.name for network in machine.networks]
    by_load = {name: _gains(machine, np.array([at]), queries, seed) for at, name in enumerate(names)}
    weight = {network.name: network.weight for network in machine.networks}
    found = {one: np.mean([by_load[name] for name in names if weight[name] == one], axis=0) for one in CLASSES[:-1]}
    return found | {MIX: _gains(machine, np.arange(len(names)), queries, seed)}


def _gains(machine, served, queries, seed) -> np.ndarray:
    """Gain of every scheduler on one load."""
    load = machine.load(served, queries, seed)
    base_rps = machine.capacity_rps(BASE, load)
    return np.array([machine.capacity_rps(scheduler, load) / base_rps - 1 for scheduler in SCHEDULERS])


def guesses(options) -> tuple[list[str], Iterator[list[object]]]:
    """Columns and rows: gains on the mixed load by what is guessed otherwise and seed, and over the seeds."""
    def rows() -> Iterator[list[object]]:
        for name, settings in _variants():
            machine = Machine(networks().values(), **settings)
            several = float((machine.catalogue.kept > 1).mean())
            served = np.arange(len(machine.networks))
            each = np.array([_gains(machine, served, options.queries, seed) for seed in options.seeds])
            yield from ([name, str(seed), *row, several] for seed, row in zip(options.seeds, each, strict=True))
            for told in TOLD:
                yield [name, told, *getattr(each, told)(axis=0), several]

    return ["variant", "seed", *SCHEDULERS, "layers_of_several_versions"], rows()


def _variants() -> Iterator[tuple[str, dict[str, object]]]:
    """What to vary: (name, machine settings)."""
    yield "as shipped", {}
    for planned in (0.6, 0.7, 0.9):
        yield f"{planned:.0%} of the QoS planned, not {PLANNED:.0%}", {"planned": planned}
    for factor in (0.5, 2):
        yield f"{factor:g} times live_bytes", {"cpu": PUBLISHED._replace(live_bytes=factor * PUBLISHED.live_bytes)}
    for field, factor in product(NUDGED, (0.9, 1.1)):
        yield f"{factor:g} times {field}", {"cpu": PUBLISHED._replace(**{field: factor * getattr(PUBLISHED, field)})}
    slow = CALIBRATED._replace(core_l3_bps=SLOW_L3 * CALIBRATED.core_l3_bps)
    yield f"calibrated and {SLOW_L3:g} times core_l3_bps", {"cpu": slow}


def needed(options) -> tuple[list[str], Iterator[list[object]]]:
    """Columns and rows: average cores, and parts of the mixed load's core time, by network."""
    def rows() -> Iterator[list[object]]:
        for cpu, tokens in product(options.cpus, options.tokens):
            machine = Machine(networks(tokens).values(), CPUS[cpu])
            core_s = machine.alone(BASE).core_s / machine.catalogue.qos_s  # the load has more of the shorter QoS
            for at, network in enumerate(machine.networks):
                yield [cpu, tokens, network.name, int(machine.catalogue.average[-1, at]),
                       float(core_s[at] / core_s.sum())]

    return ["cpu", "bert_tokens", "network", "average_cores", "part_of_work"], rows()


def shaped(options) -> tuple[list[str], Iterator[list[object]]]:
    """Columns and rows: the paper's shapes, numbered by figure, by CPU and tokens: the seeds with which each comes out,
    and what it is by seed; ``all`` counts those that come out."""
    def rows() -> Iterator[list[object]]:
        for cpu, tokens in product(options.cpus, options.tokens):
            found = [_judged(cpu, tokens, seed, options.queries) for seed in options.seeds]
            counts = [sum(shape.holds for shape in one) for one in found]
            yield [cpu, tokens, "all", "shapes that come out", len(found[0]), None, *map(str, counts)]
            figures = Counter()
            for each in zip(*found, strict=True):
                figures[each[0].figure] += 1
                yield [cpu, tokens, f"{each[0].figure}.{figures[each[0].figure]}", each[0].claim, each[0].paper,
                       sum(shape.holds for shape in each), *(shape.ours for shape in each)]

    return ["cpu", "bert_tokens", "shape", "claim", "paper", "seeds_that_hold",
            *(f"seed {seed}" for seed in options.seeds)], rows()


def tolerated(options) -> tuple[list[str], Iterator[list[object]]]:
    """Columns and rows: figure 6 by CPU and how slow its L3 is."""
    def rows() -> Iterator[list[object]]:
        for name, factor in product(options.cpus, SLOWER_L3):
            cpu = CPUS[name]._replace(core_l3_bps=factor * CPUS[name].core_l3_bps)
            times_s = levels_s(candidates_of(FIGURE_6, cpu), FIGURE_6_CORES, cpu)
            best, alone_s = times_s.argmin(axis=1), times_s[0]
            several = float((Machine(networks().values(), cpu).catalogue.kept > 1).mean())
            yield [name, f"{factor:g}", len(set(best.tolist())), alone_s[best[-1]] / alone_s.min() - 1,
                   times_s[-1, best[0]] / alone_s[best[0]], several]

    return ["cpu", "l3", "best_somewhere", "tolerant_slower_alone", "fastest_slowed",
            "layers_of_several_versions"], rows()


def _judged(cpu, tokens, seed, queries):
    """The shapes of all figures with one seed."""
    study = Study(queries, seed, served=networks(tokens), cpu=CPUS[cpu])
    return shapes({part: getattr(study, f"figure_{part}")() for parts in FIGURES.values() for part in parts})


if __name__ == "__main__":
    main()
