"""InSS's system: DNN models on a fixed number of GPUs under MPS, and what they do to each other there.

Many such systems are judged side by side, each with its own placement: arrays are (systems, workloads). A workload
has one replica, on one GPU, with a number of *units* of the GPU's SMs, U_k of which make a whole GPU.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from provision.models.base.errors import UnsupportedError
from provision.models.performance.igniter import Terms, igniter_data, solo_terms, together
from provision.models.problem.instance import THROUGHPUT

if TYPE_CHECKING:
    from provision.models.base.arrays import Bools, Floats, Ints
    from provision.models.problem.instance import Instance


class Provisioning(NamedTuple):
    """What the scheduler decides first: the GPU of every workload and its SM share in units; (systems, workloads)."""

    gpu: Ints
    units: Ints

    def together_with(self, workload: int) -> Bools:
        """Who is on one GPU with a workload, itself included; (systems, workloads)."""
        return self.gpu == self.gpu[:, workload, None]


class System:
    """Workloads, GPUs and performance data of an instance, as arrays.

    Parameters
    ----------
    instance
        With a single fleet entry and one file of performance data, of kind igniter.

    Raises
    ------
    UnsupportedError
        When its objective is not throughput, it has no GPU, or its GPUs fewer units than there are workloads.
    """

    def __init__(self, instance: Instance) -> None:
        if instance.objective != THROUGHPUT:
            raise UnsupportedError(f"inss plans for {THROUGHPUT}, not for {instance.objective}; use --method auto")
        self.instance = instance
        self.data = igniter_data(instance.performance)[instance.fleet[0].gpu]
        self.gpus, self.units = instance.fleet[0].count or 0, self.data.hardware.units
        self.rates_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.slo_ms = instance.policy.safety * np.array([one.slo_ms for one in instance.workloads])
        self.budget_ms = np.array([instance.budget_ms(one) for one in instance.workloads])
        if not self.gpus or self.workloads > self.units:
            count = instance.fleet[0].count
            raise UnsupportedError(
                f"inss plans up to {self.units} workloads on at least one GPU, not {self.workloads} on {count}; "
                "use --method auto"
            )

    @property
    def workloads(self) -> int:
        """Their number."""
        return len(self.slo_ms)

    @cached_property
    def _terms(self) -> Floats:
        """Terms of arrays (workloads, batch, units), zeros at batch 0 and at no units."""
        batches = np.arange(1, self.data.max_batch + 1)[:, None]
        shares = self.data.hardware.unit_share * np.arange(1.0, self.units + 1)
        table = np.zeros((len(Terms._fields), self.workloads, self.data.max_batch + 1, self.units + 1))
        for at, one in enumerate(self.instance.workloads):
            table[:, at, 1:, 1:] = solo_terms(self.data, one.model, batches, shares)
        return table

    def beside(self, members: Bools, units: Ints, batch: Ints) -> tuple[Floats, Floats]:
        """Batch latencies (ms) and throughputs (requests/s) of those who share a GPU.

        Parameters
        ----------
        members, units, batch
            Arrays (..., workloads): who is on the GPU, and how all would run.
        """
        terms = self._terms[:, np.arange(self.workloads), np.where(members, batch, 0), units]
        return together(self.data.hardware, Terms(*terms))

    def alone_rps(self) -> Floats:
        """Throughput of every workload with a GPU to itself and batch 1 (H_i)."""
        alone, ones = np.eye(self.workloads, dtype=bool), np.ones((self.workloads, self.workloads), int)
        return np.diag(self.beside(alone, self.units * ones, ones)[1])

    def run(self, given: Provisioning, batch: Ints) -> tuple[Floats, Floats]:
        """Batch latencies and throughputs of all workloads of the systems."""
        on = given.gpu[:, None, :] == np.arange(self.gpus)[:, None]
        latency_ms, throughput_rps = self.beside(on, given.units[:, None, :], batch[:, None, :])
        own = np.arange(len(given.gpu))[:, None], given.gpu, np.arange(self.workloads)
        return latency_ms[own], throughput_rps[own]


def filled(gpu: Ints, wishes: Ints, gpus: int, limit: int) -> Ints:
    """Units that use every GPU to the full (1a): one is taken from, or given to, its workloads in turn.

    Parameters
    ----------
    gpu, wishes
        Arrays (systems, workloads): where they are, and how many units each asks for, 1 or more.
    gpus, limit
        How many GPUs there are, and units on each.
    """
    on = gpu[..., None] == np.arange(gpus)
    units, rows = wishes.copy(), np.arange(len(gpu))[:, None]
    while True:
        excess = ((units[..., None] * on).sum(1) - limit)[rows, gpu]
        may = (excess < 0) | ((excess > 0) & (units > 1))
        if not may.any():
            return units
        turn = np.take_along_axis(np.cumsum(may[..., None] & on, axis=1), gpu[..., None], axis=2)[..., 0]
        units -= np.sign(excess) * (may & (turn <= np.abs(excess)))
