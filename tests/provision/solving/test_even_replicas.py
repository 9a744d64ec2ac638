"""Plans whose replicas carry equal rates: against brute force, under every rule, and told apart from uneven ones."""

import itertools

import pytest
import small_solver
from synthetic import random_instance

import provision
from provision.heuristics.core import greedy
from provision.models.problem.objective import objective_of
from provision.models.problem.policy import Survive
from provision.models.problem.search import Search
from provision.solving.policies import cheapest, even_replicas, split
from provision.sweeps.parameters import changed

MOST_GPUS = 4


def even(instance, **policy):
    return instance.with_policy(even_replicas=True, **policy)


def least_even_gpus(instance):
    """The least number of GPUs, up to MOST_GPUS, of even plans, by every way to fill every GPU; None if there is none.

    A state is, per workload, the number of its replicas and the most that the weakest of them carries.
    """
    [entry], names = instance.fleet, [one.name for one in instance.workloads]
    cuts, rps = small_solver.partitions_of(entry), {}
    for profile in {profile for cut in cuts for profile in cut}:
        for one in small_solver.patterns_of(instance, (0, profile))[0]:
            at = one.replicas[0].workload, profile
            rps[at] = max(rps.get(at, 0), *one.rps)
    one_gpu = {_filled(rps, names, cut, owners) for cut in cuts
               for owners in itertools.product([None, *names], repeat=len(cut))}
    reached = {tuple((0, float("inf")) for _ in instance.workloads)}
    for gpus in range(1, MOST_GPUS + 1):
        reached = {tuple((n + m, min(x, y)) for (n, x), (m, y) in zip(a, b, strict=True)) for a in reached
                   for b in one_gpu}
        if any(_carries(instance, state) for state in reached):
            return gpus
    return None


def _filled(rps, names, slices, owners):
    rates = [[rps.get((name, profile), 0) for profile, owner in zip(slices, owners, strict=True) if owner == name]
             for name in names]
    return tuple((len(found), min(found, default=float("inf"))) for found in rates)


def _carries(instance, state):
    return all(n >= max(1, one.min_replicas) and n * rps >= instance.planned_rps(one) * (1 - 1e-9)
               for one, (n, rps) in zip(instance.workloads, state, strict=True))


@pytest.mark.parametrize("seed", [2, 4, 9, 14, 17])
def test_the_value_is_that_of_brute_force(seed):
    """Seeds at which the plan that need not be even breaks when it is dealt evenly; at two it has fewer GPUs."""
    instance = random_instance(seed, 2, ("a30",))
    plain, found = (provision.solve(one, replay=False) for one in (instance, even(instance)))
    refuted = provision.verify(even(instance), plain.plan).violations
    assert any("even_replicas asks for equal rates" in one.message for one in refuted)
    assert found.verified and found.status == "optimal" and found.objective == least_even_gpus(instance)
    rates = {}
    for _, _, _, replica in found.plan.replicas():
        rates.setdefault(replica.workload, set()).add(replica.rate_rps)
    assert all(len(several) == 1 for several in rates.values())


@pytest.mark.parametrize(("name", "policy"), [
    ("parvagpu-s2", {"latency_budget": "queueing"}), ("igniter-testbed-12", {}), ("gpulets-equal", {}),
    ("parvagpu-s1", {"survive": {"gpu_failures": 1}}), ("inss", {}),
])
def test_every_way_of_sharing(name, policy):
    """Plans hold by the verifier, and none costs less than its bound."""
    plain = provision.read(name)
    asked = provision.Instance(**(plain.model_dump() | {
        "policy": plain.policy.model_dump() | {"even_replicas": True} | policy,
    }))
    found = provision.solve(asked, replay=False)
    assert found.verified and objective_of(asked).loss(found.objective) >= objective_of(asked).loss(found.bound) - 1e-6


def test_even_replicas_survive_an_even_deal():
    """After a loss equal parts go to those that are left: nobody is late whichever GPU fails."""
    survive = {"survive": Survive(gpu_failures=1), "latency_budget": "queueing"}
    asked = even(provision.read("parvagpu-s1"), **survive)
    plan = provision.solve(asked, replay=False).plan
    assert provision.verify(asked, plan).ok
    for lost in range(len(plan.gpus)):
        assert not provision.simulate(asked, plan, 10, fail={"gpu": lost, "at_s": 3.0}).late


def test_what_if_knows_even_replicas():
    instance = provision.read("parvagpu-s1")
    assert changed(instance, {"even_replicas": 1}) == even(instance)
    assert changed(even(instance), {"even_replicas": 0}) == instance
    with pytest.raises(provision.InputError, match="0 or 1"):
        changed(instance, {"even_replicas": 2})


def test_other_methods_refuse_it():
    with pytest.raises(provision.UnsupportedError, match=r"policy\.even_replicas; use --method auto"):
        provision.solve(even(provision.read("parvagpu-s1")), "greedy")


@pytest.mark.parametrize(("share", "number", "replicas"), [(1.0, 3, [1, 1, 1]), (0.5, 4, [4]), (0.34, 3, [3])])
def test_equal_parts_keep_the_share_per_gpu(share, number, replicas):
    """One workload per replica; where a share per GPU is limited, one workload with a replica on each of n GPUs."""
    one = provision.read("parvagpu-s1").workloads[0].model_copy(update={"max_share_per_gpu": share})
    found = split(provision.read("parvagpu-s1").replace(workloads=[one]), (number,)).workloads
    assert [each.max_replicas for each in found] == [max(1, each.min_replicas) for each in found] == replicas
    assert all(each.rate_rps == pytest.approx(one.rate_rps * each.max_replicas / number) for each in found)
    assert all(each.max_share_per_gpu == 1 / each.max_replicas for each in found)


def test_even_replicas_of_which_a_gpu_may_have_few():
    """Equal parts of a workload with a share per GPU are planned apart, not together and thrown away."""
    asked = provision.Instance.model_validate({
        "version": 2, "name": "apart", "fleet": [{"gpu": "v100", "price_per_hour": 2.89}],
        "performance": ["colocation-v100"], "policy": {"latency_budget": "half_slo", "even_replicas": True},
        "workloads": [{"name": "w0", "model": "ssd", "slo_ms": 82.71, "rate_rps": 52.64},
                      {"name": "w1", "model": "vgg19", "slo_ms": 84.67, "rate_rps": 488.05, "max_share_per_gpu": 0.5},
                      {"name": "w2", "model": "vgg19", "slo_ms": 73.46, "rate_rps": 97.07, "min_replicas": 2,
                       "max_replicas": 2}]})
    found = even_replicas(asked, Search(60.0), lambda other, search: greedy.solve(other, search))
    assert provision.verify(asked, found.plan).ok and len(found.plan.gpus) == 2


def test_choices_come_cheapest_first():
    """Every choice comes once; none where a workload has no option."""
    options = [[(1.0, 3), (1.5, 1)], [(0.5, 2), (4.0, 5), (4.0, 7)], [(2.0, 1)]]
    cost = [{number: price for price, number in one} for one in options]
    found = cheapest(options, 60)
    totals = [sum(one[number] for one, number in zip(cost, numbers, strict=True)) for numbers in found]
    assert len(set(found)) == len(found) == 6 and totals == sorted(totals)
    assert cheapest(options, 4) == found[:4]
    assert not cheapest([options[0], []], 60)


def test_limits_and_workloads_without_rate():
    """Idle workloads have even replicas of nothing; a fleet too small for even replicas is told as that."""
    instance = random_instance(9, 2, ("a30",))
    idle = instance.workloads[0].model_copy(update={"rate_rps": 0.0, "min_replicas": 2})
    assert provision.solve(even(instance.replace(workloads=(idle, instance.workloads[1]))), replay=False).verified
    fleet = tuple(one.model_copy(update={"count": 2}) for one in instance.fleet)
    found = provision.solve(even(instance.replace(fleet=fleet)), replay=False)
    assert found.status == "infeasible" and "no even replicas" in found.reason
