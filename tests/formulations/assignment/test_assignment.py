"""The assignment twins against brute force, against each other, and at their edges."""

import math
import random
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_solver import optimum
from synthetic import random_instance
from synthetic_sharing import random_sharing, same

import provision
from provision.formulations.assignment import cpsat, milp
from provision.formulations.assignment.points import points_of
from provision.formulations.assignment.rows import Block, Model
from provision.formulations.assignment.slots import add_worths, slots_of
from provision.formulations.assignment.solve import SCHEDULE, Schedule, solve
from provision.formulations.linear.description import Answer
from provision.formulations.search.segments import best_segments
from provision.instances.read import generate
from provision.models.base.clock import NEVER
from provision.models.performance.operating_points import Member
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry
from provision.solving.methods import method
from provision.sweeps.parameters import changed
from provision.verification.verify import verify

TWINS = ("assignment-cpsat", "assignment-milp")
ISOLATED = [
    dict(workloads=2, gpus=("a30",)),
    dict(workloads=2, gpus=("a30",), limited=True),
    dict(workloads=2, gpus=("a30",), tolerant=True, gpus_each=0.8),
    dict(workloads=2, gpus=("a100-80gb",), gpus_each=0.8),
    dict(workloads=3, gpus=("t4",), gpus_each=0.8),
    dict(workloads=2, gpus=("a30", "t4")),
    dict(workloads=2, gpus=("a30", "t4"), limited=True, tolerant=True, gpus_each=0.8),
]
SHARING = [
    dict(workloads=4),
    dict(workloads=4, hot=True),
    dict(workloads=3, limited=True, hot=True),
    dict(workloads=3, gpus=("v100", "t4"), hot=True),
    dict(workloads=3, gpus=("v100", "t4"), limited=True),
    dict(workloads=3, gpus=("t4",), mps=False),
]


@pytest.mark.parametrize("name", TWINS)
def test_motivation_needs_one_gpu(name):
    """Three workloads of iGniter's introduction stand on one V100, proven and verified."""
    result = provision.solve(provision.read("igniter-motivation"), name)
    assert (result.status, result.report.gpus, result.bound, result.verified) == ("optimal", 1, result.objective, True)


@pytest.mark.parametrize("name", TWINS)
def test_reports_tell_the_plan_of_their_value(name):
    """A search that is left halfway keeps the plan of the value that it told last, not an older one."""
    instance, told = random_instance(3, workloads=2, gpus=("a30", "t4")), []
    provision.solve(instance, name, report=told.append)
    assert any(one.plan is not None for one in told)
    assert all(one.plan is None or objective_of(instance).value(one.plan) == one.objective for one in told)
    assert all((one.plan is None) == (one.objective is None) for one in told)


@pytest.mark.parametrize("kind", range(len(ISOLATED)))
@pytest.mark.parametrize("seed", range(4))
def test_isolated_segments_agree_with_brute_force(kind, seed):
    """Both twins prove what brute force finds."""
    instance = random_instance(seed, **ISOLATED[kind])
    best = optimum(instance)
    for result in (provision.solve(instance, name) for name in TWINS):
        assert same(result.objective, best)
        assert result.status == ("optimal" if best is not None else "infeasible")


@pytest.mark.parametrize("name", TWINS)
def test_presolve_does_not_lose_the_plan(name):
    """Two GPUs without MIG serve what OR-tools 9.15 calls infeasible with all of its presolve on."""
    instance = random_instance(188, workloads=2, gpus=("a30", "t4"), limited=True, gpus_each=0.8)
    result = provision.solve(instance, name)
    assert (result.status, len(result.plan.gpus)) == ("optimal", 2)


@pytest.mark.parametrize("kind", range(len(SHARING)))
@pytest.mark.parametrize("seed", range(4))
def test_sharing_agrees_with_brute_force(kind, seed):
    """Both twins prove what brute force finds over patterns of batches and units."""
    instance = random_sharing(seed, **SHARING[kind])
    best = optimum(instance)
    for result in (provision.solve(instance, name) for name in TWINS):
        assert same(result.objective, best)
        assert result.status == ("optimal" if best is not None else "infeasible")


@pytest.mark.parametrize("seed", range(6))
def test_coarse_rounding_never_claims_too_much(seed):
    """With three digits left the bound stays a bound, and plans still hold."""
    instance, coarse = random_sharing(seed, workloads=4, hot=True), Schedule(steps=20, finest=100.0)
    start = provision.solve(instance, "greedy").plan
    outcome = solve(instance, Search(20, start=start), partial(cpsat.solve_cpsat, schedule=coarse), TWINS[0])
    assert outcome.bound <= optimum(instance) <= objective_of(instance).value(outcome.plan)
    assert verify(instance, outcome.plan).ok


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize(("excess", "gpus"), [(0.0, 1), (0.9e-9, 1), (1.1e-9, 2), (1.9e-9, 2)])
def test_no_more_of_a_rate_is_missing_than_the_verifier_allows(name, excess, gpus):
    """Rows allow a rate that one GPU misses by up to LOOSE; a plan of this GPU is kept only if the verifier takes it.
    """
    instance = provision.Instance.model_validate({
        "version": 2, "name": "full", "policy": {"latency_budget": "half_slo"}, "fleet": [{"gpu": "l4"}],
        "performance": ["mlperf-l4"], "workloads": [{"name": "a", "model": "resnet50", "slo_ms": 100, "rate_rps": 1}]})
    full_rps = float(best_segments(instance).throughput_rps[0, 0])
    result = provision.solve(changed(instance, {"rate": full_rps * (1 + excess)}), name)
    assert (result.verified, result.report.gpus, result.bound <= 1) == (True, gpus, True)


def test_kept_points_are_no_worse_beside_any_neighbours():
    """Whatever holds beside some neighbours, a kept point with no more units, power and cache does too."""
    instance, draw = provision.read("igniter-motivation"), random.Random(1)
    entry, data = instance.fleet[0], instance.performance[0]
    points = points_of(slots_of(instance, NEVER)[0].problem, entry, data, {})
    tried = 0
    while tried < 300:
        members = [Member(draw.choice(sorted(data.models)), draw.randint(1, 32), 1, draw.randint(1, 20) / 40)
                   for _ in range(draw.randint(0, 3))]
        one = draw.choice(instance.workloads)
        point = Member(one.model, draw.randint(1, 32), 1, draw.randint(1, 40) / 40)
        if not _served(instance, one, data.predict("whole", [point, *members])[0]):
            continue
        tried += 1
        mine = points.only((points.workload == instance.workloads.index(one)).nonzero()[0])
        fits = [Member(one.model, int(batch), 1, units / 40)
                for batch, units in zip(mine.at.batch, mine.at.units, strict=True)
                if units <= 40 * point.sm_share + 1e-9]
        assert any(_served(instance, one, data.predict("whole", [other, *members])[0]) for other in fits)
        assert len(mine.most) < 200


def _served(instance, workload, found):
    return (
        found is not None
        and found.latency_ms <= instance.budget_ms(workload)
        and found.throughput_rps >= instance.planned_rps(workload)
    )


COLOCATED = [{"slo_ms": (1.0, 1.0, 1.0), "rate": 1.0}, {"slo_ms": (0.6, 0.7, 0.9), "rate": 2.0}]


@pytest.mark.parametrize("kind", range(len(COLOCATED)))
def test_colocated_replicas_agree_with_the_master_program(kind):
    """Sets of replicas on co-location data are not listed; column generation answers, without a plan to begin with."""
    instance = colocated(**COLOCATED[kind])
    best = provision.solve(instance, "master", 90, replay=False)
    for name in TWINS:
        outcome = method(name).run(instance, Search(90, 0, dict(method(name).parameters)))
        assert (best.status, outcome.status) == ("optimal", "optimal")
        assert same(objective_of(instance).value(outcome.plan), best.objective)


def colocated(slo_ms, rate):
    """iGniter's introduction on co-location data, other SLOs and rates."""
    motivation = provision.read("igniter-motivation")
    workloads = [one.model_copy(update={"slo_ms": one.slo_ms * part, "rate_rps": one.rate_rps * rate})
                 for one, part in zip(motivation.workloads, slo_ms, strict=True)]
    return motivation.replace(workloads=workloads, performance=["colocation-v100"])


@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_colocated_replicas_in_any_number_are_listed(rate):
    """Quarters of a GPU and batches up to 8: all sets of replicas."""
    one = colocated((1.0, 1.0, 1.0), rate)
    coarse = one.performance[0].model_copy(update={"unit_share": 0.25, "max_batch": 8})
    free = [workload.model_copy(update={"max_replicas": 2}) for workload in one.workloads]
    instance = one.replace(workloads=free, performance=[coarse])
    best, *results = (provision.solve(instance, which, 90, replay=False) for which in ("master", *TWINS))
    for result in results:
        assert (result.status, result.verified) == ("optimal", True)
        assert same(result.objective, best.objective)


@pytest.mark.parametrize("seed", range(12))
def test_worths_of_workloads_exclude_no_plan(seed):
    """No GPU of an optimum is worth more than 1; the sum of the worths, at its price, is a bound."""
    instance = random_sharing(seed, **SHARING[seed % len(SHARING)])
    objective, best = objective_of(instance), optimum(instance)
    prices = np.array([objective.weight(entry) for entry in instance.fleet])
    slots = slots_of(instance, NEVER)
    add_worths(instance, slots, NEVER)
    worths = {one.slice_type.entry: one.worth for one in slots if one.worth is not None}
    assert worths or not all(entry.mps for entry in instance.fleet)
    if best is None or not worths:
        return
    assert all(worth.sum() * prices[entry] <= best * (1 + 1e-9) for entry, worth in worths.items())
    plan = provision.solve(instance, TWINS[0]).plan
    index = {one.name: w for w, one in enumerate(instance.workloads)}
    for gpu, entry in zip(plan.gpus, objective.entries_of(plan), strict=True):
        assert sum(worths[entry][index[one.workload]] for piece in gpu.slices for one in piece.replicas) <= 1 + 1e-9


@settings(max_examples=12, derandomize=True)
@given(seed=st.integers(0, 10**6), free=st.booleans(), rule=st.sampled_from(["half_slo", "queueing"]))
def test_rows_of_interference_exclude_no_valid_gpu(seed, free, rule):
    """Random replicas on a GPU: those that keep their deadlines by iGniter's model break no row, and the others do."""
    draw, motivation = random.Random(seed), provision.read("igniter-motivation")
    data = motivation.performance[0].model_copy(update={"max_batch": 12})
    workloads = [one.model_copy(update={"max_replicas": None if free else 1, "min_replicas": 0,
                                        "rate_rps": one.rate_rps * 0.5}) for one in motivation.workloads]
    instance = motivation.replace(workloads=workloads, performance=[data]).with_policy(latency_budget=rule)
    slots = slots_of(instance, NEVER)
    points = slots[0].tables[0]
    at = np.array(draw.sample(range(len(points.most)), draw.randint(1, 3)))
    if not free:
        at = np.array(list({points.workload[one]: one for one in at}.values()))
    model = Model(instance, slots, [Block(0, 1)])
    told = data.predict("whole", [Member(instance.model_of(one), one.batch, 1, one.sm_share,
                                         partly_filled=rule != "half_slo") for one in points.run[at]])
    busy_ms = np.array([1000 * one.batch / found.throughput_rps if found else np.inf
                        for one, found in zip(points.run[at], told, strict=True)]) - points.at.after_ms[at]
    units = points.at.units[at].sum()
    fits = units <= points.limits.limit and (busy_ms <= points.room_ms[at]).all()
    program = model.program
    program.rows = [row for number, row in enumerate(program.rows) if number not in model.rated.values()]
    for point, x in enumerate(one.variable for one in model.choices[0] if one.at is not None):
        program.at_most([(1.0, x)], float(point in at))
        program.at_most([(-1.0, x)], -float(point in at))
    program.objective = []
    if fits:
        for solved in (cpsat.solve_cpsat, milp.solve_pulp):
            assert solved(program, Search(20), 20.0, lambda values: None).ended == "optimal"
    elif units > points.limits.limit or (busy_ms > points.room_ms[at] * (1 + 1e-4)).any():
        assert milp.solve_pulp(program, Search(20), 20.0, lambda values: None).ended == "infeasible"


@pytest.mark.parametrize("name", TWINS)
def test_most_throughput_of_few_workloads_is_bounded(name):
    """InSS's setting with three workloads: the plan is that of the exact method at least, the bound above both."""
    one = provision.read("inss")
    small = one.replace(workloads=one.workloads[4:7], fleet=[FleetEntry(gpu="v100", count=1)])
    best = provision.solve(small, "master", 90, replay=False)
    result = provision.solve(small, name, 4, replay=False)
    assert result.verified and best.status == "optimal"
    assert best.objective * 0.97 <= result.objective <= best.objective * (1 + 1e-5)
    assert best.objective <= result.bound * (1 + 1e-5)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize(("read", "gpus"), [("gpulets-long-only", 1), ("gpulets-traffic", 1), ("gpulets-game", 1)])
def test_turns_are_proven(name, read, gpus):
    """gpu-lets' scenarios, one of which has too many patterns to list."""
    result = provision.solve(provision.read(read), name, 90, replay=False)
    assert (result.status, len(result.plan.gpus), result.verified) == ("optimal", gpus, True)


def test_what_takes_turns_at_random_is_stated():
    """Under `queueing` patterns are some, and the bound is a relaxation's."""
    instance = provision.read("gpulets-long-only").with_policy(latency_budget="queueing")
    best = provision.solve(instance, "master", 90, replay=False)
    for name in TWINS:
        result = provision.solve(instance, name, 90, replay=False)
        assert result.bound is None or result.bound <= best.objective * (1 + 1e-9)
        assert result.plan is None or (result.verified and result.objective >= best.bound * (1 - 1e-9))


@pytest.mark.parametrize("name", TWINS)
def test_language_models_are_proven(name):
    """Every replica has a slice to itself."""
    instance = provision.read("mlperf-llama-3.1-8b-server")
    assert provision.solve(instance, name, 90, replay=False).status == "optimal"


@pytest.mark.parametrize("name", TWINS)
def test_a_plan_that_is_given_is_kept(name):
    """It is what is left when solvers find nothing."""
    def nothing(*arguments):
        return Answer("time_limit", None)

    testbed = provision.read("igniter-testbed-12")
    testbed = testbed.replace(workloads=testbed.workloads[:7])
    start = provision.solve(testbed, "igniter").plan
    outcome = solve(testbed, Search(20, 0, dict(method(name).parameters), start=start), nothing, name)
    assert (outcome.plan, outcome.status, outcome.termination) == (start, "feasible", "time_limit")


@pytest.mark.parametrize("name", TWINS)
def test_the_testbed_is_proven_with_free_replicas(name):
    """Twelve workloads of iGniter, one replica each or in any number: six and five GPUs, proven."""
    testbed = provision.read("igniter-testbed-12")
    free = testbed.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in testbed.workloads])
    for instance, gpus in ((testbed, 6), (free, 5)):
        result = provision.solve(instance, name, 60, replay=False)
        assert (result.status, len(result.plan.gpus), result.verified) == ("optimal", gpus, True)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize(("read", "other"), [("parvagpu-s2", "parvagpu"), ("igniter-motivation", "ffd++")])
def test_search_begins_at_a_plan(name, read, other):
    """A plan of another method is a beginning, slices in any order; the proof is the same."""
    instance = provision.read(read)
    start = provision.solve(instance, other).plan
    outcome = method(name).run(instance, Search(30, 0, dict(method(name).parameters), start=start))
    assert outcome.status == "optimal"
    assert math.isclose(objective_of(instance).value(outcome.plan), provision.solve(instance, name).objective)


@pytest.mark.parametrize("name", TWINS)
def test_what_cannot_be_served_is_said(name):
    """No GPU meets an SLO, or a rate that may not be split, and there are too few: infeasible."""
    motivation = provision.read("igniter-motivation")
    one = motivation.workloads[1]
    for changes, status, words in (
        ({"slo_ms": 2.0}, "infeasible", "slo_ms .* or more would work"),
        ({"rate_rps": 5000.0}, "infeasible", "max_replicas 1 carry at most .* allow more replicas"),
    ):
        result = provision.solve(motivation.replace(workloads=[one.model_copy(update=changes)]), name)
        assert (result.status, result.plan) == (status, None)
        assert re.search(words, result.reason)
    none = motivation.replace(fleet=[FleetEntry(gpu="v100", count=0)])
    assert "allow more GPUs" in provision.solve(none, name).reason


@pytest.mark.parametrize("name", TWINS)
def test_shared_slices_are_proven_by_levels(name):
    """The time of slices alone bounds this by one GPU, and two are least."""
    start = provision.solve("parvagpu-s2-shared", "lns", replay=False, iterations=10_000).plan
    result = provision.solve("parvagpu-s2-shared", name, 90.0, start=start, replay=False)
    assert (result.status, len(result.plan.gpus), result.verified) == ("optimal", 2, True)


@pytest.mark.parametrize("name", TWINS)
def test_large_and_odd_instances_are_refused_with_a_remedy(name):
    """Too many workloads or GPUs."""
    with pytest.raises(provision.UnsupportedError, match=rf"at most {SCHEDULE.workloads} workloads.*--method"):
        provision.solve(generate(SCHEDULE.workloads + 1, 0), name)
    with pytest.raises(provision.UnsupportedError, match=r"20 GPUs to choose from.*--method auto"):
        provision.solve(changed(provision.read("parvagpu-s6"), {"rate": 2.0}), name)
