"""``provision train``: train a policy of InSS's scheduler for the system of an instance."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from provision import draw
from provision.commands.common import counting, print_json
from provision.commands.verb import Writing
from provision.draw.figures import check_picture, write_figure
from provision.heuristics.inss.inss import METHODS
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.running import regressed_ms
from provision.heuristics.inss.system import System
from provision.instances.files.files import check_writable, write_bytes
from provision.instances.read import read
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, PositiveCount
from provision.training.settings import SETTINGS

EPISODES = 1500
"""The number of episodes in the paper's training (Table 1)."""
BETWEEN_CHECKPOINTS = 5
"""The number of rounds of episodes between two checkpoints."""
LATEST = 16
"""The number of last episodes that are summarised at the end."""


if TYPE_CHECKING:
    from provision.training.train import Training


class Train(Writing):
    """``provision train``."""

    instance: str = operand("INSTANCE", "trained for its rates and those within --spread")
    out: str = local(..., "F", "write the policy here, checkpoints to F.state")
    episodes: Annotated[PositiveCount, Field(le=10**6)] = local(EPISODES, "N", "in all")
    seed: Count = local(0, "N", "of all random numbers")
    settings: str = local("stable", None, "as chosen here (default), or the public program's", choices=(*SETTINGS,))
    spread: Annotated[float, Field(ge=0, le=1)] = local(0.5, "F", "rates of 1-F to 1+F times the instance's")
    alone: str | None = local(None, "F", "running times by regression on this table of models alone")
    resume: Flag = local(False, None, "go on from F.state, up to N episodes in all")
    png: str | None = local(None, "F", "draw how it converges (.png or .svg)")

    def run(self) -> int:
        """Train, and print how it went."""
        system = _system(self)
        training = _training(system, self)
        with suppress(KeyboardInterrupt):
            _train(training, self)
        if not training.episodes:
            raise KeyboardInterrupt
        write_bytes(self.out, packed(training.policy), self.force or self.resume)
        if self.png:
            title = f"{system.instance.name}, seed {self.seed}"
            write_figure(draw.training.training_figure(training.history, title), self.png, self.force)
        _print(training, self)
        return 0 if training.episodes >= self.episodes else 1


def _system(options: Train) -> System:
    """The system for which to train; options that cannot work are refused before any work."""
    for package in ("torch", "gymnasium"):
        if find_spec(package) is None:
            raise InputError(f"train needs {package}, which is not installed; pip install 'gpu-provision[rl]'")
    for path in (options.out, f"{options.out}.state"):
        check_writable(path, options.force or options.resume)
    if options.png:
        check_picture(options.png, options.force)
    if options.png == options.out:
        raise InputError(f"{options.out}: named by --out and by --png; give each a name of its own")
    instance = read(options.instance)
    METHODS[0].check(instance)
    system = System(instance)
    if options.alone:
        system.running_ms = regressed_ms(options.alone, system)
    return system


def _training(system: System, options: Train) -> Training:
    """A new Training, or the Training in the checkpoint if the options ask to resume."""
    from provision.training.checkpoint import load
    from provision.training.train import Training

    settings = SETTINGS[options.settings]._replace(spread=options.spread)
    if options.resume:
        return load(f"{options.out}.state", system, options.seed, settings)
    return Training(system, options.seed, settings)


def _train(training: Training, options: Train) -> None:
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


def _print(training: Training, options: Train) -> None:
    """Print a summary of the last episodes."""
    reward, late, throughput_rps = training.history[-LATEST:].mean(axis=0).tolist()
    if options.as_json:
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
