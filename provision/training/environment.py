"""Simulates the environment in which InSS's scheduler learns: its system under drifting rates, by analytic models
(section 5.2).

State, action and reward are those of the paper. The state is the rate and the backlog of every workload, and the used
memory of every GPU where the performance data states memory. The action is a GPU and a level of its SM share for each
workload. The reward is the sum of throughputs, each relative to batch size 1 on a whole GPU, minus a penalty for late
tasks (eq. 3). A workload for which no memory is left serves nothing, and all of its tasks are late.

Batches are decided by InSS's equations. How long they then take is told by the same equations, or by those of the
performance data, as the verifier has it; then a placement whose batches InSS misjudges is punished.

A step is one second. Tasks arrive evenly. A task is late if its latency by eq. 2 exceeds the SLO, or if it is dropped
because it can no longer be in time (as in the public program). Where the paper is silent, the public program is
followed: the shares fill every GPU; rates begin anywhere in their range, move up or down every 10 s, and reverse at the
ends of the range.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from provision.heuristics.inss.batches import decide_batches
from provision.heuristics.inss.policy import LEVELS, inputs, observation, provisioning
from provision.heuristics.inss.system import Judged, System
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.traffic.rules import task_latency_ms

STEPS = 200
"""The number of steps of an episode (Table 1, T)."""
PENALTY = 100.0
"""The penalty if all tasks of a workload are late (section 6.1, omega)."""
DRIFT_EVERY, DRIFT = 10, 0.05
"""The number of steps after which rates move, and how far they move, as a fraction of their range."""
MOMENTS = (np.arange(64)[:, None, None] + 0.5) / 64
"""The moments within a step, as fractions of it, at which the latency of arriving tasks is computed."""


class Serving(VectorEnv):
    """InSS's system in several episodes that run at the same time.

    Parameters
    ----------
    system
        The system; its rates are the middle of their ranges.
    episodes
        The number of episodes.
    spread
        The rates stay between 1 - spread and 1 + spread times the system's.
    by_data
        Whether batches take as long as the performance data says.
    """

    def __init__(self, system: System, episodes: int, spread: float, by_data: bool = False) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.system, self.num_envs = system, episodes
        self.runs = System(system.instance, judged=Judged.BY_DATA) if by_data else system
        self.low_rps, self.high_rps = (1 - spread) * system.rates_rps, (1 + spread) * system.rates_rps
        self.shape = episodes, system.workloads
        self.single_observation_space = Box(0, np.inf, (inputs(system),), np.float32)
        self.single_action_space = MultiDiscrete(np.tile([system.gpus, LEVELS], (system.workloads, 1)))
        self.observation_space = batch_space(self.single_observation_space, episodes)
        self.action_space = batch_space(self.single_action_space, episodes)
        self.alone_rps = system.alone_rps()
        self.used_gib = np.zeros((episodes, system.gpus))

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start new episodes with empty queues; rates begin anywhere in their ranges and move in random directions."""
        super().reset(seed=seed)
        self.clock = 0
        self.rates_rps = self.np_random.uniform(self.low_rps, self.high_rps, self.shape)
        self.direction = self.np_random.choice([-1, 1], self.shape)
        self.queued = np.zeros(self.shape)
        self.used_gib = np.zeros_like(self.used_gib)
        return self._observe(), {}

    def step(self, actions: Ints) -> tuple[NDArray[np.float32], Floats, Bools, Bools, dict[str, Any]]:
        """Decide batches and let a second pass: lines 7 and 8 of Algorithm 2."""
        given = provisioning(self.system, actions)
        batch, _ = decide_batches(self.system, given, self.rates_rps, self.queued)
        deployed, self.used_gib = self.system.deployed(given, batch)
        latency_ms, throughput_rps = self.runs.run(given, batch, deployed)
        late = self._serve(batch, latency_ms, throughput_rps)
        rewards = (throughput_rps / self.alone_rps - PENALTY * late).sum(1)
        info = {"throughput_rps": throughput_rps.sum(1), "late": np.mean(late, axis=1)}
        self._drift()
        over = np.full(self.num_envs, self.clock >= STEPS)
        return self._observe(), rewards, np.zeros_like(over), over, info

    def _serve(self, batch: Ints, latency_ms: Floats, throughput_rps: Floats) -> Floats:
        """Serve the tasks of one second; return the fraction of each workload's tasks that are late, (episodes,
        workloads).
        """
        most = np.floor(self.system.slo_ms / latency_ms) * batch
        growth = self.rates_rps - throughput_rps
        ahead = np.clip(self.queued + growth * MOMENTS, 0, most)
        waiting = np.maximum(ahead, np.floor(self.rates_rps * MOMENTS) % batch) + 1
        task_ms = task_latency_ms(waiting, batch, self.rates_rps, latency_ms)
        late = np.mean(task_ms > self.system.slo_ms * (1 + TOLERANCE), axis=0)
        after = self.queued + growth
        dropped = np.maximum(after - most, 0) / np.maximum(self.rates_rps, 1)
        self.queued = np.clip(after, 0, most)
        return np.minimum(late + dropped, 1)

    def _drift(self) -> None:
        """Advance the clock by one second, and move the rates if it is time."""
        self.clock += 1
        if self.clock % DRIFT_EVERY == 0:
            moved = self.rates_rps + self.direction * DRIFT * (self.high_rps - self.low_rps)
            self.direction = np.where((moved < self.low_rps) | (moved > self.high_rps), -self.direction, self.direction)
            self.rates_rps = np.clip(moved, self.low_rps, self.high_rps)

    def _observe(self) -> NDArray[np.float32]:
        return observation(self.system.rates_rps, self.system, self.rates_rps, self.queued, self.used_gib)
