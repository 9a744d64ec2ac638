"""Runs InSS's Algorithm 2: episodes of the environment, after every step of which the agent learns from a mini-batch.

``Settings.side_by_side`` episodes run at the same time and share the updates, which takes a small fraction of the time
of an update per transition. Since an actor can become worse, it is tried after every round of episodes with its most
likely actions, always at the same random states, and the best so far is the policy. (The public program also picks
among its actors.)

Writes and reads checkpoints: files from which training is resumed.
"""

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provision.heuristics.inss.policy import Trained, TrainedPolicy, trained_for
from provision.heuristics.inss.system import System
from provision.instances.files.files import FilePath, reason, write_bytes
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.training.agent import Agent, Replay
from provision.training.environment import PENALTY, STEPS, Serving
from provision.training.settings import STABLE, Settings

TRIALS, TRIAL_SEED = 256, 0
"""The number of random states at which actors are tried, and the seed of these states."""
COLUMNS = ("reward", "late", "throughput_rps")
"""The columns of the history: means over the steps of an episode."""


class Training:
    """The state of Algorithm 2 while it runs.

    Parameters
    ----------
    system
        The system.
    seed
        The seed; on the same machine the same seed gives the same policy.
    settings
        The settings of the training.
    """

    def __init__(self, system: System, seed: int, settings: Settings = STABLE) -> None:
        # Several threads would add numbers in varying order, and would gain nothing with such small networks.
        torch.set_num_threads(1)
        self.system, self.seed = system, seed
        self.environment = Serving(system, settings.side_by_side, settings.spread, settings.by_data)
        self.settings = settings
        self.agent, self.replay = Agent(system, seed, settings.side_by_side, settings), Replay(system, settings)
        self.rng = np.random.default_rng(seed)
        self.trials = Serving(system, TRIALS, settings.spread, settings.by_data)
        self.best = -np.inf, self.agent.layers()
        self.history = np.zeros((0, len(COLUMNS)))

    @property
    def episodes(self) -> int:
        """The number of episodes run so far."""
        return len(self.history)

    @property
    def policy(self) -> TrainedPolicy:
        """The best TrainedPolicy so far."""
        return TrainedPolicy(trained_for(self.system, episodes=self.episodes, seed=self.seed), self.best[1])

    def run(self) -> None:
        """Run the next round of episodes (lines 3-16)."""
        self.agent.anneal(self.episodes)
        states, _ = self.environment.reset(seed=int(self.rng.integers(2**31)))
        total = np.zeros((self.settings.side_by_side, len(COLUMNS)))
        for _ in range(STEPS):
            actions = self.agent.act(states, self.rng)
            after, rewards, _, _, info = self.environment.step(actions)
            self.replay.add(states, actions, self._learned(rewards, info["late"]), after)
            if (batch := self.replay.sample(self.rng)) is not None:
                self.replay.learned(self.agent.learn(*batch))
            total += np.column_stack([rewards, info["late"], info["throughput_rps"]])
            states = after
        self.history = np.concatenate([self.history, total / STEPS])
        self._try()

    def _learned(self, rewards: Floats, late: Floats) -> Floats:
        """Rewards by ``Settings.penalty``, from those of eq. 3 and the mean parts of late tasks."""
        if self.settings.penalty is None:
            return rewards
        return rewards + (PENALTY * self.system.workloads - self.settings.penalty) * late

    def _try(self) -> None:
        """Try the actor at the trial states, and keep it if it is the best so far."""
        states, _ = self.trials.reset(seed=TRIAL_SEED)
        reward = float(self.trials.step(self.agent.act(states))[1].mean())
        if reward > self.best[0]:
            self.best = reward, self.agent.layers()

    def state(self) -> dict[str, Any]:
        """Everything that ``restore`` needs to continue from here."""
        return {
            "trained": self.policy.trained.model_dump_json(), "settings": list(self.settings),
            "networks": self.agent.networks.state_dict(),
            "optimizers": {name: one.state_dict() for name, one in self.agent.optimizers.items()},
            "replay": self.replay.columns, "count": self.replay.count,
            "errors": torch.from_numpy(self.replay.errors), "most": self.replay.most,
            "rng": json.dumps(self.rng.bit_generator.state),
            "history": torch.from_numpy(self.history),
            "best": [self.best[0], *(list(map(torch.from_numpy, pair)) for pair in self.best[1])],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state``."""
        self.agent.networks.load_state_dict(state["networks"])
        for name, one in self.agent.optimizers.items():
            one.load_state_dict(state["optimizers"][name])
        self.replay.columns, self.replay.count = state["replay"], state["count"]
        self.replay.errors, self.replay.most = state["errors"].numpy(), state["most"]
        self.rng.bit_generator.state = json.loads(state["rng"])
        self.history = state["history"].numpy()
        reward, *layers = state["best"]
        self.best = reward, tuple(tuple(part.numpy() for part in pair) for pair in layers)


def save(training: Training, path: FilePath) -> None:
    """Write everything that ``load`` needs; an older checkpoint is replaced."""
    file = io.BytesIO()
    torch.save(training.state(), file)
    write_bytes(path, file.getvalue(), force=True)


def load(path: FilePath, system: System, seed: int, settings: Settings) -> Training:
    """Read the training in a checkpoint. Raises InputError if the file cannot be read, is no checkpoint, or is of
    another system, seed or settings.
    """
    state, trained = _read(path)
    training = Training(system, seed, settings)
    if state.get("settings") != list(settings):
        raise InputError(f"{path}: was written with other --settings; leave out --resume to begin anew")
    if trained.model_copy(update={"episodes": 0}) != training.policy.trained:
        raise InputError(
            f"{path}: was written for another instance than {system.instance.name} or another seed than {seed} "
            f"(--seed {trained.seed}); leave out --resume to begin anew"
        )
    training.restore(state)
    return training


def _read(path: FilePath) -> tuple[dict[str, Any], Trained]:
    """The state in a checkpoint, and its description (Trained)."""
    try:
        state = torch.load(io.BytesIO(Path(path).read_bytes()), weights_only=True)
        return state, Trained.model_validate_json(state["trained"])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}; leave out --resume to begin anew") from None
    except (RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
        raise InputError(f"{path}: is no checkpoint of provision train; leave out --resume to begin anew") from None
