"""The small solver finds the best of all plans that the verifier accepts, and the product neither beats it nor proves
more."""

import itertools

import numpy as np
import pytest
import small_solver
from combined import random_combination
from combined_checks import answers_of, brute_force, clashes
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import random_instance
from synthetic_networks import random_mixed
from synthetic_sharing import random_sharing, same

import provision
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE
from provision.models.problem.objective import objective_of

PARTS = ((1.0,), (0.4, 0.6))
"""How gpu-lets are divided here."""


def interfering(seed):
    return random_sharing(seed, workloads=2, gpus=("v100", "t4")[: 1 + seed % 2], hot=seed % 3 > 0)


def isolated(seed):
    return random_instance(seed, workloads=2, gpus=("a30", "t4"), gpus_each=0.4)


def networks(seed):
    return random_mixed(seed, workloads=2, fleet=(("a30", True), ("t4", False)), measured=seed % 2 == 0)


def whole_networks(seed):
    return random_mixed(seed, workloads=2, fleet=(("a30", False),))


def turning(seed):
    """Two models that take turns, with few batch sizes and ways to split a GPU."""
    instance = provision.read(["gpulets-equal", "gpulets-traffic"][seed % 2])
    data = instance.performance[0].model_copy(update={"batches": (4, 16), "splits": PARTS})
    fleet = [one.model_copy(update={"count": None}) for one in instance.fleet]
    few = [one.model_copy(update={"rate_rps": one.rate_rps * (0.5 + seed % 7)})
           for one in instance.workloads[seed % 3 : seed % 3 + 2]]
    return instance.replace(performance=(data,), fleet=fleet, workloads=few, workflows=())


MAKERS = (isolated, interfering, networks, whole_networks, turning)


def of_one_replica(instance, throughput):
    """The instance with one replica for each workload; on one GPU of each entry for most throughput."""
    single = [one.model_copy(update={"min_replicas": 1, "max_replicas": 1}) for one in instance.workloads]
    if not throughput:
        return instance.replace(workloads=single)
    fleet = [one.model_copy(update={"count": 1}) for one in instance.fleet]
    return instance.replace(workloads=single, fleet=fleet, objective="max_throughput")


def best_plan(instance):
    """The best value of all plans with one replica for each of two workloads, by the verifier; None if there is none.

    Every set of at most two GPUs, every way to cut them, every slice and operating point for each workload.
    """
    objective, found = objective_of(instance), []
    fleets = [entries for many in (1, 2) for entries in
              itertools.combinations_with_replacement(range(len(instance.fleet)), many)]
    for entries in sorted(fleets, key=lambda one: sum(objective.weight(instance.fleet[entry]) for entry in one)):
        if any(entries.count(at) > one.count for at, one in enumerate(instance.fleet) if one.count is not None):
            continue
        gpus = [instance.fleet[entry] for entry in entries]
        for cuts in itertools.product(*map(_cuts, gpus)):
            places = [(at, start, profile) for at, cut in enumerate(cuts) for start, profile in cut]
            choices = [[(at, start, profile, replica) for at, start, profile in places
                        for replica in _replicas(instance, gpus[at].gpu, profile, one)] for one in instance.workloads]
            for chosen in itertools.product(*choices):
                plan = _plan(instance, gpus, chosen)
                if plan is not None and provision.verify(instance, plan).ok:
                    found.append(objective.value(plan))
                    if instance.objective != "max_throughput":
                        return found[0]
    return max(found, default=None)


def _cuts(entry):
    if not entry.partitioned:
        return [[(0, WHOLE)]]
    shape = geometry(entry.type)
    return [[(start, shape.profiles[at].name) for start, at in state] for state in shape.maximal_states]


def _replicas(instance, gpu, profile, workload):
    found = set()
    for data in instance.performance:
        if data.gpu == gpu and workload.model in data.models:
            points = data.operating_points(workload.model, profile)
            shares = np.broadcast_to(points.sm_share, points.batch.shape)
            for batch, processes, share in zip(points.batch, points.processes, shares, strict=True):
                turns = [(turn, part) for split in PARTS for turn, part in enumerate(split)] if data.turns else \
                    [(None, float(share))]
                found |= {(int(batch), int(processes), part, turn) for turn, part in turns}
    return [{"workload": workload.name, "batch": batch, "processes": processes, "sm_share": share, "turn": turn,
             "rate_rps": instance.planned_rps(workload)} for batch, processes, share, turn in found]


def _plan(instance, gpus, chosen):
    """The plan of replicas on slices; None if a GPU would stay empty."""
    planned = []
    for at, entry in enumerate(gpus):
        slices = {}
        for where, start, profile, replica in chosen:
            if where == at:
                slices.setdefault((start, profile), []).append(replica)
        if not slices:
            return None
        planned.append({"gpu": entry.gpu, "mig": entry.partitioned, "slices": [
            {"profile": profile, "start": start, "replicas": several} for (start, profile), several in slices.items()]})
    return provision.Plan(version=1, instance=instance.name, gpus=planned)


@pytest.mark.parametrize("throughput", [False, True])
@pytest.mark.parametrize("maker", MAKERS, ids=lambda one: one.__name__)
@settings(max_examples=4, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_it_finds_the_best_of_all_plans_with_one_replica_each(maker, throughput, seed):
    instance = of_one_replica(maker(seed), throughput)
    answer = small_solver.solve(instance)
    assert same(answer.value, best_plan(instance))
    assert answer.plan is None or provision.verify(instance, answer.plan).ok


@settings(max_examples=8, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_the_product_proves_no_more_and_plans_no_better(seed):
    """All ways of sharing, for all objectives, with limits and variants."""
    instance = MAKERS[seed % 2 * 4](seed) if seed % 5 == 0 else random_combination(seed, every=True)
    found = small_solver.solve(instance)
    answers, faults = answers_of(instance, ["auto"], time_limit_s=2)
    several = [*answers, brute_force(instance, found)]
    assert not faults + clashes(instance, several, several)
    assert found.plan is None or provision.verify(instance, found.plan).ok


def test_two_models_on_one_v100_take_one_gpu_with_both():
    """By the small solver's own plan, which the verifier accepts, and by the product's proof."""
    shipped = provision.read("igniter-motivation")
    instance = shipped.replace(workloads=shipped.workloads[:2])
    coarse = instance.performance[0].model_copy(update={"max_batch": 4})
    hardware = coarse.hardware.model_copy(update={"unit_share": 0.25})
    instance = instance.replace(performance=(coarse.model_copy(update={"hardware": hardware}),))
    answer, found = small_solver.solve(instance), provision.solve(instance, time_limit_s=5, replay=False)
    assert provision.verify(instance, answer.plan).ok and answer.exact
    assert found.status == "optimal" and found.objective == pytest.approx(answer.value)


def test_it_says_where_it_does_not_list_all_plans():
    """Closed networks whose batch times depend on the traffic; under random arrivals they do not."""
    shared = random_mixed(0, workloads=1, fleet=(("a30", False),))
    few = shared.replace(workloads=[one.model_copy(update={"max_replicas": 2}) for one in shared.workloads])
    assert not small_solver.solve(few).exact
    assert small_solver.solve(few.with_policy(latency_budget="queueing")).exact


def test_it_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="even replicas"):
        small_solver.solve(provision.read("parvagpu-s1").with_policy(even_replicas=True))
