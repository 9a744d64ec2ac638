"""Plans and bounds by prices of replicas hold: plans are verified, and no bound exceeds a proven optimum or a plan."""

import itertools

import numpy as np
import pytest

import provision
from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.offers import place_values
from provision.formulations.pricing.mps.pricing import Effort, best_patterns
from provision.formulations.pricing.mps.rate_lists import small_patterns
from provision.formulations.pricing.mps.rate_points import together_rps
from provision.formulations.values.bound import ValueBound, value_bound
from provision.formulations.values.classes import classes_of
from provision.formulations.values.nodes import ValueNodes, least_value, node_rates
from provision.formulations.values.plan import LargePlan
from provision.formulations.values.schedule import SCHEDULE, Size
from provision.instances.generators.families import generate
from provision.models.base.clock import NEVER, Deadline
from provision.models.performance.catalogue import load_performance
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry
from provision.solving import values as solving
from provision.verification.verify import verify

V100, T4 = FleetEntry(gpu="v100", price_per_hour=3.06), FleetEntry(gpu="t4", price_per_hour=0.53)


def _drawn(workloads: int, seed: int, types: int = 2, **policy: object) -> Instance:
    """Workloads with an SLO of their own each, free to split, on T4s and V100s."""
    base, longer = generate(workloads, seed), np.random.default_rng(seed).uniform(1, 1.5, workloads).tolist()
    several = [one.model_copy(update={"max_replicas": None, "slo_ms": one.slo_ms * factor})
               for one, factor in zip(base.workloads, longer, strict=True)]
    data = ["igniter-t4-derived", "igniter-v100"][:types]
    return base.replace(workloads=several, fleet=(T4, V100)[:types], performance=data).with_policy(**policy)


def _bound(instance: Instance, classes: int, seconds: float = 2.0) -> float:
    """The bound of some classes."""
    found = ValueBound(instance, classes_of(instance, range(len(instance.workloads)), classes))
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
    found = ValueBound(instance, classes_of(instance, range(3), 12))
    bounds = list(found.rounds(Deadline(1.5)))
    assert 0 < found.problem.objective(bounds[-1]) <= best.objective + 1e-9 and bounds == sorted(bounds)


@pytest.mark.parametrize(("seed", "budget"), [(0, "half_slo"), (1, "half_slo"), (2, "queueing")])
def test_no_pattern_exceeds_what_pricing_proves(seed: int, budget: str) -> None:
    """For random values, no pattern that is drawn or listed is worth more than the bound of exact pricing."""
    instance, draw = _drawn(30, seed, latency_budget=budget), np.random.default_rng(seed)
    bound = ValueBound(instance, classes_of(instance, range(30), 12))
    for points, choices in zip(bound.patterns.points, bound.patterns.choices, strict=True):
        levels = bound.program.nodes.levels[bound.program.nodes.kind]
        value = np.cumsum(draw.exponential(1e4, levels.shape) * draw.integers(0, 2, levels.shape), axis=1)
        value[:, 0] = 0
        values = place_values(levels, value)
        known = best_patterns(points, choices, values, 0, Effort(300, 1e-4, 500))[1].max()
        for nodes, floor in ((1, 0), (300, int(known)), (300, int(known * 0.999)), (30, 0), (300, 0)):
            most = best_patterns(points, choices, values, floor, Effort(nodes, 0.01, 500))[2]
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


def _planned(instance: Instance, classes: int) -> float:
    """The objective of a verified plan of some classes."""
    found = solving.planned(instance, range(len(instance.workloads)), Size(classes, 12), Search(2.0))
    assert found is not None
    verdict = verify(instance, found)
    assert verdict.ok, verdict.violations[:3]
    return sum(entry.price_per_hour for gpu in found.gpus for entry in instance.fleet if entry.gpu == gpu.gpu)


@pytest.mark.parametrize("budget", ["half_slo", "queueing"])
def test_plans_hold_under_both_rules(budget: str) -> None:
    """A plan keeps all SLOs, and costs no less than the bound."""
    instance = _drawn(30, 3, latency_budget=budget)
    assert _bound(instance, 8) <= _planned(instance, 16)


def test_limited_workloads_are_left_to_greedy() -> None:
    """Workloads with limits are planned too, and the plan holds."""
    instance = _drawn(40, 2)
    limits = [{}, {"max_replicas": 1}, {"min_replicas": 2}, {"max_share_per_gpu": 0.5}]
    several = [one.model_copy(update=limits[at % 4]) for at, one in enumerate(instance.workloads)]
    limited = instance.replace(workloads=several)
    found = solving.solve(limited, Search(6.0))
    assert found.plan is not None and found.bound is not None and verify(limited, found.plan).ok


def test_places_left_over_serve_later_passes() -> None:
    """Every place serves at most one workload, and every workload is served or left."""
    instance = _drawn(60, 1, types=1)
    plan = LargePlan(instance, classes_of(instance, range(60), 8), 6)
    plan.run(NEVER)
    places = [(gpu, place) for gpu, several in plan.served.items() for place, *_ in several]
    assert len(places) == len(set(places))
    served = {workload for several in plan.served.values() for _, workload, _ in several}
    left = {at for one in plan.left for at in one.members.tolist()}
    assert served | left == set(range(60)) and not served & left


def test_a_plan_that_has_no_time_shares_its_gpus() -> None:
    """Even after the deadline, the first pass uses all known patterns and not only those of one replica."""
    instance, gpus = _drawn(60, 1, types=1), []
    for until in (Deadline(0.0), NEVER):
        plan = LargePlan(instance, classes_of(instance, range(60), 8), 6)
        plan.run(until)
        gpus.append(len(plan.planned()) + sum(len(one.members) for one in plan.left))
    assert gpus[0] <= 1.3 * gpus[1]


def test_replica_sets_carry_the_rates_of_their_cells() -> None:
    """The replica sets that a program of a plan uses carry the rate of their cell, and patterns have room for them."""
    plan = LargePlan(_drawn(60, 1, types=1), classes_of(_drawn(60, 1, types=1), range(60), 8), 6)
    program = plan.program()
    assert program.priced(NEVER, SCHEDULE.quick, SCHEDULE.few, SCHEDULE.gain) is not None
    numbers, sets = program.used()
    assert all(sum(one.rps) >= program.cells[one.cell].rate_rps * (1 - 1e-9) for one in sets)
    for number, cell in enumerate(program.cells):
        assert sum(one.many for one in sets if one.cell == number) == pytest.approx(len(cell.workloads), abs=1e-4)
    for at in range(len(plan.left)):
        places = numbers @ np.where(plan.patterns.of_class == at, plan.patterns.rps, 0.0).sum(axis=1)
        assert places >= sum(one.many * sum(one.rps) for one in sets if program.cells[one.cell].of_class == at) * 0.999


def test_every_file_of_a_gpu_type_counts() -> None:
    """Workloads of two performance files on one GPU type: the bound knows the patterns of both."""
    base, files = generate(12, 0), [load_performance("igniter-v100"), load_performance("colocation-v100")]
    parts = [file.model_copy(update={"models": {name: file.models[name] for name in names}})
             for file, names in zip(files, (("resnet50", "vgg19", "alexnet"), ("ssd",)), strict=True)]
    several = [one.model_copy(update={"max_replicas": None}) for one in base.workloads]
    instance = base.replace(workloads=several, fleet=(V100,), performance=parts)
    best = provision.solve(instance, "greedy", time_limit_s=4, replay=False)
    found = ValueBound(instance, classes_of(instance, range(12), 12))
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
    """Instances without interference are left to other methods."""
    assert solving.applies(_drawn(3, 0))
    assert not solving.applies(_drawn(3, 0).replace(objective="max_throughput", fleet=(
        T4.model_copy(update={"count": 9}),), performance=["igniter-t4-derived"]))


def test_greedy_and_auto_plan_mixed_fleets_well() -> None:
    """Where many workloads share GPUs of two types, auto soon has a bound, and no dearer a plan than greedy's."""
    instance = _drawn(60, 3)
    first = provision.solve(instance, "greedy", time_limit_s=4, replay=False)
    best = provision.solve(instance, "auto", time_limit_s=2, replay=False)
    assert first.objective and best.objective and best.bound
    assert 0.53 < best.bound <= best.objective <= first.objective <= 1.3 * best.bound
