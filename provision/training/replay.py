"""Keeps the replay buffer of Algorithm 2: the latest transitions, from which mini-batches are drawn at random.

Rewards are normalised (section 5.4 says so, but not how): they are multiplied by ``Settings.scale``.

With ``Settings.prioritised`` a transition is drawn, without replacement, in proportion to the squared error that it had
when it was last learned from; a new one has the largest error so far. As in the public program, the draws are not
corrected for that by weights.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provision.heuristics.inss.policy import inputs
from provision.heuristics.inss.system import System
from provision.models.base.arrays import Ints
from provision.training.settings import Settings

MINI_BATCH = 100
"""Table 1."""
FIRST_ERROR, LEAST_ERROR = 1e-2, 1e-4
"""The error of the first transitions, and what is added to every error so that each can be drawn."""


class Replay:
    """Transitions in a ring, as tensors: states, actions, rewards, states after."""

    def __init__(self, system: System, settings: Settings) -> None:
        self.settings, size = settings, settings.capacity
        state = size, inputs(system)
        self.columns = [
            torch.zeros(state), torch.zeros((size, system.workloads, 2), dtype=torch.int64),
            torch.zeros(size), torch.zeros(state),
        ]
        self.count = 0
        self.errors, self.most = np.zeros(size), FIRST_ERROR
        self.drawn = torch.zeros(0, dtype=torch.int64)

    def add(self, *transitions: NDArray[Any]) -> None:
        """Add transitions, one array per column; the oldest are replaced."""
        rows = torch.from_numpy((self.count + np.arange(len(transitions[0]))) % self.settings.capacity)
        for column, values in zip(self.columns, transitions, strict=True):
            column[rows] = torch.from_numpy(values).to(column.dtype)
        self.errors[rows] = self.most
        self.count += len(rows)

    def sample(self, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """A random mini-batch of tensors with normalised rewards; None as long as the buffer has too few transitions.
        """
        if self.count < MINI_BATCH:
            return None
        held = min(self.count, self.settings.capacity)
        rows = self.drawn = torch.from_numpy(self._drawn(rng, held))
        states, actions, rewards, after = (column[rows] for column in self.columns)
        return states, actions, self.settings.scale * rewards, after

    def _drawn(self, rng: np.random.Generator, held: int) -> Ints:
        """The indices of the transitions of a mini-batch, drawn from the ``held`` transitions in the buffer."""
        if not self.settings.prioritised:
            return rng.integers(0, held, MINI_BATCH)
        chances = self.errors[:held] + LEAST_ERROR
        return rng.choice(held, MINI_BATCH, replace=False, p=chances / chances.sum())

    def learned(self, errors: torch.Tensor) -> None:
        """Note the squared errors, (MINI_BATCH,), that the transitions drawn last had."""
        self.errors[self.drawn] = errors.numpy()
        self.most = max(self.most, float(errors.max()))
