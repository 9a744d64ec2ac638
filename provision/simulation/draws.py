"""Replays a plan several times, each time with drawn factors on all service times and on all rates."""

import math

import numpy as np
from scipy.stats import binom

from provision.models.base.errors import InputError
from provision.models.base.fields import Count, PositiveCount, Record
from provision.models.plans.plan import Plan
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.models.problem.uncertainty import Spread, Uncertainty, spreads_of
from provision.simulation.simulate import simulate
from provision.simulation.tokens import further_limits

ALL = "all"
"""The name that stands for all workloads together."""
CHANCE = 0.01
"""Draws refute a probability if so few successes have a smaller chance than this."""


class KeptDraws(Record):
    """In how many draws a workload kept its SLO at its percentile, its limits on tokens included.

    For ALL, it is the number of draws in which every workload and workflow did.
    """

    workload: str
    kept: Count
    draws: PositiveCount


def replay_draws(instance: Instance, plan: Plan, draws: int, seconds: float = 60.0, seed: int = 0) -> list[KeptDraws]:
    """How often every workload keeps its SLO if service times and rates are drawn from the policy's uncertainty. Raises
    InputError if the policy states no confidence, so that nothing says what is uncertain.
    """
    policy = instance.policy
    if policy.confidence is None:
        raise InputError("--draws: the instance states nothing uncertain; add policy.confidence and policy.uncertainty")
    models = {model for one in instance.workloads for model in one.models}
    gpus = {entry.gpu for entry in instance.fleet}
    files = [data for data in instance.performance if data.gpu in gpus]
    service, _, rate = spreads_of(policy.uncertainty or Uncertainty(), files, models)
    random = np.random.default_rng([seed, 7])
    names = [one.name for one in instance.workloads]
    kept = dict.fromkeys([*names, ALL], 0)
    for number in range(draws):
        factor, more = (_drawn(one, random) for one in (service, rate))
        busier = instance.replace(workloads=tuple(
            one.model_copy(update={"rate_rps": one.rate_rps * more}) for one in instance.workloads))
        report = simulate(busier, busier.adopted(plan), seconds, seed + number, service_factor=factor)
        late = _late(busier, report)
        for name in names:
            kept[name] += name not in late
        kept[ALL] += report.ok
    return [KeptDraws(workload=name, kept=count, draws=draws) for name, count in kept.items()]


def _late(instance: Instance, report: SimulationReport) -> set[str]:
    """The workloads that miss their SLO; those of language models also by their first or further tokens."""
    answers = {one.workload.partition(": ")[0] for one in report.workloads if not one.ok}
    limits = zip(further_limits(instance), report.tokens, strict=True)
    return answers | {instance.workloads[limit.workload].name for limit, one in limits if not one.ok}


def refutes(found: KeptDraws, probability: float) -> bool:
    """Whether the draws refute that a workload keeps its SLO with a given probability."""
    return bool(binom.cdf(found.kept, found.draws, probability) < CHANCE)


def _drawn(spread: Spread, random: np.random.Generator) -> float:
    return math.exp(random.normal(spread.mean, spread.deviation))
