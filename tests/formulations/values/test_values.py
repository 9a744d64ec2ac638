"""Plans and bounds by prices of replicas hold: plans are verified, and no bound exceeds a proven optimum or a plan."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from igniter_oracle import fewest_gpus
from testbeds import random_testbed

import provision
from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import place_values
from provision.formulations.pricing.mps.pricing import best_patterns
from provision.formulations.pricing.mps.rate_points import small_patterns, together_rps
from provision.formulations.pricing.schedule import Effort
from provision.formulations.search.problem import Problem, in_parts
from provision.formulations.values import bound as values_bound
from provision.formulations.values import plan as values_plan
from provision.formulations.values.bound import ValueBound, value_bound
from provision.formulations.values.nodes import ValueNodes, WorkloadClass, classes_of, least_value, node_rates
from provision.formulations.values.plan import PartsPlan, plan_of_parts
from provision.formulations.values.schedule import SCHEDULE
from provision.instances.read import generate
from provision.models.base.clock import NEVER, Deadline
from provision.models.performance.catalogue import load_performance
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry
from provision.solving import values as solving
from provision.solving.repair import mended
from provision.verification.verify import verify

V100, T4 = FleetEntry(gpu="v100", price_per_hour=3.06), FleetEntry(gpu="t4", price_per_hour=0.53)


def _drawn(workloads: int, seed: int, types: int = 2, **policy: object) -> Instance:
    """Workloads with an SLO of their own each, free to split, on T4s and V100s."""
    base, longer = generate(workloads, seed), np.random.default_rng(seed).uniform(1, 1.5, workloads).tolist()
    several = [one.model_copy(update={"max_replicas": None, "slo_ms": one.slo_ms * factor})
               for one, factor in zip(base.workloads, longer, strict=True)]
    data = ["igniter-t4-derived", "igniter-v100"][:types]
    return base.replace(workloads=several, fleet=(T4, V100)[:types], performance=data).with_policy(**policy)


def _classes(instance: Instance, most: int) -> list[WorkloadClass]:
    """All workloads in about ``most`` classes."""
    rates_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    return classes_of(instance, np.arange(len(rates_rps)), rates_rps, most)


def _bound(instance: Instance, classes: int, seconds: float = 2.0) -> float:
    """The bound of some classes."""
    found = ValueBound(instance, _classes(instance, classes))
    bounds = list(found.rounds(Deadline(seconds)))
    assert bounds == sorted(bounds), "a bound falls"
    return found.problem.objective(bounds[-1])


def _alone(instance: Instance) -> Instance:
    """The instance with one replica of every workload."""
    return instance.replace(workloads=[one.model_copy(update={"max_replicas": 1}) for one in instance.workloads])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("single", [False, True])
def test_bounds_do_not_exceed_the_optimum(seed: int, single: bool) -> None:
    """Whatever the number of classes, the bound is at most the proven optimum of a small instance."""
    instance = _drawn(3, seed, types=1 + seed % 2)
    instance = _alone(instance) if single else instance
    best = provision.solve(instance, "master", time_limit_s=8, replay=False)
    assert best.status == "optimal" and best.objective is not None
    for classes in (1, 12):
        assert 0 < _bound(instance, classes, 1.0) <= best.objective + 1e-9


@pytest.mark.parametrize(("seed", "budget"), [(0, "half_slo"), (1, "half_slo"), (2, "half_slo"), (3, "queueing")])
def test_bounds_of_whole_replicas_do_not_exceed_the_optimum(seed: int, budget: str) -> None:
    """Values of the linear program, at any round, prove no more than the optimum of a small instance."""
    instance = _drawn(3, seed, types=1 + seed % 2, latency_budget=budget)
    best = provision.solve(instance, "master", time_limit_s=4, replay=False)
    assert best.objective is not None
    found = ValueBound(instance, _classes(instance, 12))
    bounds = list(found.rounds(Deadline(1.5)))
    assert 0 < found.problem.objective(bounds[-1]) <= best.objective + 1e-9 and bounds == sorted(bounds)


@pytest.mark.parametrize(("seed", "budget"), [(0, "half_slo"), (1, "half_slo"), (2, "queueing")])
def test_no_pattern_exceeds_what_pricing_proves(seed: int, budget: str) -> None:
    """For random values, no pattern that is drawn or listed is worth more than the bound of exact pricing."""
    instance, draw = _drawn(30, seed, latency_budget=budget), np.random.default_rng(seed)
    bound = ValueBound(instance, _classes(instance, 12))
    for points, choices in zip(bound.patterns.points, bound.patterns.choices, strict=True):
        levels = bound.program.nodes.levels[bound.program.nodes.kind]
        value = np.cumsum(draw.exponential(1e4, levels.shape) * draw.integers(0, 2, levels.shape), axis=1)
        value[:, 0] = 0
        values = place_values(levels, value)
        known = best_patterns(points, choices, values, 0, Effort(300, 1e-4))[1].max()
        for nodes, floor in ((1, 0), (300, int(known)), (300, int(known * 0.999)), (30, 0), (300, 0)):
            most = best_patterns(points, choices, values, floor, Effort(nodes, 0.01))[2]
            assert most >= known
            starts = draw.integers(0, len(points.at), (100, 4))
            starts[:, 2:][draw.random((100, 2)) < 0.5] = NONE
            fits = np.where(starts != NONE, points.at.units[starts], 0).sum(axis=1) <= points.limit
            for members in (starts[fits], small_patterns(points, 3, 2000)):
                rps = together_rps(points, members)
                for row, several in enumerate(members):
                    there = np.flatnonzero(several != NONE)
                    carried = (rps[row, there] > 0).all()
                    worth = sum(np.interp(rps[row, place], levels[group], value[group])
                                for place, group in zip(there, points.at.group[several[there]], strict=True))
                    assert not carried or worth <= most


@pytest.mark.parametrize("seed", range(3))
def test_finer_nodes_keep_the_function(seed: int) -> None:
    """Prices at few rates are the same function of the rate when they are taken over to more rates."""
    draw, slos = np.random.default_rng(seed), np.array([10.0, 15.0, 22.0])
    kind, steps, most_rps = np.zeros(3, int), np.zeros(1, bool), float(draw.uniform(50, 500))

    def nodes(many: int) -> ValueNodes:
        levels = node_rates(np.array([most_rps]), most_rps, steps=False, many=many, lowest=0.08)
        return ValueNodes(kind, slos, levels[None], steps, 3)

    rates_rps, numbers = draw.uniform(0, most_rps, 50), [one.rates for one in SCHEDULE.fineness]
    for few, more in itertools.pairwise(nodes(many) for many in numbers):
        value = np.cumsum(draw.exponential(1.0, few.shape) * draw.integers(0, 2, few.shape), axis=1)
        value[:, 0] = 0.0
        taken_over = more.of_classes(more.taken_over(few, value.ravel()))
        for one, before in enumerate(few.of_classes(value.ravel()).value):
            found = np.interp(rates_rps, taken_over.rps[one], taken_over.value[one])
            assert found == pytest.approx(np.interp(rates_rps, few.levels[0], before))


def test_least_covers_are_never_too_high() -> None:
    """Random replica sets that carry a rate are worth at least its least cover."""
    draw = np.random.default_rng(0)
    for _ in range(30):
        rps = np.append(0.0, np.sort(draw.uniform(5, 100, 6)))
        value = np.append(0.0, np.cumsum(draw.exponential(1.0, 6)))
        rates_rps = np.sort(draw.uniform(1, 250, 8))
        least = least_value(rps, value, rates_rps, np.zeros((8, 7), int))
        for rate_rps, bound in zip(rates_rps.tolist(), least.tolist(), strict=True):
            many = draw.integers(int(np.ceil(rate_rps / rps[-1])), 8)
            shares = draw.dirichlet(np.ones(many)) * rate_rps
            if shares.max() <= rps[-1]:
                assert np.interp(shares, rps, value).sum() >= bound - 1e-9


def _parts(instance: Instance) -> PartsPlan:
    """The plan of parts before its first program."""
    return PartsPlan(instance, [group for group in in_parts(Problem(instance)) if group.most == 1])


def _planned(instance: Instance) -> float:
    """The objective of a verified plan: parts, and what they leave by greedy."""
    found = mended(instance, instance.plan_of("test", plan_of_parts(instance, Deadline(2.0))), Search(2.0))
    assert found is not None
    verdict = verify(instance, found)
    assert verdict.ok, verdict.violations[:3]
    return sum(entry.price_per_hour for gpu in found.gpus for entry in instance.fleet if entry.gpu == gpu.gpu)


@pytest.mark.parametrize("budget", ["half_slo", "queueing"])
@pytest.mark.parametrize("single", [False, True])
def test_plans_hold_under_both_rules(budget: str, single: bool) -> None:
    """A plan keeps all SLOs and replica limits, and costs no less than the bound."""
    instance = _drawn(30, 3, latency_budget=budget)
    instance = _alone(instance) if single else instance
    assert _bound(instance, 8) <= _planned(instance)


@pytest.mark.parametrize("seed", range(3))
def test_plans_are_no_cheaper_than_the_optimum(seed: int) -> None:
    """On one GPU type and with one replica each, brute force knows the fewest GPUs."""
    instance = random_testbed(4, seed)
    price = instance.fleet[0].price_per_hour or 0.0
    assert price * fewest_gpus(instance) <= _planned(instance) + 1e-9


def test_limited_workloads_are_left_to_greedy() -> None:
    """Workloads with limits are planned too, and the plan holds."""
    instance = _drawn(40, 2)
    limits = [{}, {"max_replicas": 1}, {"min_replicas": 2}, {"max_share_per_gpu": 0.5}]
    several = [one.model_copy(update=limits[at % 4]) for at, one in enumerate(instance.workloads)]
    limited = instance.replace(workloads=several)
    found = solving.solve(limited, Search(6.0))
    assert found.plan is not None and found.bound is not None and verify(limited, found.plan).ok


@pytest.mark.parametrize("rows", [SCHEDULE.rows, 24])
@pytest.mark.parametrize("types", [1, 2])
def test_every_part_is_served_or_left(rows: int, types: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place serves at most one part, also where few rates are told apart, and later programs plan the rest."""
    monkeypatch.setattr(values_plan, "SCHEDULE", replace(SCHEDULE, rows=rows))
    instance = _drawn(60, 1, types)
    plan = _parts(instance)
    parts = Counter((at, rate_rps) for one in plan.left for at, rate_rps in _rates(one))
    plan.run(NEVER)
    places = [(gpu, place) for gpu, several in plan.served.items() for place, *_ in several]
    assert len(places) == len(set(places)) > 0.9 * parts.total()
    served = Counter((at, rate_rps) for several in plan.served.values() for _, at, rate_rps in several)
    left = Counter((at, rate_rps) for one in plan.left for at, rate_rps in _rates(one))
    assert served + left == parts
    for gpu, several in plan.served.items():
        assert all(rate_rps <= plan.patterns.rps[plan.gpus[gpu], place] * (1 + 1e-9) for place, _, rate_rps in several)


def _rates(parts: WorkloadClass) -> list[tuple[int, float]]:
    """The workload and the requests/s of each part of a class."""
    return list(zip(parts.members.tolist(), parts.rates_rps.tolist(), strict=True))


def test_a_plan_that_has_no_time_shares_its_gpus() -> None:
    """Even after the deadline, the first program uses all known patterns and not only those of one replica."""
    instance, gpus = _drawn(60, 1, types=1), []
    for until in (Deadline(0.0), NEVER):
        plan = _parts(instance)
        plan.run(until)
        gpus.append(len(plan.planned()) + sum(len(one.members) for one in plan.left))
    assert gpus[0] <= 1.3 * gpus[1]


def test_a_deadline_ends_a_plan_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first program is solved, and later ones do not begin after the deadline."""
    monkeypatch.setattr(values_plan, "SCHEDULE", replace(SCHEDULE, rows=24))
    programs, numbers = list[Deadline](), PartsPlan._numbers
    monkeypatch.setattr(PartsPlan, "_numbers", lambda *given: programs.append(given[-1]) or numbers(*given))
    for until in (over := Deadline(0.0), NEVER):
        _parts(_drawn(60, 1)).run(until)
    assert programs.count(over) == 1 < programs.count(NEVER)


def test_workloads_that_cannot_be_divided_have_no_parts() -> None:
    """Those of which a GPU may carry only a part are left to other methods."""
    instance = _drawn(12, 0)
    halves = [one.model_copy(update={"max_share_per_gpu": 0.5}) for one in instance.workloads]
    assert not plan_of_parts(instance.replace(workloads=halves), NEVER)


def test_patterns_have_places_for_all_parts() -> None:
    """What a program of parts uses has at least as many places as parts, at any rate and above."""
    plan = _parts(_drawn(60, 1, types=1))
    numbers = plan._numbers([plan._levels(one) for one in plan.left], True, NEVER)
    assert numbers is not None
    for at, parts in enumerate(plan.left):
        rps = np.where(plan.patterns.of_class == at, plan.patterns.rps, -1.0)
        for number, rate_rps in enumerate(parts.rates_rps.tolist()):
            assert numbers @ (rps >= rate_rps * (1 - 1e-9)).sum(axis=1) > number


def test_every_file_of_a_gpu_type_counts() -> None:
    """Workloads of two performance files on one GPU type: the bound knows the patterns of both."""
    base, files = generate(12, 0), [load_performance("igniter-v100"), load_performance("colocation-v100")]
    parts = [file.model_copy(update={"models": {name: file.models[name] for name in names}})
             for file, names in zip(files, (("resnet50", "vgg19", "alexnet"), ("ssd",)), strict=True)]
    several = [one.model_copy(update={"max_replicas": None}) for one in base.workloads]
    instance = base.replace(workloads=several, fleet=(V100,), performance=parts)
    best = provision.solve(instance, "greedy", time_limit_s=4, replay=False)
    found = ValueBound(instance, _classes(instance, 12))
    assert len(found.patterns.points) == 2 and best.objective is not None
    assert found.problem.objective(list(found.rounds(Deadline(2.0)))[-1]) <= best.objective + 1e-9


def test_prices_at_few_rates_begin_finer_ones() -> None:
    """The bound stays when more rates take over its prices, and never falls."""
    bound = value_bound(_drawn(24, 5, types=1))
    first = bound.program
    proven = list(bound.rounds(Deadline(3.0)))
    assert bound.program is not first and proven == sorted(proven)


def test_a_step_function_rises_only_at_rates_of_workloads() -> None:
    """Where each workload has one replica, a replica between two rates is worth what carries the lower one."""
    levels, slos_ms = np.array([[0.0, 30.0, 50.0, 90.0]]), np.array([10.0, 20.0])
    nodes = ValueNodes(np.array([0, 0]), slos_ms, levels, np.array([True]), 5)
    values = nodes.of_classes(np.array([0.0, 1, 2, 4, 0, 1, 1, 3]))
    at = [np.interp(rps, values.rps[0], values.value[0]) for rps in (29.9, 30.0, 49.9, 50.0, 89.9, 90.0)]
    assert np.allclose(at, [0, 1, 1, 2, 2, 4])
    parts = nodes.parts(np.array([1, 1]), np.array([49.9, 95.0]))
    assert np.allclose((np.array([0, 0, 0, 0, 0, 1, 1, 3.0])[parts.rows] * parts.weights).sum(axis=1), [1, 3])


def test_what_it_does_not_apply_to() -> None:
    """Few workloads, and the most throughput, are left to other methods."""
    assert solving.applies(_drawn(13, 0)) and values_bound.applies(_drawn(3, 0))
    assert not solving.applies(_drawn(3, 0))
    assert not solving.applies(_drawn(13, 0).replace(objective="max_throughput", fleet=(
        T4.model_copy(update={"count": 9}),), performance=["igniter-t4-derived"]))


def test_greedy_and_auto_plan_mixed_fleets_well() -> None:
    """Where many workloads share GPUs of two types, auto soon has a bound, and no dearer a plan than greedy's."""
    instance = _drawn(60, 3)
    first = provision.solve(instance, "greedy", time_limit_s=4, replay=False)
    best = provision.solve(instance, "auto", time_limit_s=2, replay=False)
    assert first.objective and best.objective and best.bound
    assert 0.53 < best.bound <= best.objective <= first.objective <= 1.3 * best.bound
