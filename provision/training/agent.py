"""Trains InSS's scheduler by a soft actor-critic for discrete actions (section 5.4, eqs. 5-9, Table 1).

As in the paper there are an actor, two Q-networks of which the lower value counts, target networks with soft updates, a
learned temperature, and Adam. The target entropy is the paper's. It is negative, but entropy never is; therefore eq. 9
only ever decreases the temperature, so that exploration decreases from much to none.

An action is one choice per head of the networks (see ``provision.heuristics.inss.policy``). The paper does not tell how
one network gives values to joint actions: see ``provision.training.settings``. ``Settings.separate`` is the public
program's way, which trains every head separately on the whole return, with a target entropy above 0.

The replay buffer of Algorithm 2 keeps the latest transitions, from which mini-batches are drawn at random. Rewards are
normalised (section 5.4 says so, but not how): they are multiplied by ``Settings.scale``.

With ``Settings.prioritised`` a transition is drawn, without replacement, in proportion to the squared error that it had
when it was last learned from; a new one has the largest error so far. As in the public program, the draws are not
corrected for that by weights.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from provision.heuristics.inss.policy import LEVELS, ActorLayers, inputs
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


HIDDEN = 512, 256
SOFT_UPDATE = 0.01
"""Fraction by which target networks move towards the Q-networks in an update (kappa)."""
ENTROPY = 0.98
"""Part of the logarithm of the number of GPUs and shares, W * K + W, that the public program aims at."""
RATE = 1e-4
"""The learning rate of Table 1, for one update per transition."""


class Networks(nn.Module):
    """The actor, the two Q-networks, their targets, and the logarithm of the temperature."""

    def __init__(self, system: System) -> None:
        super().__init__()
        sizes = inputs(system), *HIDDEN, system.workloads * (system.gpus + LEVELS)
        valued = *sizes[:-1], sizes[-1] + 1
        self.actor, *critics = (_perceptron(ends) for ends in (sizes, valued, valued))
        targets = [_perceptron(valued) for _ in critics]
        for target, critic in zip(targets, critics, strict=True):
            target.load_state_dict(critic.state_dict())
        self.critics, self.targets = nn.ModuleList(critics), nn.ModuleList(targets)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.target_entropy = -np.log(1 + sizes[-1])
        self.program_entropy = ENTROPY * np.log(system.workloads * (system.gpus + 1))


def _perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """A network of linear layers with ReLU between them."""
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    return nn.Sequential(*(part for layer in layers for part in (nn.ReLU(), layer)))[1:]


class Agent:
    """The networks and their updates: lines 1, 6 and 11-14 of Algorithm 2.

    Parameters
    ----------
    system
        The system on which the agent acts.
    seed
        The seed of the networks' initial weights.
    transitions
        The number of transitions between two updates. One update here replaces this number of updates of Algorithm 2;
        therefore the learning rate of the temperature is multiplied by the number, and that of the networks by its
        square root.
    settings
        The settings of the training.
    """

    def __init__(self, system: System, seed: int, transitions: int, settings: Settings) -> None:
        self.settings = settings
        self.heads = system.workloads, system.gpus + LEVELS
        self.split = [system.gpus, LEVELS]
        # ``starts`` are the indices of the first output of every head, (workloads, 2); ``centring`` is the matrix that
        # subtracts from each output the mean of its head.
        self.starts = self.heads[1] * torch.arange(system.workloads)[:, None] + torch.tensor([0, system.gpus])
        means = [torch.full((size, size), 1 / size) for size in system.workloads * self.split]
        self.centring = torch.eye(prod(self.heads)) - torch.block_diag(*means)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.networks = Networks(system)
        self.rate = RATE * transitions**0.5
        self.optimizers = {
            "critics": torch.optim.Adam(self.networks.critics.parameters(), self.rate, fused=True),
            "actor": torch.optim.Adam(self.networks.actor.parameters(), self.rate, fused=True),
            "temperature": torch.optim.Adam([self.networks.log_temperature], RATE * transitions),
        }

    @property
    def temperature(self) -> torch.Tensor:
        """The temperature tau, the weight of the entropy."""
        return self.networks.log_temperature.exp()

    @torch.no_grad()
    def act(self, observations: NDArray[np.float32], rng: np.random.Generator | None = None) -> Ints:
        """Actions of the policy, (systems, workloads, 2): drawn at random with ``rng``; without it, the most likely
        ones.
        """
        chances = [head.numpy() for head in self._cut(self._log_chances(torch.from_numpy(observations)))]
        noise = [rng.gumbel(size=head.shape) if rng else 0.0 for head in chances]
        return np.stack([(head + more).argmax(-1) for head, more in zip(chances, noise, strict=True)], axis=-1)

    def learn(self, states: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor,
              after: torch.Tensor) -> torch.Tensor:
        """One update of everything from a mini-batch, tensors with one row per transition (lines 11-14).

        Returns the squared error of every transition, the lower of the two critics'.
        """
        errors = self._critic_errors(states, actions, rewards, after)
        self._step("critics", sum((one.mean() for one in errors), torch.zeros(())))
        loss, temperature_loss = self._actor_losses(states)
        self._step("actor", loss)
        self._step("temperature", temperature_loss)
        with torch.no_grad():
            self.networks.log_temperature.clamp_(min=self.settings.coldest)
            for target, critic in zip(
                self.networks.targets.parameters(), self.networks.critics.parameters(), strict=True
            ):
                target.lerp_(critic, SOFT_UPDATE)
            return torch.minimum(*errors)

    def anneal(self, episodes: int) -> None:
        """Set the learning rate of the networks after this number of episodes."""
        for name in ("critics", "actor"):
            for group in self.optimizers[name].param_groups:
                group["lr"] = self.rate * 0.5 ** (episodes / self.settings.half_life) ** 2

    def _step(self, name: str, loss: torch.Tensor) -> None:
        """Take one gradient step on a loss with an optimizer."""
        self.optimizers[name].zero_grad()
        loss.backward()
        self.optimizers[name].step()

    def _critic_errors(self, states: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor,
                       after: torch.Tensor) -> list[torch.Tensor]:
        """Every critic's squared errors by transition, eq. 6 with the targets of eq. 7."""
        with torch.no_grad():
            values, chances = self._values_by(self.networks.targets, after), self._log_chances(after)
            if self.settings.separate:
                least = torch.minimum(*(choices for _, choices in values))
                targets = rewards[:, None] + self.settings.discount * self._by_head(chances, least)
            else:
                targets = rewards + self.settings.discount * self._least(chances, values)
        outputs = [critic(states) for critic in self.networks.critics]
        if self.settings.separate:
            return [(self._taken(one[:, 1:], actions) - targets).square().sum(1) for one in outputs]
        return [(self._of_actions(one, actions) - targets).square() / 2 for one in outputs]

    def _actor_losses(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Eq. 8, and the loss of the temperature."""
        chances = self._log_chances(states)
        with torch.no_grad():
            values = self._values_by(self.networks.critics, states)
            entropy = -(chances.exp() * chances).sum(1).mean() / (len(self.split) * self.heads[0])
        loss, networks = -self._least(chances, values).mean(), self.networks
        if self.settings.separate:
            return loss, -networks.log_temperature * (chances.detach().mean() + networks.program_entropy)
        return loss, self.temperature * (entropy - networks.target_entropy)

    def _by_head(self, chances: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
        """(systems, heads) the soft value of every head: its expected value plus temperature times entropy. The heads
        over GPUs come first.
        """
        soft = chances.exp() * (choices - self.temperature.detach() * chances)
        return torch.cat([head.sum(-1) for head in self._cut(soft)], 1)

    def _taken(self, choices: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """(systems, heads) the values of the choices taken, in the order of ``_by_head``."""
        return choices.gather(1, (actions + self.starts).transpose(1, 2).flatten(1))

    def _least(self, chances: torch.Tensor, values: Sequence[tuple[torch.Tensor, ...]]) -> torch.Tensor:
        """The lower of two critics' soft values; with ``Settings.separate`` that of each choice's lower values."""
        if self.settings.separate:
            return self._soft_values(chances, tuple(map(torch.minimum, *values)))
        return torch.minimum(*(self._soft_values(chances, one) for one in values))

    def _soft_values(self, chances: torch.Tensor, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """The value of the state, plus the sum over heads of expected value and temperature times entropy."""
        state, choices = values
        return state + (chances.exp() * (choices - self.temperature.detach() * chances)).sum(1)

    def _log_chances(self, states: torch.Tensor) -> torch.Tensor:
        """The logarithms of the policy's probabilities, (systems, choices of all heads)."""
        heads = self._cut(self.networks.actor(states))
        return torch.cat([functional.log_softmax(head, -1) for head in heads], -1).flatten(1)

    def _values_by(self, critics: nn.ModuleList, states: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
        """For every critic the values of the states and of every choice of every head."""
        return [self._values(critic(states)) for critic in critics]

    def _of_actions(self, outputs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The values of actions, from a critic's outputs."""
        state, choices = self._values(outputs)
        return state + choices.gather(1, (actions + self.starts).flatten(1)).sum(1)

    def _values(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A critic's outputs, split into values of states and values of the choices of all heads."""
        state, choices = outputs[:, 0], outputs[:, 1:]
        if self.settings.separate:
            return torch.zeros_like(state), choices
        return state, choices @ self.centring

    def _cut(self, outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Outputs split into heads: those over GPUs, and those over levels."""
        return outputs.reshape(-1, *self.heads).split(self.split, -1)

    def layers(self) -> ActorLayers:
        """The weights and biases of the actor's layers, as arrays."""
        parameters = [value.detach().numpy().copy() for value in self.networks.actor.parameters()]
        return tuple(zip(parameters[::2], parameters[1::2], strict=True))
