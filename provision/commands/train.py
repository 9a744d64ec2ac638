"""``provision train``: train a policy of InSS's scheduler for the system of an instance."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from provision import draw
from provision.commands.common import add_force, add_json, counting, print_json
from provision.draw.figures import check_picture, write_figure
from provision.heuristics.inss.inss import METHODS
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.system import System
from provision.instances.files.files import check_writable, write_bytes
from provision.instances.read import read
from provision.models.base.errors import InputError
from provision.training.settings import SETTINGS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.training.train import Training

EPISODES = 1500
"""The number of episodes in the paper's training (Table 1)."""
MOST_EPISODES = 10**6
BETWEEN_CHECKPOINTS = 5
"""The number of rounds of episodes between two checkpoints."""
LATEST = 16
"""The number of last episodes that are summarised at the end."""


def add_train(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="trained for half to one and a half times its rates")
    parser.add_argument("--out", required=True, metavar="F", help="write the policy here, checkpoints to F.state")
    parser.add_argument("--episodes", type=int, default=EPISODES, metavar="N", help=f"in all (default: {EPISODES})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all random numbers (default: 0)")
    parser.add_argument("--settings", default="stable", choices=(*SETTINGS,),
                        help="as chosen here, the paper's, or its program's: one learner per head (default: stable)")
    parser.add_argument("--resume", action="store_true", help="go on from F.state, up to N episodes in all")
    parser.add_argument("--png", metavar="F", help="draw how it converges (.png or .svg)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    system = _system(options)
    training = _training(system, options)
    with suppress(KeyboardInterrupt):
        _train(training, options)
    if not training.episodes:
        raise KeyboardInterrupt
    write_bytes(options.out, packed(training.policy), options.force or options.resume)
    if options.png:
        title = f"{system.instance.name}, seed {options.seed}"
        write_figure(draw.training.training_figure(training.history, title), options.png, options.force)
    _print(training, options)
    return 0 if training.episodes >= options.episodes else 1


def _system(options: Namespace) -> System:
    """The system for which to train; options that cannot work are refused before any work."""
    for package in ("torch", "gymnasium"):
        if find_spec(package) is None:
            raise InputError(f"train needs {package}, which is not installed; pip install 'provision[rl]'")
    if not 0 < options.episodes <= MOST_EPISODES:
        raise InputError(f"--episodes {options.episodes}: should be from 1 to {MOST_EPISODES}")
    if options.seed < 0:
        raise InputError(f"--seed {options.seed}: should be 0 or more")
    for path in (options.out, f"{options.out}.state"):
        check_writable(path, options.force or options.resume)
    if options.png:
        check_picture(options.png, options.force)
    if options.png == options.out:
        raise InputError(f"{options.out}: named by --out and by --png; give each a name of its own")
    instance = read(options.instance)
    METHODS[0].check(instance)
    return System(instance)


def _training(system: System, options: Namespace) -> Training:
    """A new Training, or the Training in the checkpoint if the options ask to resume."""
    from provision.training.checkpoint import load
    from provision.training.train import Training

    settings = SETTINGS[options.settings]
    if options.resume:
        return load(f"{options.out}.state", system, options.seed, settings)
    return Training(system, options.seed, settings)


def _train(training: Training, options: Namespace) -> None:
    """Run the remaining episodes, and save a checkpoint from time to time."""
    from provision.training.checkpoint import save

    with counting(f"training on {training.system.instance.name}", options.episodes) as advance:
        advance(training.episodes)
        rounds = 0
        while training.episodes < options.episodes:
            before = training.episodes
            training.run()
            rounds += 1
            advance(training.episodes - before)
            if rounds % BETWEEN_CHECKPOINTS == 0 or training.episodes >= options.episodes:
                save(training, f"{options.out}.state")


def _print(training: Training, options: Namespace) -> None:
    """Print a summary of the last episodes."""
    reward, late, throughput_rps = training.history[-LATEST:].mean(axis=0).tolist()
    if options.json:
        print_json({
            "instance": training.system.instance.name, "episodes": training.episodes, "seed": options.seed,
            "reward": reward, "late": late, "throughput_rps": throughput_rps, "best_reward": training.best[0],
            "policy_file": options.out, "png_file": options.png,
        })
        return
    print(
        f"{training.episodes} episodes; in the last {LATEST} reward {reward:.4g} a step, {late:.2%} of the tasks late, "
        f"{throughput_rps:.6g} requests/s as it explored; the policy has reward {training.best[0]:.4g}"
    )
    for path in filter(None, (options.out, options.png)):
        print(f"written to {path}")
