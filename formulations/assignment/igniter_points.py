"""Operating points by iGniter's model, with the coefficients of their linear rows."""

from dataclasses import dataclass

import numpy as np

from provision.formulations.assignment.points import Points, choices, longest_hold_ms, undominated
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.igniter import IgniterHardware, IgniterProfiles, Terms, in_company, solo_terms
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.workload import Workload


@dataclass(frozen=True)
class IgniterPoints(Points):
    """Points on a GPU whose replicas slow each other by number, L2 utilisation and power.

    A batch takes ``gpu_ms = busy / clock`` (iGniter, eqs. 1-5 and 8) and must be done within a deadline D, what latency
    budget and rate leave after the transfers. Multiplied by clock / D, that is linear in the number of neighbours, and
    in the L2 utilisation and the excess of power over the cap of the whole GPU:
    ``per_neighbour * others + per_sharing * [others > 0] + per_cache * cache + per_excess * excess <= room``.
    ``power`` and the excess are fractions of the cap. ``demand`` is L2 utilisation and power in W.
    """

    hardware: IgniterHardware
    terms: Terms
    power: Floats
    cache: Floats
    per_neighbour: Floats
    per_sharing: Floats
    per_cache: Floats
    per_excess: Floats
    room: Floats

    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """See ``Points``; InSS's throughput counts feedback, as the data does."""
        own = Terms(*(column[at] for column in self.terms))
        _, rps = in_company(self.hardware, own, np.array(count), others[0], others[1] + own.power_w)
        with np.errstate(divide="ignore"):
            return 1000 * own.batch / rps


def igniter_points(
    instance: Instance, workload: Workload, number: int, data: IgniterProfiles, mps: bool
) -> IgniterPoints:
    """The Points of one model (``number`` among the workload's) that are not dominated by others of it.

    Point p dominates q when it takes no more units, memory, power and cache, and has no less slack D - A and no less
    tolerance (D - S) / A, where A is the active and S the scheduling time, alone at full clock. Proof: beside
    neighbours that leave the clock f/F, a point is feasible when x + A y <= D, where x >= S is its scheduling time and
    y >= 1 its cache factor, both divided by the clock; x and y are the same functions of the neighbours for all points
    of a model. The pairs (x, y) that a point tolerates form a triangle with the corners (S, 1), (D - A, 1) and
    (S, (D - S) / A), so p tolerates all that q does. Less power means no lower clock, so p's x and y are no larger than
    q's; and with less power and cache, p slows its neighbours down no more than q.
    """
    hardware, model = data.hardware, workload.models[number]
    batch, units, memory_gib = choices(data, model, hardware.units, data.max_batch, mps)
    shares: Floats = hardware.unit_share * units.astype(np.float64)
    terms = solo_terms(data, model, batch, shares)
    hold_ms = longest_hold_ms(instance, workload, terms.batch, terms.load_ms)
    deadline_ms = hold_ms - terms.feedback_ms
    slack, tolerance = deadline_ms - terms.active_ms, (deadline_ms - terms.scheduling_ms) / terms.active_ms
    clock = 1 - _lost(hardware) * np.maximum((hardware.idle_power_w + terms.power_w) / hardware.power_cap_w - 1, 0)
    kept = np.flatnonzero((terms.scheduling_ms + terms.active_ms <= deadline_ms * clock) & (deadline_ms > 0))
    if instance.objective != THROUGHPUT:
        costs = np.array([units, memory_gib, terms.power_w, terms.cache, -slack, -tolerance])
        kept = kept[undominated(costs[:, kept].T)]
    terms = Terms(*(column[kept] for column in terms))
    _, rps = in_company(hardware, terms, np.array(1), np.zeros(len(kept)), terms.power_w)
    return IgniterPoints(
        np.full(len(kept), float(number)), terms.batch, units[kept].astype(float), memory_gib[kept], rps, terms.load_ms,
        hold_ms[kept], np.array([terms.cache, terms.power_w]), hardware, terms, terms.power_w / hardware.power_cap_w,
        terms.cache, *_coefficients(hardware, terms, deadline_ms[kept]),
    )


def _lost(hardware: IgniterHardware) -> float:
    """The fraction of the clock that is lost when power is twice the cap (eq. 9)."""
    return -hardware.clock_slope_mhz_per_w * hardware.power_cap_w / hardware.max_clock_mhz


def _coefficients(hardware: IgniterHardware, terms: Terms, deadline_ms: Floats) -> tuple[Floats, ...]:
    """``per_neighbour``, ``per_sharing``, ``per_cache``, ``per_excess`` and ``room`` of IgniterPoints."""
    per_neighbour_ms = terms.kernels * hardware.scheduling_slope_ms
    per_sharing_ms = terms.kernels * hardware.extra_delay_ms(2) - per_neighbour_ms
    per_cache = terms.active_ms * terms.cache_sensitivity / deadline_ms
    room = 1 - (terms.scheduling_ms + terms.active_ms) / deadline_ms + per_cache * terms.cache  # not its own
    excess = np.full(len(room), _lost(hardware))
    return per_neighbour_ms / deadline_ms, per_sharing_ms / deadline_ms, per_cache, excess, room
