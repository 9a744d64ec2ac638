"""Most throughput on a fixed fleet: optima are those of brute force, bounds hold, plans verify."""

import math
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import combinations

import numpy as np
import pytest
from every_feature import faults_of, throughput_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_solver import optimum
from synthetic import random_instance
from synthetic_sharing import random_sharing

import provision
from provision.cli import main
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.schedule import PricingSchedule
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline
from provision.models.performance.operating_points import Member
from provision.models.plans.plan import Plan
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome

SMALL = (("a30",), ("t4",), ("a30", "t4"), ("v100", "t4"))
INSS = provision.read("inss")
solving = import_module("provision.solving.solve")


def isolated(seed):
    """A small instance of isolated slices on a fixed fleet, at times with limits on replicas."""
    plain = random_instance(seed, workloads=1 + seed % 3, gpus=SMALL[seed % len(SMALL)], gpus_each=0.9)
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 3, len(plain.fleet)).tolist()
    fleet = [one.model_copy(update={"count": many}) for one, many in zip(plain.fleet, counts, strict=True)]
    limits = [{"min_replicas": int(rng.integers(0, 3)), "max_replicas": int(rng.integers(2, 5))} if rng.random() < 0.5
              else {} for _ in plain.workloads]
    workloads = [one.model_copy(update=limit) for one, limit in zip(plain.workloads, limits, strict=True)]
    return plain.replace(objective="max_throughput", fleet=fleet, workloads=workloads)


def shared(seed):
    """A small instance under interference on a fixed fleet."""
    plain = random_sharing(seed, workloads=2 + seed % 3, gpus=("v100", "t4")[: 1 + seed % 2], hot=seed % 3 > 0)
    fleet = [one.model_copy(update={"count": 1 + (seed + at) % 2}) for at, one in enumerate(plain.fleet)]
    workloads = [one.model_copy(update={"rate_rps": one.rate_rps / 3}) for one in plain.workloads]
    return plain.replace(objective="max_throughput", fleet=fleet, workloads=workloads)


def agrees(result, best):
    """Whether a proof is that of brute force."""
    if best is None:
        return result.status == "infeasible"
    close = math.isclose(result.objective, best, rel_tol=2e-6)
    return result.status == "optimal" and result.verified and close and result.bound >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_isolated_optima_are_those_of_brute_force(seed):
    instance = isolated(seed)
    best = optimum(instance)
    assert agrees(provision.solve(instance, "master"), best)


def test_the_isolated_sample_has_answers_of_both_kinds():
    found = [optimum(isolated(seed)) for seed in range(24)]
    assert None in found and sum(one is not None for one in found) >= 12


@pytest.mark.parametrize("seed", range(12))
def test_shared_optima_are_those_of_brute_force(seed):
    instance = shared(seed)
    best = optimum(instance)
    assert agrees(provision.solve(instance, "master"), best)
    greedy = provision.solve(instance, "greedy")
    assert greedy.plan is None or (greedy.verified and greedy.objective <= best * (1 + 1e-9))


def test_the_shared_sample_has_answers_of_both_kinds():
    found = [optimum(shared(seed)) for seed in range(12)]
    assert None in found and sum(one is not None for one in found) >= 6


@pytest.mark.parametrize("latency_budget", ["half_slo", "queueing"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.sets(st.integers(0, 7), min_size=1, max_size=4), st.randoms(use_true_random=False), st.integers(0, 2))
def test_no_points_beat_the_bound_of_a_set(latency_budget, chosen, random, effort):
    """Random points that hold by the scalar path are worth no more; the points found are worth what is said."""
    inss, oracle = priced(latency_budget)
    group, rule = [inss.workloads[at] for at in sorted(chosen)], inss.shared_rule
    data, units = inss.performance[0], inss.performance[0].hardware.units
    bound, best = oracle.best(tuple(sorted(chosen)), effort)

    def worth(points):
        members = [Member(one.model, batch, 1, many / units, partly_filled=rule.random_arrivals)
                   for one, (many, batch) in zip(group, points, strict=True)]
        told = data.predict("whole", members)
        if sum(many for many, _ in points) > units or None in told or any(
                one.latency_ms > inss.budget_ms(each) * (1 + 1e-9) for one, each in zip(told, group, strict=True)):
            return None
        rps = [rule.carried_rps(batch, 1, one, inss.budget_ms(each))
               for (_, batch), one, each in zip(points, told, group, strict=True)]
        holds = all(one >= inss.planned_rps(each) * (1 - 1e-9) for one, each in zip(rps, group, strict=True))
        return sum(rps) if holds else None

    for _ in range(30):
        cuts = sorted(random.sample(range(1, units), len(group) - 1))
        shares = [high - low for low, high in zip([0, *cuts], [*cuts, units], strict=True)]
        tried = worth([(many, random.randint(1, data.max_batch)) for many in shares])
        assert tried is None or tried <= bound * (1 + 1e-9)
    if best is not None:
        told = worth([(round(one.run.sm_share * units), one.run.batch) for one in best])
        assert told is not None and told <= bound * (1 + 1e-9)
        assert not effort or told == pytest.approx(bound)


@cache
def priced(latency_budget):
    """InSS under a latency rule, and how its GPUs are priced."""
    inss = INSS.with_policy(latency_budget=latency_budget)
    [(_, found)] = rates_of(Problem(inss))
    return inss, found


@pytest.mark.parametrize("block", range(2))
def test_no_method_contradicts_another(block):
    """On random instances of all features every plan is verified and none beats a bound."""
    instances = [one for seed in range(block, 1024, 97) if (one := throughput_of(seed))]
    found = [faults_of(one, list(provision.methods()), 3) for one in instances]
    assert not [fault for faults, _ in found for fault in faults]
    assert sum(plans for _, plans in found) >= 5


def test_sets_prove_the_most_that_keeps_a_percentile():
    """With random arrivals, too: half of the SLO with twice the rates, which holds in replays, carries half as much."""
    found = provision.solve(INSS.with_policy(latency_budget="queueing"), "master", replay=False)
    assert found.status == "optimal" and found.verified and found.objective > 2 * 5520


def test_auto_is_the_best_of_all_and_proves_it():
    results = {name: provision.solve(INSS, name) for name in ("auto", "greedy", "igniter", "ffd++")}
    assert results["auto"].status == "optimal" and all(one.verified for one in results.values())
    assert max(one.objective for one in results.values()) == results["auto"].objective
    assert all(one.objective == one.report.throughput_rps for one in results.values())


def test_sets_are_listed_up_to_a_number_and_a_time(monkeypatch):
    [(_, sets)] = rates_of(Problem(INSS))
    assert sets.every(Deadline(0)) is None and len(sets.every(Deadline(math.inf))) > 8
    monkeypatch.setattr("provision.formulations.pricing.mps.kernels.SCHEDULE", PricingSchedule(shared=5))
    [(_, few)] = rates_of(Problem(INSS))
    assert few.every(Deadline(math.inf)) is None


def test_a_set_without_operating_points_is_worth_nothing():
    [(_, sets)] = rates_of(Problem(INSS))
    every = tuple(range(len(Problem(INSS).groups)))
    assert sets.best(every, 2) == (0, None)
    assert sets.best((0,), 2)[0] > 0


def test_where_a_short_search_finds_no_points_a_longer_one_does():
    """The bound of a set falls with the search, and a long search finds points of all its replicas."""
    [(_, sets)] = rates_of(Problem(INSS))
    short = {pair: sets.best(pair, 0)[0] for pair in combinations(range(8), 2)}
    long = {pair: sets.best(pair, 2) for pair in short}
    assert all(long[pair][0] <= bound for pair, bound in short.items())
    assert {len(members) for _, members in long.values() if members is not None} == {2}


def test_replicas_that_share_a_slice_count_as_busy():
    """Two replicas together carry less than each by itself would, whatever is routed to them."""
    instance = provision.read("parvagpu-s1-shared")
    instance = instance.replace(objective="max_throughput",
                                fleet=[{"gpu": "a100-80gb", "price_per_hour": 5.12, "count": 1}])
    both = [{"workload": name, "batch": 4, "rate_rps": rate} for name, rate in (("resnet50", 10.0), ("bert", 5.0))]

    def value(replicas):
        gpu = {"gpu": "a100-80gb", "mig": True, "slices": [{"profile": "7g.80gb", "replicas": replicas}]}
        return objective_of(instance).value(Plan(version=1, instance=instance.name, gpus=[gpu]))

    assert value(both) == value([one | {"rate_rps": 1.0} for one in both])
    assert value(both[1:]) < value(both) < value(both[:1]) + value(both[1:])


def test_too_small_a_fleet_is_infeasible():
    one = INSS.replace(fleet=[INSS.fleet[0].model_copy(update={"count": 1})])
    result = provision.solve(one, "master")
    assert result.status == "infeasible" and "min_gpus" in result.reason
    assert provision.solve(one, "igniter").plan is None


def test_a_plan_that_beats_its_bound_is_a_defect(monkeypatch):
    plan = provision.solve(INSS, "igniter").plan
    false = replace(provision.methods()["igniter"], run=lambda *_: Outcome("optimal", "proved", plan, bound=1.0))
    monkeypatch.setattr(solving, "find_method", lambda name: false)
    with pytest.raises(provision.MethodError, match="claims a bound of 1, and its plan has"):
        provision.solve(INSS, "false")


def test_the_terminal_tells_the_throughput(capsys):
    assert main(["solve", "inss"]) == 0
    told = capsys.readouterr().out.splitlines()[0]
    assert "requests/s on 4 GPUs" in told and "Proven: no plan carries more." in told
    assert main(["what-if", "inss", "--vary", "rate=1.1"]) == 0
    assert "requests/s on 4 GPUs instead of" in capsys.readouterr().out


def test_an_upper_bound_is_better_when_lower():
    fewest = INSS.replace(objective="min_gpus")
    assert (
        objective_of(INSS).better(2.0, 1.0)
        and objective_of(INSS).tighter(1.0, 2.0)
        and objective_of(INSS).better(1.0, None)
        and not objective_of(INSS).tighter(None, 1.0)
    )
    assert objective_of(fewest).better(1.0, 2.0) and objective_of(fewest).tighter(2.0, 1.0)
    assert (
        objective_of(INSS).proved(1.0, 1.0)
        and not objective_of(INSS).proved(1.0, 1.01)
        and not objective_of(fewest).proved(1.01, 1.0)
    )
