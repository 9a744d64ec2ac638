"""The operating points of replicas for objective max_throughput: every batch and number of units, by iGniter's model.

A replica of batch b on u units beside others answers a batch within
  t_gpu = (t_sched + n_k delay(n) + k_act(b, u) (1 + alpha_cache S)) / clock(P)
(eqs. 4-9; see ``tables``). It keeps its SLO and its rate if and only if t_gpu is at most room(b). By the papers' rules
it carries b / (t_gpu + t_feedback) requests/s (eq. 2). By other latency rules, the time per request is a piecewise
linear function of the hold time t_gpu + t_feedback. The function is given at its *bends* (``Bends``).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.mps.laws import GpuLaw, igniter_gpu
from provision.formulations.pricing.mps.tables import Demand
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import DUST, LOOSE
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.igniter import Terms, igniter_data, solo_terms
from provision.models.performance.sm_shares import shares_of
from provision.models.problem.instance import Instance
from provision.models.traffic.rule import LatencyRule

OF_MODEL = ("active_ms", "power_w", "cache", "feedback_ms", "scheduling_ms", "kernels", "sensitivity")
OF_DEMAND = ("room_ms", "loose_ms", "hold_ms", "each_ms")
"""The fields of Choices that have a row per model, and those that have a row per demand."""


class Choices(NamedTuple):
    """The operating points of all demands on one GPU type. Units and batches count from 1; their positions count from
    0.

    Fields of models: ``active_ms``, ``power_w`` and ``cache`` (models, units, batches); ``feedback_ms`` (models,
    batches); ``scheduling_ms``, ``kernels`` and ``sensitivity`` (models,). Fields of demands: ``model`` (demands,);
    ``room_ms`` for plans and ``loose_ms`` for bounds (demands, batches); ``hold_ms`` and ``each_ms`` (demands, batches,
    bends), the hold times of the bends and the time per request at each, infinite beyond the last bend. ``gpu``
    has the scalars of the GPU type.
    """

    active_ms: Floats
    power_w: Floats
    cache: Floats
    feedback_ms: Floats
    scheduling_ms: Floats
    kernels: Floats
    sensitivity: Floats
    model: Ints
    room_ms: Floats
    loose_ms: Floats
    hold_ms: Floats
    each_ms: Floats
    gpu: GpuLaw
    most: int


def choices_of(instance: Instance, gpu: str, demands: Sequence[Demand]) -> Choices:
    """The Choices of demands ((model,), budget in ms, rate in requests/s) on whole GPUs of a type.

    A demand whose model is not in the data has no room at any batch.
    """
    data = igniter_data(instance.performance)[gpu]
    hardware, names = data.hardware, sorted(data.models)
    batch, shares = np.arange(1, data.max_batch + 1), shares_of(data.hardware.unit_share)[:, None]
    terms = [solo_terms(data, name, batch, shares) for name in names]
    models = [data.models[name] for name in names]
    known = [model in data.models for (model,), *_ in demands]
    model = np.array([names.index(model) if knows else 0 for ((model,), *_), knows in zip(demands, known, strict=True)])
    rule = instance.shared_rule
    room, loose = (
        np.array([_room_ms(rule, terms[one], demand, slack) if knows else np.full(len(batch), -np.inf)
                  for one, demand, knows in zip(model, demands, known, strict=True)])
        for slack in (1 + DUST, 1 + LOOSE)
    )
    hold_ms, each_ms = _bends_ms(rule, [terms[one] for one in model], [budget_ms for _, budget_ms, _ in demands])
    power_w, cache = np.array([one.power_w for one in terms]), np.array([one.cache for one in terms])
    if rule.random_arrivals:  # batches may be partly filled, and a smaller batch may demand more
        power_w, cache = np.maximum.accumulate(power_w, axis=2), np.maximum.accumulate(cache, axis=2)
    return Choices(
        active_ms=np.array([one.active_ms for one in terms]),
        power_w=power_w,
        cache=cache,
        feedback_ms=np.array([one.feedback_ms[0] for one in terms]),
        scheduling_ms=np.array([one.kernel_delay_ms * one.kernels for one in models], float),
        kernels=np.array([one.kernels for one in models], float),
        sensitivity=np.array([one.cache_sensitivity for one in models], float),
        model=model,
        room_ms=room,
        loose_ms=loose,
        hold_ms=hold_ms,
        each_ms=each_ms,
        gpu=igniter_gpu(data),
        most=min(hardware.units, gpu_type(gpu).slice_mps_clients(WHOLE)),
    )


def with_units(choices: Choices, fixed: Sequence[tuple[int, int]]) -> Choices:
    """Choices with further demands. Each is a copy of a given demand (by index) with a fixed number of units."""
    if not fixed:
        return choices
    demand, units = np.array(fixed).T
    of = choices.model[demand]
    others = np.arange(1, choices.active_ms.shape[1] + 1) != units[:, None]
    more: dict[str, Any] = {
        name: np.concatenate([getattr(choices, name), getattr(choices, name)[of]]) for name in OF_MODEL
    }
    more["active_ms"][len(choices.active_ms) :][others] = np.inf
    more |= {name: np.concatenate([getattr(choices, name), getattr(choices, name)[demand]]) for name in OF_DEMAND}
    return choices._replace(model=np.append(choices.model, len(choices.active_ms) + np.arange(len(fixed))), **more)


def _room_ms(rule: LatencyRule, terms: Terms, demand: Demand, slack: float) -> Floats:
    """(batches,) the longest time on the GPU, in ms, with which a demand keeps the latency rule and its rate."""
    _, budget_ms, rate_rps = demand
    room_ms = rule.room_ms(terms.batch[0], np.float64(rate_rps / slack), terms.load_ms[0], budget_ms * slack)
    return room_ms - terms.feedback_ms[0]


def _bends_ms(rule: LatencyRule, terms: Sequence[Terms], budgets_ms: Sequence[float]) -> tuple[Floats, Floats]:
    """(demands, batches, bends) the hold times of bends and the time per request at each; infinite beyond the last
    bend.

    The latency budgets are loosened as for bounds, so that no plan carries more.
    """
    found = [[rule.bends(batch, load_ms, budget_ms * (1 + LOOSE)) for batch, load_ms in enumerate(one.load_ms[0], 1)]
             for one, budget_ms in zip(terms, budgets_ms, strict=True)]
    most = max((len(bends.hold_ms) for several in found for bends in several), default=0) + 1

    def filled(values: Floats) -> Floats:
        return np.pad(values, (0, most - len(values)), constant_values=np.inf)

    return (np.array([[filled(bends.hold_ms) for bends in several] for several in found]),
            np.array([[filled(1000 / bends.rps) for bends in several] for several in found]))
