"""InSS's system: DNN models on a fixed number of GPUs under MPS, and how they slow each other down.

Many systems are evaluated side by side, each with its own placement: arrays are (systems, workloads). A workload
has one replica, on one GPU, with a number of *units* of the GPU's SMs; U_k units are the whole GPU k.

Latencies and throughputs follow section 4.1 of InSS. If InSS and iGniter model the same effect, the coefficients are
those of the data of kind igniter: transfers, scheduling delays, and the slowdown by the neighbours' L2 utilisation.
InSS differs from iGniter in the following points:

- The throughput is the batch divided by its whole latency, upload included (in iGniter the upload overlaps with the
  previous batch).
- The L2 utilisation is linear in the share of the SMs: a line fitted by least squares to the data's own values at
  LEAST_SQUARES, which depend on the batch too.
- The clock does not fall with power.
- Running times alone are those of locally weighted regression where there are measurements for it, else the data's (eq.
  11).

With ``Judged.BY_DATA`` all of this is taken from the data instead, as the verifier does. Where the data states memory,
the models on a GPU must fit it together (1b, 4a).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.igniter import IgniterProfiles, Terms, igniter_data, in_company, solo_terms, together
from provision.models.problem.instance import THROUGHPUT, Instance

LEAST_SQUARES = (1, 8, 16, 32), (0.25, 0.5, 0.75, 1.0)
"""The batches and shares to whose L2 utilisations the line is fitted: 16 configurations, as many as the paper measures.
"""


class Judged(Enum):
    """The equations that give latencies and throughputs: InSS's, or the equations of the performance data (iGniter's).
    """

    BY_INSS = "inss"
    BY_DATA = "data"


class Provisioning(NamedTuple):
    """A placement: the GPU of every workload, and its SM share in units; both (systems, workloads)."""

    gpu: Ints
    units: Ints

    def together_with(self, workload: int) -> Bools:
        """(systems, workloads), which workloads are on the same GPU as a workload, including the workload itself."""
        return self.gpu == self.gpu[:, workload, None]


class System:
    """Workloads, GPUs and performance data of an instance, as arrays.

    Parameters
    ----------
    instance
        The instance. Its fleet entries have fixed counts, and each has one file of performance data of kind igniter.
    interference
        Whether replicas slow each other down; otherwise each performs as if alone (InSS-ni).
    judged
        The equations that are used.

    Attributes
    ----------
    running_ms
        The running times alone in ms, by model, as arrays (batches, units) from batch 1 and one unit on, if all GPUs
        have one type; without an entry they are those of the performance data.
    data
        The performance data by GPU type, in the order of the fleet.
    kind
        (GPUs,), the index of each GPU's type.
    gpu_units
        (GPUs,) units of each GPU, U_k.
    capacity_gib
        (GPUs,) memory of each GPU.

    Raises
    ------
    UnsupportedError
        If the objective is not throughput, there is no GPU, or a GPU has fewer units than there are workloads.
    """

    def __init__(self, instance: Instance, interference: bool = True, judged: Judged = Judged.BY_INSS) -> None:
        if instance.objective != THROUGHPUT:
            raise UnsupportedError(f"inss plans for {THROUGHPUT}, not for {instance.objective}; use --method auto")
        self.instance, self.interference, self.judged = instance, interference, judged
        self.running_ms: Mapping[str, Floats] = {}
        entries, known = instance.fleet, igniter_data(instance.performance)
        self.data = [known[entry.gpu] for entry in entries]
        self.kind = np.repeat(np.arange(len(entries)), [entry.count or 0 for entry in entries])
        self.gpus, self.gpu_units = len(self.kind), np.array([one.hardware.units for one in self.data])[self.kind]
        self.capacity_gib = np.array([gpu_type(one.gpu).memory_gib for one in self.data])[self.kind]
        self.max_batch = min(one.max_batch for one in self.data)
        self.rates_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.slo_ms = instance.policy.safety * np.array([one.slo_ms for one in instance.workloads])
        self.budget_ms = np.array([instance.budget_ms(one) for one in instance.workloads])
        units = min(one.hardware.units for one in self.data)
        if not self.gpus or self.workloads > units:
            raise UnsupportedError(
                f"inss plans up to {units} workloads on at least one GPU, not {self.workloads} on {self.gpus}; "
                "use --method auto"
            )

    @property
    def workloads(self) -> int:
        """The number of workloads."""
        return len(self.slo_ms)

    @property
    def knows_memory(self) -> bool:
        """Whether the data states the memory of some model."""
        return any(one.states_memory for one in self.data)

    @cached_property
    def _memory_gib(self) -> Floats:
        """(GPU types, workloads, batches from 0 on) memory of each workload's process; 0 where it is not stated."""
        models = [one.model for one in self.instance.workloads]
        return np.array([
            [[0.0, *(data.models[model].memory_gib(size) or 0.0 for size in range(1, self.max_batch + 1))]
             for model in models]
            for data in self.data
        ])

    def memory_gib(self, given: Provisioning, batch: Ints) -> Floats:
        """(systems, workloads) memory of every workload where it is placed, with these batches."""
        return self._memory_gib[self.kind[given.gpu], np.arange(self.workloads), batch]

    def fits(self, given: Provisioning, batch: Ints, workload: int, sizes: Ints) -> Bools:
        """Whether a workload fits its GPU's memory with each of ``sizes``, beside the others with ``batch`` (4a).

        ``sizes`` broadcasts against (systems,), as does the result.
        """
        if not self.knows_memory:
            return np.ones(np.broadcast_shapes(np.shape(sizes), batch.shape[:1]), bool)
        others = given.together_with(workload) & (np.arange(self.workloads) != workload)
        taken = np.where(others, self.memory_gib(given, batch), 0.0).sum(-1)
        at = given.gpu[:, workload]
        return taken + self._memory_gib[self.kind[at], workload, sizes] <= self.capacity_gib[at] * (1 + TOLERANCE)

    def deployed(self, given: Provisioning, batch: Ints) -> tuple[Bools, Floats]:
        """Which workloads are deployed where memory is short (1b), and what they use of every GPU.

        As in the public program they are deployed in their order; one for which no memory is left is not.

        Returns
        -------
        tuple of two arrays
            (systems, workloads) whether each is deployed, and (systems, GPUs) GiB in use.
        """
        used, each = np.zeros((len(batch), self.gpus)), np.arange(len(batch))
        runs, asked = np.ones(batch.shape, bool), self.memory_gib(given, batch)
        for workload in range(self.workloads):
            at, more = given.gpu[:, workload], asked[:, workload]
            runs[:, workload] = used[each, at] + more <= self.capacity_gib[at] * (1 + TOLERANCE)
            used[each, at] += np.where(runs[:, workload], more, 0.0)
        return runs, used

    @cached_property
    def _terms(self) -> list[Floats]:
        """For each GPU type, the terms of the latency model, (terms, workloads, batches, units); 0 at batch 0 and at 0
        units.
        """
        batches = np.arange(1, self.max_batch + 1)[:, None]
        tables = []
        for data in self.data:
            units = data.hardware.units
            table = np.zeros((len(Terms._fields), self.workloads, self.max_batch + 1, self.gpu_units.max() + 1))
            for at, one in enumerate(self.instance.workloads):
                shares = data.hardware.unit_share * np.arange(1.0, units + 1)
                terms = solo_terms(data, one.model, batches, shares)
                if self.judged is Judged.BY_INSS:
                    active_ms = self.running_ms.get(one.model, terms.active_ms)
                    cache = np.broadcast_to(_linear_cache(data, one.model, shares), terms.cache.shape)
                    terms = terms._replace(active_ms=active_ms, power_w=np.zeros_like(terms.power_w), cache=cache)
                table[:, at, 1:, 1 : units + 1] = terms
            tables.append(table)
        return tables

    def _throughput(self, batch: ArrayLike, found: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """(latencies in ms, throughputs in requests/s) of batches, by the equations that ``judged`` names. The
        throughput is 0 if nothing runs.
        """
        latency_ms, throughput_rps = found
        if self.judged is Judged.BY_DATA:
            return found
        runs = np.isfinite(latency_ms) & (throughput_rps > 0)
        whole = np.divide(1000.0 * np.asarray(batch), latency_ms, out=np.zeros_like(latency_ms), where=runs)
        return latency_ms, whole

    def beside(self, members: Bools, units: Ints, batch: Ints, kind: Ints) -> tuple[Floats, Floats]:
        """(batch latencies in ms, throughputs in requests/s) of workloads that share a GPU, both (..., workloads).

        Parameters
        ----------
        members, units, batch
            Arrays (..., workloads): which workloads are on the GPU, and the units and batch of each.
        kind
            (...,), the index of the GPU's type.
        """
        found = [self._on(which, members, units, batch) for which in range(len(self.data))]
        return _of_kinds(np.expand_dims(kind, -1), found)

    def _on(self, which: int, members: Bools, units: Ints, batch: Ints) -> tuple[Floats, Floats]:
        """The latencies and throughputs of ``beside`` on GPUs of one type."""
        terms = self._terms[which][:, np.arange(self.workloads), np.where(members, batch, 0), units]
        hardware = self.data[which].hardware
        if self.interference:
            return self._throughput(Terms(*terms).batch, together(hardware, Terms(*terms)))
        latency_ms, throughput_rps = together(hardware, Terms(*terms[..., None]))
        return self._throughput(Terms(*terms).batch, (latency_ms[..., 0], throughput_rps[..., 0]))

    def at_every_batch(self, workload: int, members: Bools, units: Ints, batch: Ints,
                       kind: Ints) -> tuple[Floats, Floats]:
        """(latencies in ms, throughputs in requests/s) of one workload at every batch from 1 on; the other workloads
        keep their batches.

        Parameters
        ----------
        workload
            The index of the workload.
        members, units, batch, kind
            Arrays (systems, workloads) and (systems,), as for ``beside``; the batch of the workload itself does not
            count.

        Returns
        -------
        tuple of two arrays
            The latencies and the throughputs, each (batches, systems).
        """
        others = members & (np.arange(self.workloads) != workload) & self.interference
        beside = np.arange(self.workloads), np.where(others, batch, 0), units
        count, found = 1 + others.sum(-1), []
        for data, table in zip(self.data, self._terms, strict=True):
            own = Terms(*table[:, workload, 1:].take(units[:, workload], axis=-1))
            cache, power_w = (column[beside].sum(-1) for column in (Terms(*table).cache, Terms(*table).power_w))
            company = in_company(data.hardware, own, count, cache, power_w + own.power_w)
            found.append(self._throughput(own.batch, company))
        return _of_kinds(kind, found)

    def alone_rps(self) -> Floats:
        """(workloads,), the requests/s of each workload alone on a GPU of the first type with batch 1 (H_i)."""
        alone, ones = np.eye(self.workloads, dtype=bool), np.ones((self.workloads, self.workloads), int)
        return np.diag(self.beside(alone, self.gpu_units[0] * ones, ones, np.zeros(self.workloads, int))[1])

    def run(self, given: Provisioning, batch: Ints, deployed: Bools | bool = True) -> tuple[Floats, Floats]:
        """Batch latencies (ms) and throughputs (requests/s), each (systems, workloads), of a placement and batches.

        Workloads that are not ``deployed``, (systems, workloads), have an infinite latency and no throughput.
        """
        runs = np.broadcast_to(deployed, given.gpu.shape)
        on = (given.gpu[:, None, :] == np.arange(self.gpus)[:, None]) & runs[:, None]
        kind = np.broadcast_to(self.kind, on.shape[:-1])
        latency_ms, throughput_rps = self.beside(on, given.units[:, None, :], batch[:, None, :], kind)
        own = np.arange(len(given.gpu))[:, None], given.gpu, np.arange(self.workloads)
        return np.where(runs, latency_ms[own], np.inf), np.where(runs, throughput_rps[own], 0.0)


def _linear_cache(data: IgniterProfiles, model: str, shares: Floats) -> Floats:
    """The L2 utilisation of a model at SM shares, by the line fitted to the data at LEAST_SQUARES; never below 0."""
    batches, measured = (np.array(one, float) for one in LEAST_SQUARES)
    batches = batches[batches <= data.max_batch]
    known = solo_terms(data, model, batches[:, None], measured).cache
    return np.maximum(np.polyval(np.polyfit(np.tile(measured, len(batches)), known.ravel(), 1), shares), 0.0)


def _of_kinds(kind: Ints, found: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """The pair of arrays that has, for each GPU, the values of its type; ``found`` has a pair of arrays per GPU type.
    """
    if len(found) == 1:
        return found[0]
    on = [kind == which for which in range(len(found))]
    latency_ms, throughput_rps = (np.select(on, parts) for parts in zip(*found, strict=True))
    return latency_ms, throughput_rps


def filled(gpu: Ints, wishes: Ints, limits: Ints) -> Ints:
    """(systems, workloads), units that use every GPU in full (constraint 1a). If the wishes on a GPU do not add up to
    its units, single units are taken from its workloads, or given to them, round robin. Whole rounds are computed at
    once.

    Parameters
    ----------
    gpu, wishes
        Arrays (systems, workloads): the GPU of each workload, and the units that it asks for, 1 or more.
    limits
        (GPUs,), the units of each GPU.
    """
    on = gpu[..., None] == np.arange(len(limits))
    units, rows = wishes.copy(), np.arange(len(gpu))[:, None]
    while True:
        excess = (units[..., None] * on).sum(1) - limits
        here = excess[rows, gpu]
        may = on & ((here < 0) | ((here > 0) & (units > 1)))[..., None]
        if not may.any():
            return units
        rounds = np.abs(excess) // np.maximum(may.sum(1), 1)
        spare = np.where(may, units[..., None] - 1, np.iinfo(units.dtype).max).min(1)
        whole = np.where(excess > 0, np.minimum(rounds, spare), rounds)[rows, gpu]
        turn = np.take_along_axis(np.cumsum(may, axis=1), gpu[..., None], axis=2)[..., 0]
        units -= np.sign(here) * may.any(-1) * np.where(whole > 0, whole, turn <= np.abs(here))
