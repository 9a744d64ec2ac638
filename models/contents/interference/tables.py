"""Tables for planning under interference: classes of equal demands and the operating points worth considering.

The points of a class are those of all its models, which are the variants of its workloads.

With iGniter's model (TPDS 2022, eqs. 1-11) a replica of batch b on u units keeps its SLO and rate exactly when

    t_sched + n_k delay(n) + k_act(b, u) (1 + alpha_cache S) <= clock(P) room(b)

where n counts the replicas on the GPU, S is the cache demand of the others, P the power of all, and room(b) the
shorter of budget - t_load - t_feedback and b / rate - t_feedback. Cache and power of a model both grow with b / k_act,
the *ability*: of its points with equal units and room, the one of less ability suits all neighbours better. Between
models that is told by the *burden*, a guess at what a point slows its neighbours by: so much by its cache demand, and
so much by its power once the GPU is over the cap.

Whatever is planned here has one replica per workload, as in the paper, with its SM share in whole units. Only a
workload that a GPU cannot serve alone is split, into the least number of equal parts.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from provision.models.contents.alone.segments import best_segments
from provision.models.contents.interference.kernels import unbeaten
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import solo_terms

LOOSE = 3e-9
"""Relative excess over SLOs and rates that a bound forgives: more than the verifier does."""
ROUNDING = 1e-12
"""Relative excess that is rounding: a plan may meet a limit exactly."""


class Tables(NamedTuple):
    """Operating points of all classes on one GPU type, those of a class together, by units and then by burden.

    Arrays over points: ``model`` counts in the models of the class, ``units``, ``batch``, ``scheduling_ms``,
    ``kernels``, ``sensitivity``, ``active_ms``, ``room_ms`` (for plans), ``loose_ms`` (for bounds), ``power_w``,
    ``cache``; ``by_power`` lists the points of each class by power, and ``least_cache`` is the least cache demand of
    those from there on. ``first`` is (classes, limit + 2): the first point with at least so many units. Scalars of the
    GPU follow; ``clock_loss`` is the part of the clock lost per W above the cap.
    """

    first: np.ndarray
    model: np.ndarray
    units: np.ndarray
    batch: np.ndarray
    scheduling_ms: np.ndarray
    kernels: np.ndarray
    sensitivity: np.ndarray
    active_ms: np.ndarray
    room_ms: np.ndarray
    loose_ms: np.ndarray
    power_w: np.ndarray
    cache: np.ndarray
    by_power: np.ndarray
    least_cache: np.ndarray
    delay_slope_ms: float
    delay_intercept_ms: float
    idle_w: float
    cap_w: float
    clock_loss: float
    limit: int
    most: int


@dataclass(frozen=True)
class Classes:
    """Distinct demands (models, budget in ms, rate in requests/s), hardest first, and the replicas of each.

    ``parts`` are (workload index, rate) of every replica to place; ``members`` the parts of each class.
    ``whole`` says that no workload had to be split.
    """

    demands: tuple
    parts: tuple
    members: tuple
    whole: bool

    @property
    def counts(self):
        """(classes,) replicas to place."""
        return np.array([len(parts) for parts in self.members])

    @property
    def of_part(self):
        """(parts,) class of each part."""
        found = np.empty(len(self.parts), int)
        for index, parts in enumerate(self.members):
            found[list(parts)] = index
        return found


def classes_of(instance):
    """The Classes of an instance whose workloads can all meet their SLO on a GPU of their own."""
    most_rps = _part_rps(instance)
    parts, found = [], {}
    for index, workload in enumerate(instance.workloads):
        planned = instance.planned_rps(workload)
        pieces = max(math.ceil(planned / most_rps[index] * (1 - ROUNDING)), 1)
        for _ in range(pieces):
            key = (workload.models, instance.budget_ms(workload), planned / pieces)
            found.setdefault(key, []).append(len(parts))
            parts.append((index, planned / pieces))
    demands = tuple(sorted(found, key=hardness))
    return Classes(demands, tuple(parts), tuple(map(tuple, map(found.get, demands))),
                   len(parts) == len(instance.workloads) and one_replica_each(instance))


def _part_rps(instance):
    """(workloads,) most that a replica may have to carry, in requests/s.

    Where max_replicas is set that is what the fastest GPU type can; else what the type with the least price for it can,
    one without limited count where there is one.
    """
    segments = best_segments(instance)
    rps, entries = segments.throughput_rps, [instance.fleet[kind.entry] for kind in segments.kinds]
    price = np.array([instance.weight(entry) for entry in entries])
    cost = np.divide(price, rps, out=np.full_like(rps, np.inf), where=rps > 0)
    endless = np.where([entry.count is None for entry in entries], cost, np.inf)
    chosen = np.where(np.isfinite(endless).any(axis=1), endless.argmin(axis=1), cost.argmin(axis=1))
    free = [one.max_replicas is None for one in instance.workloads]
    return np.where(free, rps[np.arange(len(rps)), chosen], rps.max(axis=1))


def one_replica_each(instance):
    """Whether no workload may be split: only then do bounds on plans with one replica per workload hold."""
    return all(one.max_replicas == 1 for one in instance.workloads)


def hardness(demand):
    """Sort key: no demand can serve one that comes before it, but for equals."""
    models, budget_ms, rate_rps = demand
    return models, budget_ms, -rate_rps


def serves(harder, easier):
    """Whether a place for one demand can take another: same models, no shorter budget, no higher rate."""
    return harder[0] == easier[0] and harder[1] <= easier[1] and harder[2] >= easier[2]


def models_apart(demands):
    """(demands,) numbers that tell their models apart."""
    numbers = {models: number for number, models in enumerate(sorted({demand[0] for demand in demands}))}
    return np.array([numbers[demand[0]] for demand in demands])


def tables_of(instance, gpu, demands):
    """The Tables of some demands on whole GPUs of a type, in their order; those that it cannot serve have no points."""
    entry = next(entry for entry in instance.fleet if entry.gpu == gpu)
    data = igniter_data(instance, gpu)
    hardware = data.hardware
    known = {model for models, *_ in demands for model in models} & set(data.models)
    grids = {model: _grid(data, model, instance.policy.rule.random_arrivals) for model in known}
    points = [_points(grids, instance.policy.rule, *demand) for demand in demands]
    offsets = np.cumsum([0] + [len(one["units"]) for one in points])
    by_power = [_order(one, "power_w", "cache", "units") for one in points]
    steps = np.arange(hardware.units + 2)
    return Tables(
        first=np.array([start + np.searchsorted(one["units"], steps)
                        for start, one in zip(offsets, points, strict=False)]),
        by_power=np.concatenate([start + order for start, order in zip(offsets, by_power, strict=False)]),
        least_cache=np.concatenate([np.minimum.accumulate(one["cache"][order[::-1]])[::-1]
                                    for one, order in zip(points, by_power, strict=True)]),
        **_merged(points),
        delay_slope_ms=hardware.scheduling_slope_ms,
        delay_intercept_ms=hardware.scheduling_intercept_ms,
        idle_w=hardware.idle_power_w,
        cap_w=hardware.power_cap_w,
        clock_loss=_clock_loss(hardware),
        limit=hardware.units,
        most=min(hardware.units, entry.type.slice_mps_clients(WHOLE)),
    )


def least_units(tables):
    """(classes,) units that each needs at least; more than there are where the GPU cannot serve it."""
    return (tables.first == tables.first[:, :1]).sum(axis=1) - 1


def igniter_data(instance, gpu):
    """The performance data of a GPU type, one file; None when there is none."""
    return next((data for data in instance.performance if data.gpu == gpu), None)


def _order(points, *names):
    """The points of a class by some fields, the first counts most."""
    return np.lexsort([points[name] for name in reversed(names)])


def _merged(parts):
    """Arrays by name, joined."""
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def shares_of(hardware):
    """SM shares of 1, 2, ... units, without the noise of floating point."""
    return np.round(hardware.unit_share * np.arange(1, hardware.units + 1), 12)


def _grid(data, model, partly_filled):
    """Terms of a model at (units, batches), the units, the part of the clock left to it alone, and the burden."""
    batch = np.arange(1, data.max_batch + 1)
    units = np.arange(1, data.hardware.units + 1)[:, None]
    terms = solo_terms(data, model, batch, shares_of(data.hardware)[:, None])
    if partly_filled:  # a neighbour's smaller batch may demand more
        terms = terms._replace(cache=np.maximum.accumulate(terms.cache, axis=1),
                               power_w=np.maximum.accumulate(terms.power_w, axis=1))
    over_w = np.maximum(data.hardware.idle_power_w + terms.power_w - data.hardware.power_cap_w, 0)
    clock_loss = _clock_loss(data.hardware)
    sensitivity = np.mean([one.cache_sensitivity for one in data.models.values()])
    burden = sensitivity * terms.cache + clock_loss * terms.power_w
    return terms, np.broadcast_to(units, terms.batch.shape), 1 - clock_loss * over_w, burden


def _clock_loss(hardware):
    """The part of the clock lost per W above the cap (eq. 9)."""
    return -hardware.clock_slope_mhz_per_w / hardware.max_clock_mhz


def _points(grids, rule, models, budget_ms, rate_rps):
    """The points of one demand that can hold alone and are worth considering, as arrays by name.

    A point without another of no more units, power, cache, scheduling and active time, slowdown by cache and kernels,
    and no less room, is worth it.
    """
    known = [(number, grids[model]) for number, model in enumerate(models) if model in grids]
    nothing = [_possible(0, next(iter(grids.values())), rule, 0.0, 0.0)]
    flat = _merged([_possible(*one, rule, budget_ms, rate_rps) for one in known] or nothing)
    order = _order(flat, "units", "burden", "active_ms")
    flat = {name: column[order] for name, column in flat.items() if name != "burden"}
    costs = [flat[name] for name in ("power_w", "cache", "active_ms", "scheduling_ms", "kernels")]
    keep = unbeaten(np.stack([*costs, flat["active_ms"] * flat["sensitivity"], -flat["loose_ms"]], axis=1))
    return {name: column[keep] for name, column in flat.items()}


def _possible(number, grid, rule, budget_ms, rate_rps):
    """The points at which one model, of this number, can hold alone."""
    terms, units, clock, burden = grid
    room, loose = (
        np.broadcast_to(rule.room_ms(terms.batch[:1], rate_rps / slack, terms.load_ms[:1], budget_ms * slack)
                        - terms.feedback_ms[:1], units.shape)
        for slack in (1 + ROUNDING, 1 + LOOSE)
    )
    possible = (terms.scheduling_ms + terms.active_ms <= clock * loose) & (clock > 0)
    columns = {"model": np.full(units.shape, number), "units": units, "batch": terms.batch.astype(int),
               "scheduling_ms": terms.scheduling_ms, "kernels": terms.kernels.astype(float),
               "sensitivity": terms.cache_sensitivity, "active_ms": terms.active_ms, "room_ms": room,
               "loose_ms": loose, "power_w": terms.power_w, "cache": terms.cache, "burden": burden}
    return {name: column[possible] for name, column in columns.items()}
