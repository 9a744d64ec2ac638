"""How InSS's training converges, and what makes it fall apart: settings changed one by one, several seeds.

Run as ``python benchmarks/papers/inss_training.py [--episodes N] [--seeds S ...] [--variants V ...] [--out DIR]``.
Variants are the two shipped settings, and the stable ones with one of them as in the paper. A row has the mean reward
and the part of late tasks of the episodes before each quarter's end, as they explored, the best actor's reward and CPU
time. With --out every policy is written as ``VARIANT-SEED.npz``.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

import provision
from provision.commands.common import print_table
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.system import System
from provision.instances.files.files import write_bytes
from provision.training.settings import PAPER, SETTINGS, STABLE
from provision.training.train import Training

VARIANTS = SETTINGS | {f"stable, {name} as in the paper": STABLE._replace(**{name: getattr(PAPER, name)})
                       for name in STABLE._fields}
QUARTERS = (0.25, 0.5, 0.75, 1.0)
WINDOW = 64
"""Episodes that a mean is taken over."""


def trained(system, name, seed, episodes):
    """A Training of so many episodes, told on stderr, and its CPU seconds."""
    training, started = Training(system, seed, VARIANTS[name]), process_time()
    while training.episodes < episodes:
        training.run()
        reward, late, _ = training.history[-WINDOW:].mean(axis=0)
        print(f"{name} {seed} {training.episodes}: {reward:.4g} late {late:.2%} best {training.best[0]:.4g}",
              file=sys.stderr, flush=True)
    return training, process_time() - started


def row(system, name, seed, options):
    """One line of the table."""
    training, cpu_s = trained(system, name, seed, options.episodes)
    if options.out:
        write_bytes(Path(options.out) / f"{name}-{seed}.npz", packed(training.policy), True)
    means = []
    for part in QUARTERS:
        end = round(part * training.episodes)
        reward, late, _ = training.history[max(0, end - WINDOW) : end].mean(axis=0)
        means.append(f"{reward:.4g}, {late:.2%}")
    return [name, seed, training.episodes, *means, f"{training.best[0]:.4g}", f"{cpu_s:.0f}"]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", default="inss")
    parser.add_argument("--episodes", type=int, default=1500)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="*", default=list(SETTINGS), choices=list(VARIANTS))
    parser.add_argument("--out")
    options = parser.parse_args()
    system = System(provision.read(options.instance))
    rows = [row(system, name, seed, options) for name in options.variants for seed in options.seeds]
    means = (f"reward, late at {part:.0%}" for part in QUARTERS)
    print_table(["settings", "seed", "episodes", *means, "best", "CPU s"], rows)


if __name__ == "__main__":
    main()
