"""How InSS's training converges, by settings and seeds.

Run as ``python benchmarks/papers/inss_training.py [--episodes N] [--seeds S ...] [--variants V ...] [--out DIR]``.
A variant is one of the shipped settings; ``program`` is the public program's, with an update per transition. A row
has the mean reward of a step and the part of late tasks in each eighth of the episodes, as they explored, the reward of
the worst episode of the second half, and the best actor's. With
--out every policy is written as ``VARIANT-SEED.npz``, and what every episode came to (figures 13 and 14) as
``VARIANT-SEED.csv``; from ``VARIANT-SEED.state`` there a run goes on where an earlier one ended, with --seconds
after so many; --seconds 0 runs none, and tells of those that have run. With --results the table and the episodes of the
whole runs in DIR become result files, in which other variants stay.
"""

import argparse
import math
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import results
from inss import trained_on

from provision.draw.output import print_table
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.system import System
from provision.instances.files.files import write_bytes
from provision.training.settings import SETTINGS
from provision.training.train import COLUMNS, Training, load, save

PARTS = 8
WINDOW = 64
"""Episodes that a mean told on the way is taken over."""


def trained(system, name, settings, seed, options) -> Training:
    """A Training, told on stderr; with --out it begins at its checkpoint, and writes one at its end."""
    state = Path(options.out or "") / f"{name}-{seed}.state"
    training = Training(system, seed, settings)
    if options.out and state.exists():
        training = load(state, system, seed, settings)
    started, told = perf_counter(), 0
    while training.episodes < options.episodes and perf_counter() - started < options.seconds:
        training.run()
        if training.episodes - told >= WINDOW:
            told = training.episodes
            reward, late, _ = training.history[-WINDOW:].mean(axis=0)
            print(f"{name} {seed} {told}: {reward:.4g} late {late:.2%} best {training.best[0]:.4g}",
                  file=sys.stderr, flush=True)
    if options.out and training.episodes:
        save(training, state)
    return training


def row(system, name, settings, seed, options) -> tuple[list[object], list[list[object]]] | None:
    """One line of the table, and the lines of its episodes; None of a run that has not begun."""
    training = trained(system, name, settings, seed, options)
    if not training.episodes:
        return None
    if options.out:
        path = Path(options.out) / f"{name}-{seed}"
        write_bytes(path.with_suffix(".npz"), packed(training.policy), True)
        np.savetxt(path.with_suffix(".csv"), training.history, "%.6g", ",", header=",".join(COLUMNS), comments="")
    means = [part.mean(axis=0) for part in np.array_split(training.history, PARTS)]
    worst = training.history[training.episodes // 2 :, 0].min()
    parts = [number for reward, late, _ in means for number in (reward, 100 * late)]
    episodes = [[name, seed, at, *found] for at, found in enumerate(training.history.tolist(), 1)]
    return [name, seed, training.episodes, *parts, worst, training.best[0]], episodes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", default="inss")
    parser.add_argument("--episodes", type=int, default=1500)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="*", default=[*SETTINGS], choices=SETTINGS)
    parser.add_argument("--out")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most seconds per run")
    results.add_results(parser)
    options = parser.parse_args()
    instance, spread = trained_on(options.instance)
    system, settings = System(instance), [(name, SETTINGS[name]._replace(spread=spread)) for name in options.variants]
    found = list(filter(None, (row(system, *one, seed, options) for one in settings for seed in options.seeds)))
    means = (f"{what} {part}/{PARTS}" for part in range(1, PARTS + 1) for what in ("reward", "late %"))
    columns, rows = ("settings", "seed", "episodes", *means, "worst of 2nd half", "best"), [one for one, _ in found]
    print_table(columns, rows)
    name = f"{options.instance}-training"
    _write(options.results, name, columns, rows, options)
    _write(options.results and f"{options.results}/episodes", name, ("settings", "seed", "episode", *COLUMNS),
           [line for _, lines in found for line in lines], options)


def _write(folder, name, columns, rows, options) -> None:
    """Write a result file; its rows of variants that were not asked for stay."""
    known = results.earlier(folder, name)
    others = [list(row.values()) for row in known.rows if row["settings"] not in options.variants]
    results.write(folder, name, columns, rows + others, options.seeds, results.commits(known))


if __name__ == "__main__":
    main()
