"""Variants of workloads, chosen with the placement: exact on small instances, refused by what knows none."""

import itertools

import pytest
from drawn_variants import with_variants
from small_solver import optimum
from synthetic import random_instance
from synthetic_sharing import random_sharing, same

import provision
from provision.formulations.pricing.mps.tables import least_units, tables_of
from provision.instances.files.files import dump

TWINS = ("assignment-cpsat", "assignment-milp")
ALONE = [
    dict(workloads=2, gpus=("a30",)),
    dict(workloads=2, gpus=("a30",), tolerant=True, gpus_each=0.8),
    dict(workloads=3, gpus=("t4",), gpus_each=0.8),
    dict(workloads=2, gpus=("a30", "t4"), limited=True, gpus_each=0.8),
]
TOGETHER = [
    (dict(workloads=3, hot=True), ("master", *TWINS), ("greedy", "lns")),
    (dict(workloads=3, gpus=("v100", "t4"), limited=True, hot=True), ("master", *TWINS), ("greedy", "lns")),
    (dict(workloads=2, gpus=("t4",), mps=False), TWINS, ()),
]
"""Random instances, the exact methods for them, and the fast ones."""
SHIPPED = "igniter-variants-12"


@pytest.fixture(scope="module")
def shipped():
    """The shipped instance."""
    return provision.read(SHIPPED)


@pytest.fixture(scope="module")
def solved(shipped):
    """Its proven plan."""
    return provision.solve(shipped, "master")


def of_models(instance, models):
    """An instance whose workloads run these models and no others."""
    pairs = zip(instance.workloads, models, strict=True)
    return instance.replace(
        workloads=tuple(one.model_copy(update={"model": model, "variants": ()}) for one, model in pairs)
    )


def least_alone(instance):
    """(workloads,) least units of a V100 that each needs alone."""
    demands = [(one.models, instance.budget_ms(one), instance.planned_rps(one)) for one in instance.workloads]
    return least_units(tables_of(instance.performance[0], instance.shared_rule, demands))


@pytest.mark.parametrize("kind", range(len(ALONE)))
@pytest.mark.parametrize("seed", range(4))
def test_isolated_segments_agree_with_brute_force(kind, seed):
    instance = with_variants(random_instance(seed, **ALONE[kind]), seed)
    best = optimum(instance)
    for result in (provision.solve(instance, name) for name in ("auto", *TWINS)):
        assert same(result.objective, best)
        assert result.status == ("optimal" if best is not None else "infeasible")


@pytest.mark.parametrize("kind", range(len(TOGETHER)))
@pytest.mark.parametrize("seed", range(3))
def test_interference_agrees_with_brute_force(kind, seed):
    settings, exact, fast = TOGETHER[kind]
    instance = with_variants(random_sharing(seed, **settings), seed, most=1)
    best = optimum(instance)
    for result in (provision.solve(instance, name) for name in exact):
        assert same(result.objective, best)
        assert result.status == "optimal" or best is None
    for found in (provision.solve(instance, name, time_limit_s=0.2) for name in fast):
        assert found.plan is None or (found.verified and found.objective >= best * (1 - 1e-9))


def test_a_variant_is_used_where_it_is_better_and_never_costs_more():
    """What is best with variants is no dearer than without, and now and then cheaper."""
    cheaper = 0
    for seed in range(12):
        plain = random_instance(seed, workloads=3, gpus=("a30",))
        varied = with_variants(plain, seed)
        before, after = (provision.solve(one, "master") for one in (plain, varied))
        assert after.objective <= before.objective
        cheaper += after.objective < before.objective
    assert cheaper


def test_the_joint_choice_saves_a_gpu(shipped, solved):
    """Four V100s, proven; five, proven, with what needs least alone, and for every one choice by model."""
    assert (solved.status, solved.report.gpus) == ("optimal", 4) and solved.verified
    assert provision.solve(shipped, "greedy").report.gpus == 4
    models = [one.models for one in shipped.workloads]
    units = [least_alone(of_models(shipped, choice)) for choice in zip(*models, strict=True)]
    alone = of_models(shipped, [names[min((0, 1), key=lambda at: units[at][index])]
                                for index, names in enumerate(models)])
    by_model = [of_models(shipped, [names[chosen[names[0]]] for names in models])
                for kinds in [sorted({names[0] for names in models})]
                for chosen in (dict(zip(kinds, flags, strict=True)) for flags in itertools.product((0, 1), repeat=4))]
    assert len(by_model) == 16
    for result in (provision.solve(one, "master", replay=False) for one in (alone, *by_model)):
        assert result.report.gpus == 5 and result.bound > 4 * shipped.fleet[0].price_per_hour


def test_coefficients_that_nobody_measured_say_so(shipped):
    data = shipped.performance[0]
    assert "NOT measured" in data.source
    assert {name for name, model in data.models.items() if model.error is None} == {
        variant for one in shipped.workloads for variant in one.variants
    }


def test_files_without_variants_are_what_they_were():
    instance = provision.read("igniter-testbed-12")
    plan = provision.solve(instance, "greedy").plan
    assert "variants" not in dump(instance, "x.json") + instance.model_dump_json()
    assert '"model"' not in dump(plan, "x.json")


def test_files_with_variants_come_back(shipped, solved, tmp_path):
    for record, back in ((shipped, provision.read), (solved.plan, provision.read_plan)):
        provision.write(record, tmp_path / "file.yaml", force=True)
        assert back(tmp_path / "file.yaml") == record


def test_a_model_that_the_workload_has_not_is_a_violation(shipped, solved):
    first = solved.plan.gpus[0].slices[0]
    other = "ssd" if "vgg" in first.replicas[0].workload else "vgg19"
    wrong = first.replicas[0].model_copy(update={"model": other})
    piece = first.model_copy(update={"replicas": (wrong, *first.replicas[1:])})
    gpus = (solved.plan.gpus[0].model_copy(update={"slices": (piece,)}), *solved.plan.gpus[1:])
    report = provision.verify(shipped, solved.plan.model_copy(update={"gpus": gpus}))
    found = [one.message for one in report.violations if one.kind == "operating_point"]
    assert len(found) == 1 and f"runs {wrong.model}, the models of the workload are" in found[0]


@pytest.mark.parametrize("name", ["igniter", "ffd", "ffd++"])
def test_systems_of_papers_know_no_variants(name, shipped):
    with pytest.raises(provision.UnsupportedError, match="variants of a workload; use --method auto, or leave"):
        provision.solve(shipped, name)


@pytest.mark.parametrize("name", ["parvagpu", "mig-serving-fast", "paris", "gpulets", "nexus", "gslice"])
def test_systems_for_isolated_slices_refuse_them_too(name):
    instance = with_variants(random_instance(3, gpus=("a100-80gb",)), 3)
    with pytest.raises(provision.UnsupportedError, match="variants"):
        provision.solve(instance, name)


def test_variants_on_slices_that_workloads_share():
    """Ruin and recreate plans them; auto bounds them."""
    varied = with_variants(provision.read("parvagpu-s1-shared"), 0)
    varied = varied.replace(workloads=varied.workloads[:3])
    assert provision.solve(varied, "lns", iterations=500).verified
    result = provision.solve(varied, "auto")
    assert result.verified and 0 < result.bound <= result.objective
