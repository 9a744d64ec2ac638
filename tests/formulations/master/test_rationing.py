"""Who is served on too few GPUs: against brute force, bounds against plans that are found, and level by level."""

import itertools

import numpy as np
import pytest
import small_solver
from synthetic import random_instance
from synthetic_sharing import random_sharing

from provision.formulations.master.rationing import Rationing, with_shares
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.segments import best_segments
from provision.models.base.clock import Deadline
from provision.verification.verify import verify

GPUS = (["a30"], ["t4"], ["a30", "t4"])


def drawn(seed, shared=False, floors=(1.0,)):
    """Two to four workloads of up to three priorities on one or two GPUs of each type; None if one can run nowhere."""
    rng = np.random.default_rng(seed)
    many = int(rng.integers(2, 5))
    one = random_sharing(seed, workloads=many, hot=True) if shared else (
        random_instance(seed, workloads=many, gpus=GPUS[seed % 3]))
    workloads = [asked.model_copy(update={
        "priority": int(rng.integers(0, 3)), "weight": float(rng.integers(1, 4)), "floor": float(rng.choice(floors)),
        "rate_rps": asked.rate_rps * float(rng.choice([1, 2, 4])), "max_replicas": None}) for asked in one.workloads]
    fleet = [entry.model_copy(update={"count": int(rng.integers(1, 3))}) for entry in one.fleet]
    instance = one.replace(fleet=fleet, workloads=workloads, objective="max_throughput")
    return None if unservable(instance, best_segments(instance)) else instance


def served(instance, **options):
    return Rationing(instance, **options).levels(Deadline(60))


def priced(instance, shares):
    """The weighted requests/s that shares serve, by priority, the highest first."""
    value = {one.priority: 0.0 for one in sorted(instance.workloads, key=lambda one: -one.priority)}
    for one, share in zip(instance.workloads, shares, strict=True):
        value[one.priority] += one.weight * one.rate_rps * share
    return tuple(value.values())


def planned(instance, shares):
    """Those who are served, to be planned at least cost."""
    kept = [one.model_copy(update={"rate_rps": one.rate_rps * share})
            for one, share in zip(instance.workloads, shares, strict=True) if share]
    return instance.replace(objective="min_gpus", workloads=kept) if kept else None


def brute_force(instance, shares_of):
    """The lexicographic best of all choices of shares for which the small solver finds a plan."""
    best = priced(instance, [0.0] * len(instance.workloads))
    for shares in itertools.product(*map(shares_of, instance.workloads)):
        if any(shares) and priced(instance, shares) > best:
            answer = small_solver.solve(planned(instance, shares))
            assert answer.exact or instance.performance[0].feature == "interference"  # there: up to four on a GPU
            best = priced(instance, shares) if answer.value is not None else best
    return best


def holds(instance, found):
    """Whether the plan serves the shares, and no workload is cut below its floor."""
    assert all(share == 0 or share >= one.floor - 1e-9 for share, one in zip(found.shares, instance.workloads,
                                                                             strict=True))
    wanted = planned(instance, found.shares)
    return wanted is None or verify(wanted, wanted.adopted(found.plan)).ok


@pytest.mark.parametrize(("shared", "seeds"), [(False, range(16)), (True, range(6))])
def test_whole_workloads_are_served_as_brute_force_serves_them(shared, seeds):
    for instance in filter(None, (drawn(seed, shared) for seed in seeds)):
        found, best = served(instance), brute_force(instance, lambda one: (0.0, 1.0))
        assert holds(instance, found)
        assert [level.served for level in found.levels] == pytest.approx(best, rel=1e-6)
        assert all(level.bound == pytest.approx(level.served, abs=1e-5 * level.asked) for level in found.levels)


@pytest.mark.parametrize("shared", [False, True])
def test_cuts_serve_no_less_than_any_choice_from_a_grid(shared):
    """No choice of shares from a grid is better, nor above the bound."""
    cut = 0
    for instance in filter(None, (drawn(seed, shared, floors=(0.4, 0.7)) for seed in range(2 if shared else 8))):
        found = served(instance)
        best = brute_force(instance, lambda one: (0.0, one.floor, 1.0))
        assert holds(instance, found)
        got = [level.served * (1 + 1e-6) + 1e-6 for level in found.levels]
        assert tuple(got) >= best
        for level, value in zip(found.levels, best, strict=True):
            assert level.bound >= level.served
            if value > level.served:
                break  # a level above serves less there
        cut += any(0 < share < 1 for share in found.shares)
    assert cut


@pytest.mark.parametrize(("shared", "seeds"), [(False, range(330)), (True, range(12))])
def test_no_priority_costs_a_higher_one_anything(shared, seeds):
    """Whatever priority a workload gets, the levels above its old and its new one are served the same."""
    compared = 0
    for seed in seeds:
        instance = drawn(seed, shared, floors=(1.0, 0.5))
        if instance is None:
            continue
        rng = np.random.default_rng(seed)
        at, priority = int(rng.integers(len(instance.workloads))), int(rng.integers(-1, 3))
        moved = [one.model_copy(update={"priority": priority}) if index == at else one
                 for index, one in enumerate(instance.workloads)]
        above = max(priority, instance.workloads[at].priority)
        before, after = (
            {level.priority: level.served for level in served(one).levels if level.priority > above}
            for one in (instance, instance.replace(workloads=moved)))
        assert before == pytest.approx(after, rel=1e-6)
        compared += 1
    assert compared >= (300 if not shared else 10)


def test_a_budget_is_what_gpus_may_cost():
    """A budget for one GPU serves what a fleet of one GPU serves; GPUs that are committed are paid for already."""
    for seed in (0, 3, 6, 9):
        plain = drawn(seed)
        fleet = [one.model_copy(update={"count": 3, "price_per_hour": 2.0}) for one in plain.fleet]
        one_gpu = plain.replace(fleet=[one.model_copy(update={"count": 1}) for one in fleet])
        least = [level.served for level in served(one_gpu).levels]
        found = served(plain.replace(fleet=fleet), budget=3.9)
        assert [level.served for level in found.levels] == pytest.approx(least, rel=1e-6)
        owned = plain.replace(fleet=[one.model_copy(update={"count": 1, "committed": True}) for one in fleet])
        assert [level.served for level in served(owned, budget=0.0).levels] == pytest.approx(least, rel=1e-6)


def test_who_is_left_out_keeps_no_replica():
    instance = next(one for one in map(drawn, range(60)) if one and 0 in served(one).shares)
    found = served(instance)
    out = {one.name for one, share in zip(instance.workloads, found.shares, strict=True) if not share}
    assert out and not out & {replica.workload for _, _, _, replica in found.plan.replicas()}
    assert {one.name for one in with_shares(instance, found.shares).workloads if one.min_replicas == 0} == out
