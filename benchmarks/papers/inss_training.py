"""How InSS's training converges, and what makes it fall apart: settings changed one by one, several seeds.

Run as ``python benchmarks/papers/inss_training.py [--episodes N] [--seeds S ...] [--variants V ...] [--out DIR]``.
A variant is one of the two shipped settings, or names fields of the stable ones that are as in the paper, as in
``half_life`` or ``whole,half_life``. A row has the mean reward of a step and the part of late tasks in each eighth of
the episodes, as they explored, the reward of the worst episode of the second half, the best actor's, and CPU time. With
--out every policy is written as ``VARIANT-SEED.npz``, and what every episode came to (figures 13 and 14) as
``VARIANT-SEED.csv``.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

import numpy as np

import provision
from provision.commands.common import print_table
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.system import System
from provision.instances.files.files import write_bytes
from provision.training.settings import PAPER, SETTINGS, STABLE
from provision.training.train import COLUMNS, Training

PARTS = 8
WINDOW = 64
"""Episodes that a mean told on the way is taken over."""


def variant(name):
    """A name and its settings."""
    if name in SETTINGS:
        return name, SETTINGS[name]
    if not set(name.split(",")) <= set(STABLE._fields):
        raise ValueError
    return name, STABLE._replace(**{field: getattr(PAPER, field) for field in name.split(",")})


def trained(system, name, settings, seed, episodes):
    """A Training of so many episodes, told on stderr, and its CPU seconds."""
    training, started = Training(system, seed, settings), process_time()
    while training.episodes < episodes:
        training.run()
        reward, late, _ = training.history[-WINDOW:].mean(axis=0)
        print(f"{name} {seed} {training.episodes}: {reward:.4g} late {late:.2%} best {training.best[0]:.4g}",
              file=sys.stderr, flush=True)
    return training, process_time() - started


def row(system, name, settings, seed, options):
    """One line of the table."""
    training, cpu_s = trained(system, name, settings, seed, options.episodes)
    if options.out:
        path = Path(options.out) / f"{name}-{seed}"
        write_bytes(path.with_suffix(".npz"), packed(training.policy), True)
        np.savetxt(path.with_suffix(".csv"), training.history, "%.6g", ",", header=",".join(COLUMNS), comments="")
    means = [part.mean(axis=0) for part in np.array_split(training.history, PARTS)]
    worst = training.history[training.episodes // 2 :, 0].min()
    return [name, seed, training.episodes, *(f"{reward:.4g}, {late:.2%}" for reward, late, _ in means),
            f"{worst:.4g}", f"{training.best[0]:.4g}", f"{cpu_s:.0f}"]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", default="inss")
    parser.add_argument("--episodes", type=int, default=1500)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="*", type=variant, default=list(SETTINGS.items()))
    parser.add_argument("--out")
    options = parser.parse_args()
    system = System(provision.read(options.instance))
    rows = [row(system, *one, seed, options) for one in options.variants for seed in options.seeds]
    means = (f"to {part}/{PARTS}" for part in range(1, PARTS + 1))
    print_table(["settings", "seed", "episodes", *means, "worst of 2nd half", "best", "CPU s"], rows)


if __name__ == "__main__":
    main()
