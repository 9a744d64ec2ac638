"""gpu-lets' data as arrays, and the duty cycles that keep every SLO and rate.

The arrays are built once from an instance. Workloads and shares are indices. A *load* holds the rates (requests/s) of
the workloads on a part of a GPU.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from provision.formulations.search.problem import IDLE_RPS
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import STRICT
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.gpulets import GpuletModel, Gpulets
from provision.models.traffic.rule import LatencyRule

ALONE = -np.inf
"""The pressure that a part with the whole GPU to itself receives."""
Load = tuple[tuple[int, float], ...]
"""The load of a part of a GPU: pairs of workload (by index) and rate in requests/s."""
Part = tuple[int, Load]
"""A part of a GPU: a share, as an index into ``TurnTables.shares``, and its load."""


class TurnTables:
    """Execution times (ms) and pressures as arrays (shares, workloads, batches).

    ``own`` is the constant c5 of the paper's model plus a replica's contribution to its own slowdown. ``pressure`` is
    its contribution to the slowdown of the other part. Both are the highest values of all batches up to the replica's
    batch.

    Parameters
    ----------
    data
        The Gpulets.
    models
        The name of the model of each workload.
    budgets_ms, rates_rps
        (workloads,) the latency budgets in ms, and the planned rates in requests/s.
    rule
        The latency rule.
    """

    def __init__(
        self,
        data: Gpulets,
        models: Sequence[str],
        budgets_ms: Sequence[float] | Floats,
        rates_rps: Sequence[float] | Floats,
        rule: LatencyRule,
    ) -> None:
        self.rule = rule
        self.data, self.gpu = data, gpu_type(data.gpu)
        self.batches = np.array(data.batches)
        self.shares = tuple(sorted({share for split in data.splits for share in split}))
        self.whole = len(self.shares) - 1
        known = [data.models[name] for name in models]
        self.memory_gib = np.array([model.memory_gib for model in known])
        self.allowed_ms = 2 * np.asarray(budgets_ms, float) * (1 + STRICT)
        self.rates = np.maximum(rates_rps, IDLE_RPS)
        self.time_ms, l2, dram = self._alone(known)
        c = data.interference
        self.own = c.constant + np.maximum.accumulate(c.l2_own * l2 + c.dram_own * dram, axis=2)
        self.pressure = np.maximum.accumulate(c.l2_other * l2 + c.dram_other * dram, axis=2)
        self.fit = lru_cache(maxsize=None)(self._fit)

    def rest_of(self, share: int) -> int:
        """The index of the share that is left of a GPU when the share with index ``share`` is taken."""
        size = self.shares[share]
        split = next(split for split in self.data.splits if size in split)
        return self.shares.index(split[1 - split.index(size)])

    def _alone(self, models: Sequence[GpuletModel]) -> tuple[Floats, Floats, Floats]:
        """The execution time (ms), L2 utilisation and DRAM utilisation of batches alone: arrays (shares, workloads,
        batches).
        """
        terms = np.array([
            (m.fixed_ms, m.per_request_ms, m.l2_fixed_ms, m.l2_per_request_ms, m.dram_fixed_ms, m.dram_per_request_ms)
            for m in models
        ]).T[:, None, :, None]
        shares = np.array(self.shares)[:, None, None]
        time_ms = terms[0] + terms[1] * self.batches / shares**self.data.scaling
        per_ms = shares / (terms[0] + terms[1] * self.batches)
        return time_ms, (terms[2] + terms[3] * self.batches) * per_ms, (terms[4] + terms[5] * self.batches) * per_ms

    def beside(self, share: int, pressure: float) -> Floats:
        """(workloads, batches) the execution times (ms) on a share, under a pressure from the other part."""
        return self.time_ms[share] * np.maximum(1.0, self.own[share] + pressure)

    def _fit(self, share: int, load: Load, pressure: float) -> tuple[int, ...] | None:
        """Indices of the smallest batches with which a load keeps its latencies on a share; None if there are none.

        A batch suffices if the duty cycle is no longer than the longest that the batch allows (``room_ms``). The search
        starts from the smallest batches. Batches that do not suffice grow, and so does the cycle. So no solution has a
        smaller batch.
        """
        who, rates = np.array([one for one, _ in load]), np.array([rate for _, rate in load])
        busy_ms = self.beside(share, pressure)[who]
        room_ms = self.room_ms(who[:, None], rates[:, None], np.arange(len(self.batches)), busy_ms, len(load) > 1)
        sizes, every = np.zeros(len(who), int), np.arange(len(who))
        while True:
            enough = (room_ms >= busy_ms[every, sizes].sum()) & (np.arange(len(self.batches)) >= sizes[:, None])
            if not enough.any(axis=1).all():
                return None
            if enough[every, sizes].all():
                return tuple(sizes.tolist())
            sizes = enough.argmax(axis=1)

    def room_ms(self, workload: Ints, rate_rps: Floats, size: Ints, busy_ms: Floats, in_turns: bool) -> Floats:
        """The longest duty cycles, in ms, with which replicas keep their latency budgets. Arguments broadcast against
        each other.

        Parameters
        ----------
        workload, rate_rps
            Indices of workloads, and the rates of the replicas in requests/s.
        size, busy_ms
            Indices of batch sizes, and how long such a batch runs, in ms.
        in_turns
            Whether others share the duty cycle. A replica that is alone may let batches wait to fill.
        """
        budget_ms, batch = self.allowed_ms[workload] / 2, self.batches[size]
        if in_turns:
            room_ms = self.rule.cycle_room_ms(batch, rate_rps, busy_ms, budget_ms)
        else:
            room_ms = self.rule.room_ms(batch, rate_rps, 0.0, budget_ms)
        return room_ms * (1 + STRICT)

    def settle(self, parts: Sequence[Part]) -> list[tuple[int, ...]] | None:
        """The smallest batches for the parts of one GPU; None if an SLO, a rate or the memory limit is violated.

        ``parts`` are (share, load) with non-empty loads. The pressures between the parts start at 0 and rise until
        they are consistent. Slower executions never allow smaller batches. So the result has the smallest batches of
        all solutions.
        """
        if not self.fits_memory(one for _, load in parts for one, _ in load):
            return None
        received = [ALONE if len(parts) == 1 else 0.0] * len(parts)
        while True:
            found = [self.fit(share, load, at) for (share, load), at in zip(parts, received, strict=True)]
            batches = [one for one in found if one is not None]
            if len(batches) < len(found):
                return None
            felt = [self.felt(share, load, chosen) for (share, load), chosen in zip(parts, batches, strict=True)]
            if len(parts) == 1 or felt[::-1] == received:
                return batches
            received = felt[::-1]

    def felt(self, share: int, load: Load, batches: Sequence[int]) -> float:
        """The pressure that a part of a GPU exerts on the other part, if its replicas have these batches: the highest
        pressure of any of the replicas, since they run one at a time.
        """
        return max(self.pressure[share, one, size] for (one, _), size in zip(load, batches, strict=True))

    def fits_memory(self, workloads: Iterable[int]) -> bool:
        """Whether a GPU has enough memory for one replica of each of these workloads."""
        return sum(self.memory_gib[one] for one in workloads) <= self.gpu.slice_memory_gib(WHOLE)
