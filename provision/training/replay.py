"""Keeps the replay buffer of Algorithm 2: the latest transitions, from which mini-batches are drawn at random.

Rewards are normalised; section 5.4 says so, but not how. Without ``Settings.fixed`` the best reward in the buffer is
subtracted first, which keeps values of states near 0, where networks start; but when the best reward changes, all
values change at once. In both cases rewards are multiplied by ``SCALE``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from provision.heuristics.inss.system import System
    from provision.training.settings import Settings

MINI_BATCH = 100
"""The number of transitions in a mini-batch (Table 1)."""
SCALE = 0.02


class Replay:
    """Transitions in a ring, as tensors: states, actions, rewards, states after."""

    def __init__(self, system: System, settings: Settings) -> None:
        self.settings, size = settings, settings.capacity
        state = size, 2 * system.workloads
        self.columns = [
            torch.zeros(state), torch.zeros((size, system.workloads, 2), dtype=torch.int64),
            torch.zeros(size), torch.zeros(state),
        ]
        self.count = 0

    def add(self, *transitions: NDArray[Any]) -> None:
        """Add transitions, one array per column; the oldest are replaced."""
        rows = torch.from_numpy((self.count + np.arange(len(transitions[0]))) % self.settings.capacity)
        for column, values in zip(self.columns, transitions, strict=True):
            column[rows] = torch.from_numpy(values).to(column.dtype)
        self.count += len(rows)

    def sample(self, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """A random mini-batch of tensors with normalised rewards; None as long as the buffer has too few transitions.
        """
        if self.count < MINI_BATCH:
            return None
        held = min(self.count, self.settings.capacity)
        rows = torch.from_numpy(rng.integers(0, held, MINI_BATCH))
        states, actions, rewards, after = (column[rows] for column in self.columns)
        reference = 0.0 if self.settings.fixed else self.columns[2][:held].max()
        return states, actions, SCALE * (rewards - reference), after
