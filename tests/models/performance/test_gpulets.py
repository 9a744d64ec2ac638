"""gpu-lets' data, plans with turns, and the methods: what must hold of each, and the exact one against brute force."""

import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from gpulets_scenarios import GPUS, SCENARIOS, SCENARIOS_2022, SLO_MS, grid, requests, scenario
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from small_solver import solve as solve_small

import provision
from provision.applier.target import check_plan
from provision.formulations.pricing.temporal.tables import ALONE
from provision.heuristics.gpulets.gpulets import PUBLISHED, efficient_shares, knee, required_share
from provision.heuristics.gpulets.plans import GpuletTables
from provision.models.base.errors import InputError
from provision.models.performance.catalogue import load_performance
from provision.models.performance.operating_points import Member
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from fit_gpulets import derived

TABLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "gpulets"
DATA = load_performance("gpulets-2080ti")
MODELS = sorted(DATA.models)
NAMES = (
    "nexus", "nexus-halves", "gslice", "gpulets", "gpulets-without-interference", "gpulets-published", "gpulets-ideal",
    "master",
)
HONEST = ("nexus", "gpulets", "gpulets-ideal", "master")
"""Methods whose plans must hold."""
rates = st.lists(st.sampled_from([0.0, 3.0, 50.0, 200.0, 400.0, 600.0]), min_size=5, max_size=5).filter(any)


def planned(*replicas):
    """A plan of one GPU with these (workload, batch, share, rate, turn)."""
    return Plan(
        version=1, instance="made",
        gpus=[PlannedGpu(gpu="rtx2080ti", mig=False, slices=[Slice(profile="whole", replicas=[
            Replica(workload=name, batch=batch, sm_share=share, rate_rps=rate, turn=turn)
            for name, batch, share, rate, turn in replicas
        ])])],
    )


def faults(instance, plan):
    """Kinds of the violations of a plan, rates not routed left out."""
    return {one.kind for one in provision.verify(instance, plan).violations if one.gpu is not None}


def test_a_duty_cycle_by_hand():
    """Two replicas in turns on 0.4 of a GPU: the cycle is both executions, each request waits one and runs."""
    members = [Member("resnet50", 4, 1, 0.4, turn=3), Member("googlenet", 2, 1, 0.4, turn=3)]
    resnet, goo = DATA.models["resnet50"], DATA.models["googlenet"]
    busy = [one.fixed_ms + one.per_request_ms * batch / 0.4**0.5 for one, batch in ((resnet, 4), (goo, 2))]
    found = DATA.predict("whole", members)
    assert [one.latency_ms for one in found] == pytest.approx([(sum(busy) + ms) / 2 for ms in busy])
    assert [one.throughput_rps for one in found] == pytest.approx([4000 / sum(busy), 2000 / sum(busy)])


def test_interference_is_the_linear_model_on_utilisation_at_the_share():
    members = [Member("vgg16", 16, 1, 0.5), Member("resnet50", 32, 1, 0.5)]
    used = []
    for member in members:
        one = DATA.models[member.model]
        points = [one.utilisation(b, 0.5) for b in DATA.batches if b <= member.batch]
        used.append(points)
    worst = max(DATA.interference.slowdown(*pair) for pair in (
        (own[0], other[0], own[1], other[1]) for own in used[0] for other in used[1]
    ))
    beside, alone = (DATA.predict("whole", some)[0].latency_ms for some in (members, members[:1]))
    assert beside / alone == pytest.approx(worst)
    assert 1.05 < worst < 1.4


@settings(max_examples=60)
@given(st.data())
def test_scalar_path_and_arrays_agree(data):
    """Executions beside a replica on the other part, and alone."""
    split = data.draw(st.sampled_from(DATA.splits[1:]))
    one, other = data.draw(st.sampled_from(MODELS)), data.draw(st.sampled_from(MODELS))
    first, second = (data.draw(st.integers(0, len(DATA.batches) - 1)) for _ in range(2))
    instance = Instance(
        version=1, name="made", fleet=({"gpu": "rtx2080ti"},), performance=DATA,
        workloads=tuple(Workload(name=str(at), model=model, slo_ms=1e6, rate_rps=1.0)
                        for at, model in enumerate((one, other))),
    )
    tables = GpuletTables(instance)
    shares = [tables.shares.index(share) for share in split]
    batches = [DATA.batches[first], DATA.batches[second]]
    members = [Member(model, batch, 1, share) for model, batch, share in zip((one, other), batches, split, strict=True)]
    found = DATA.predict("whole", members)
    pressure = tables.pressure[shares[1], 1, second]
    assert found[0].latency_ms == pytest.approx(tables.beside(shares[0], pressure)[0, first])
    alone = DATA.predict("whole", members[:1])
    assert alone[0].latency_ms == pytest.approx(tables.beside(shares[0], ALONE)[0, first])
    assert found[0].latency_ms >= alone[0].latency_ms * (1 - 1e-12)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.floats(1, 300)), min_size=1, max_size=3, unique_by=lambda one: one[0]),
       st.integers(0, 5), st.sampled_from([ALONE, 0.0, 0.1, 0.3]))
def test_fitted_batches_are_the_smallest_that_any_duty_cycle_has(load, share, pressure):
    """Against all batches: those found meet rates and SLOs, and no others that do are smaller anywhere."""
    tables = GpuletTables(requests("made", [1.0] * 5))
    found = tables.fit(share, tuple(load), pressure)
    who, needed = np.array([one for one, _ in load]), np.array([rate for _, rate in load])
    size = np.stack(np.meshgrid(*[np.arange(len(DATA.batches))] * len(load), indexing="ij"), -1).reshape(-1, len(load))
    busy_ms = tables.beside(share, pressure)[who, size]
    cycle_ms = busy_ms.sum(axis=1, keepdims=True)
    carries = 1000 * tables.batches[size] / cycle_ms >= needed * (1 - 1e-12)
    holds = (carries & (cycle_ms + busy_ms <= tables.allowed_ms[who])).all(axis=1)
    if found is None:
        assert not holds.any()
    else:
        assert (size[holds] >= found).all()
        assert holds[(size == found).all(axis=1)].all()


@settings(max_examples=8)
@given(rates)
def test_plans_hold_and_the_exact_method_is_never_worse(drawn):
    """On four GPUs: honest methods' plans hold, ours has one wherever another does, with no more GPUs."""
    instance = requests("made", drawn)
    results = {name: provision.solve(instance, name) for name in NAMES}
    assert all(results[name].plan is None or results[name].verified for name in HONEST)
    assert all(one.status == "unknown" for one in results.values() if one.plan is not None and not one.verified)
    ours = results["master"]
    assert ours.status in ("optimal", "infeasible")
    held = [one.objective for one in results.values() if one.verified]
    assert (ours.status == "infeasible") == (not held)
    if held:
        assert ours.objective == ours.bound == min(held)


@pytest.mark.parametrize("seed", range(12))
def test_exact_method_against_brute_force(seed):
    """Two workloads on few batch sizes: the same number of GPUs, found through the scalar path."""
    rng = np.random.default_rng(seed)
    models = rng.choice(MODELS, 2, replace=False)
    data = DATA.model_copy(update={"batches": (2, 8, 32), "scaling": float(rng.choice([0.3, 0.8]))})
    instance = Instance(
        version=1, name="made", fleet=({"gpu": "rtx2080ti"},), performance=data,
        workloads=tuple(
            Workload(name=str(model), model=str(model), slo_ms=SLO_MS[model] * float(rng.uniform(1, 2)),
                     rate_rps=float(rng.uniform(50, 1500))) for model in models
        ),
    )
    result = provision.solve(instance, "gpulets-patterns")
    assert (result.status, result.objective, result.verified) == ("optimal", solve_small(instance).value, True)


def test_a_workload_may_have_several_turns_on_a_part():
    """With two batches of ResNet and one of VGG in a cycle a GPU carries more of ResNet than with one of each."""
    data = DATA.model_copy(update={"splits": ((1.0,),), "batches": (8,)})
    resnet_ms, vgg_ms = (DATA.models[name].execution_ms(8, 1.0, DATA.scaling) for name in ("resnet50", "vgg16"))
    one, two = 8000 / (resnet_ms + vgg_ms), 16000 / (2 * resnet_ms + vgg_ms)
    instance = requests("made", [0, 0, (one + two) / 2, 0, 10.0], data)
    slow = instance.replace(workloads=[one.model_copy(update={"slo_ms": 1000.0}) for one in instance.workloads])
    result = provision.solve(slow, "master")
    assert (result.status, result.objective, result.verified) == ("optimal", 1.0, True)


def test_ideal_is_never_worse_than_elastic_partitioning():
    for instance in list(grid())[::97]:
        elastic, ideal = (provision.solve(instance, name) for name in ("gpulets", "gpulets-ideal"))
        assert elastic.plan is None or ideal.objective <= elastic.objective


def test_grid_and_scenarios():
    assert sum(1 for _ in grid()) == 1023
    for name in SCENARIOS:
        result = provision.solve(scenario(name, 1.0), slack="no")
        assert result.status == "optimal" and result.objective <= GPUS
    with pytest.raises(InputError, match="use one of equal"):
        scenario("short")


@pytest.mark.parametrize("name", SCENARIOS_2022)
def test_scenarios_of_the_public_program(name):
    """A batch of 32 takes half of every SLO; they ship at 100 requests/s."""
    made = provision.read(f"gpulets-{name}")
    assert made.workloads == scenario(name, 100.0).workloads
    [data] = made.performance
    for one in made.workloads:
        [alone] = data.predict("whole", [Member(one.model, 32, 1, 1.0)])
        assert alone.latency_ms == pytest.approx(one.slo_ms / 2, rel=1e-5)
    assert provision.solve(made, "gpulets").verified and len(data.models) == 9


@pytest.mark.parametrize("name", SCENARIOS)
def test_shipped_scenarios_are_those_of_the_generator(name):
    shipped = provision.read(f"gpulets-{name}")
    made = scenario(name, {"game": 200.0, "traffic": 100.0}.get(name, 1.0))
    assert shipped.workloads == made.workloads and shipped.fleet == made.fleet


def test_knee_and_least_share():
    """A curve that bends at 0.4 has its knee there; the least share carries the rate."""
    tables = GpuletTables(requests("made", [10.0] * 5))
    tables.capacity_alone = np.array([[100, 200, 205, 210, 220, 230]] * 5, float).T
    assert [tables.shares[at] for at in efficient_shares(tables)] == [0.4] * 5
    assert [tables.shares[required_share(tables, 0, rate)] for rate in (50, 150, 221, 500)] == [0.2, 0.4, 1.0, 1.0]


def test_knee_is_never_the_whole_gpu_nor_after_a_step_that_hardly_helps():
    shares = (0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
    assert knee(shares, np.array([10, 20, 30, 40, 50, 900.0])) == 2
    assert knee(shares, np.array([1000, 1010, 1020, 1030, 1040, 1050.0])) == 0
    assert knee(shares, np.array([0, 0, 0, 0, 0, 7.0])) == 5
    assert knee((1.0,), np.array([7.0])) == 0


def test_a_part_takes_the_largest_rate_that_it_can():
    """`game` at 1,260 requests/s: no part takes all of a rate beside the others, and there is a plan."""
    result = provision.solve(scenario("game", 1260.0), "gpulets")
    assert result.verified and result.report.gpus <= GPUS
    assert len(list(result.plan.replicas())) > len(scenario("game").workloads)


def test_published_tolerances_are_parameters():
    """At most three models take turns, and what a tolerance leaves out makes the outcome unknown, with its name."""
    published = provision.solve(scenario("game", 1260.0), "gpulets-published")
    assert max(len(list(group)) for group in turns_of(published.plan)) <= PUBLISHED.models_per_part
    same = provision.solve(scenario("game", 1260.0), "gpulets", **PUBLISHED._asdict())
    assert same.plan.gpus == published.plan.gpus
    high = requests("made", [0, 0, 4000.0, 0, 0])
    exact, tolerant = (provision.solve(high, "gpulets", served_share=part) for part in (1.0, 0.5))
    assert exact.plan is None and tolerant.status == "unknown" and "resnet50" in tolerant.reason
    with pytest.raises(InputError, match="slo_factor"):
        provision.solve(high, "gpulets", slo_factor=0)


@pytest.mark.parametrize("method", ["nexus", "nexus-halves", "gslice", "gpulets", "gpulets-ideal"])
def test_the_reserve_plans_as_if_every_execution_took_longer(method):
    """The plan is that of data with longer times and the same utilisations; judged by the true data it still holds."""
    slower = DATA.model_copy(update={"models": {name: one.model_copy(update={
        field: 1.1 * getattr(one, field) for field in type(one).model_fields if field.endswith("_ms")
    }) for name, one in DATA.models.items()}})
    drawn = [100.0, 150.0, 100.0, 50.0, 50.0]
    reserved = provision.solve(requests("made", drawn), method, latency_ratio=PUBLISHED.latency_ratio)
    assert reserved.plan.gpus == provision.solve(requests("made", drawn, slower), method).plan.gpus
    assert method not in HONEST or reserved.verified


def turns_of(plan):
    """The replicas of every part of a plan."""
    for gpu in plan.gpus:
        for _, group in groupby(gpu.slices[0].replicas, key=lambda one: (one.turn, one.workload * (one.turn is None))):
            yield group


INSTANCE = requests("made", [100.0] * 5)


def test_shares_add_up_over_turns():
    """Two in turns on 0.4 beside one on 0.6 are a GPU; a third part, or another split, is not."""
    turns = [("vgg16", 4, 0.4, 1.0, 0), ("resnet50", 4, 0.4, 1.0, 0)]
    beside = ("ssd-mobilenetv1", 4, 0.6, 1.0, None)
    assert faults(INSTANCE, planned(*turns, beside)) == set()
    assert "capacity" in faults(INSTANCE, planned(*turns, beside, ("googlenet", 1, 0.2, 1.0, None)))
    assert "operating_point" in faults(INSTANCE, planned(*turns, ("googlenet", 1, 0.5, 1.0, None)))


@pytest.mark.parametrize(
    "replica", [("vgg16", 4, 0.3, 1.0, None), ("vgg16", 3, 0.4, 1.0, None), ("vgg16", 4, 0.4, 1.0, 1)],
    ids=["no such share", "no such batch", "unequal shares in a turn"],
)
def test_what_the_data_does_not_describe_is_refused(replica):
    other = ("resnet50", 4, 0.6, 1.0, 1)
    assert "operating_point" in faults(INSTANCE, planned(replica, other))


def test_a_late_turn_is_a_violation():
    """LeNet's 5 ms leave no time for VGG's turn."""
    assert "latency" in faults(INSTANCE, planned(("vgg16", 1, 1.0, 1.0, 0), ("lenet", 1, 1.0, 1.0, 0)))


def test_other_kinds_of_data_refuse_turns():
    shared = provision.read("igniter-motivation")
    plan = provision.solve(shared, "igniter").plan
    [gpu] = plan.gpus
    turned = [one.model_copy(update={"turn": 0}) for one in gpu.slices[0].replicas]
    changed = gpu.model_copy(update={"slices": (gpu.slices[0].model_copy(update={"replicas": tuple(turned)}),)})
    found = provision.verify(shared, plan.model_copy(update={"gpus": (changed,)}))
    assert {one.kind for one in found.violations} == {"operating_point"}


def test_methods_that_know_no_turns_refuse():
    able = {"auto", "master", "greedy", "lns", "assignment-cpsat", "assignment-milp", *NAMES}
    for method in set(provision.methods()) - able:
        with pytest.raises(provision.UnsupportedError, match="use --method auto, master, greedy, lns or gpulets"):
            provision.solve(INSTANCE, method)


def test_unsupported_demands_and_queueing_are_refused():
    twice = INSTANCE.workloads[0].model_copy(update={"min_replicas": 2})
    for method in ("gpulets", "nexus"):
        with pytest.raises(provision.UnsupportedError, match="min_replicas other than 1"):
            provision.solve(INSTANCE.replace(workloads=(twice,)), method)
    bursty = {"latency_budget": "queueing", "arrivals": {"process": "renewal", "cv": 2.0}}
    with pytest.raises(ValidationError, match="for Poisson arrivals alone"):
        INSTANCE.replace(policy=bursty)


def test_turns_are_neither_exported_nor_applied():
    plan = provision.solve(INSTANCE, "nexus").plan
    with pytest.raises(InputError, match="export takes no plan with turns"):
        provision.export(plan, "shell", "unused", INSTANCE)
    with pytest.raises(InputError, match="apply takes no plan with turns"):
        check_plan(plan)


def test_too_few_gpus_is_proven_and_says_how_many():
    result = provision.solve(requests("made", [0, 0, 2000.0, 2000.0, 2000.0]))
    assert result.status == "infeasible"
    least = int(result.reason.split("at least ")[1].split()[0])
    assert least > GPUS


def test_a_model_too_large_for_the_gpu_is_infeasible():
    large = DATA.models["vgg16"].model_copy(update={"memory_gib": 12.0})
    data = DATA.model_copy(update={"models": DATA.models | {"vgg16": large}})
    result = provision.solve(requests("made", [10.0] * 5, data))
    assert result.status == "infeasible" and "can run vgg16 at all" in result.reason


def test_memory_keeps_large_models_apart():
    """Two models of 6 GiB on GPUs of 11 GiB: two GPUs, although one has time for both."""
    large = {name: DATA.models[name].model_copy(update={"memory_gib": 6.0}) for name in ("googlenet", "vgg16")}
    instance = requests("made", [0, 10.0, 0, 0, 10.0], DATA.model_copy(update={"models": DATA.models | large}))
    for name in HONEST:
        result = provision.solve(instance, name)
        assert (result.verified, result.objective) == (True, 2.0)


def test_idle_workload_keeps_a_replica():
    idle = INSTANCE.workloads[0].model_copy(update={"rate_rps": 0.0})
    for name in HONEST:
        result = provision.solve(INSTANCE.replace(workloads=(idle,)), name)
        assert result.verified and len(list(result.plan.replicas())) == 1


@pytest.mark.parametrize("changes, problem", [
    ({"splits": [[0.5, 0.4], [1.0]]}, "must add up to 1"),
    ({"splits": [[0.5, 0.5]]}, "the whole GPU"),
    ({"batches": [4, 2]}, "must rise"),
    ({"scaling": 1.5}, "less than or equal to 1"),
])
def test_wrong_data_is_refused(changes, problem):
    with pytest.raises(ValidationError, match=problem):
        type(DATA).model_validate(DATA.model_dump(mode="json") | changes)


def test_turns_are_what_shared_parts_have():
    """Replicas with a turn stand with others on it, those without stand on a share of their own."""
    for instance in list(grid())[5::113]:
        plan = provision.solve(instance, "gpulets-ideal").plan
        for gpu in plan.gpus if plan else ():
            turns = [one.turn for one in gpu.slices[0].replicas]
            assert all(turn is None or turns.count(turn) > 1 for turn in turns)
            assert sum(gpu.slices[0].held_shares) <= 1 + 1e-9


def test_halves_need_a_split_into_halves():
    data = DATA.model_copy(update={"splits": ((1.0,), (0.2, 0.8))})
    with pytest.raises(provision.UnsupportedError, match="no split halves; use --method nexus"):
        provision.solve(requests("made", [50.0] * 5, data), "nexus-halves")
    assert provision.solve(requests("made", [50.0] * 5, data), "nexus").verified


@pytest.mark.parametrize("method", HONEST[:3])
def test_no_batch_could_be_larger(method):
    """Plans of methods that know what holds: with the next size of any one batch the verifier finds fault."""
    for instance in list(grid())[40::256]:
        plan = provision.solve(instance, method).plan
        for at, gpu in enumerate(plan.gpus if plan else ()):
            for grown in filter(None, map(_grown, [gpu] * 12, range(12))):
                changed = plan.model_copy(update={"gpus": (*plan.gpus[:at], grown, *plan.gpus[at + 1 :])})
                assert {"latency", "rate"} & faults(instance, changed)


def _grown(gpu, which):
    """A GPU with the next batch size for one replica; None where there is none."""
    replicas = gpu.slices[0].replicas
    sizes = [size for size in DATA.batches if which < len(replicas) and size > replicas[which].batch]
    if not sizes:
        return None
    larger = replicas[which].model_copy(update={"batch": sizes[0]})
    piece = gpu.slices[0].model_copy(update={"replicas": (*replicas[:which], larger, *replicas[which + 1 :])})
    return gpu.model_copy(update={"slices": (piece,)})


def test_gslice_takes_no_turns():
    plan = provision.solve(requests("made", [200.0] * 5), "gslice").plan
    assert all(replica.turn is None for *_, replica in plan.replicas())


def test_nexus_keeps_a_machine_saturated_and_squishes_the_rest():
    """ResNet at one and a half times what a GPU carries: one GPU full, the rest in turns with VGG on another."""
    tables = GpuletTables(INSTANCE)
    full = tables.capacity_alone[tables.whole, 2]
    plan = provision.solve(requests("made", [0, 0, 1.3 * full, 0, 50.0]), "nexus").plan
    routed = sorted((at, one.workload, one.rate_rps, one.turn) for at, _, _, one in plan.replicas())
    assert routed[0][:2] == (0, "resnet50") and routed[0][2] == pytest.approx(full)
    assert [(name, turn) for _, name, _, turn in routed[1:]] == [("resnet50", 0), ("vgg16", 0)]


@pytest.mark.skipif(not TABLES.is_dir(), reason="gpu-lets' tables are not beside the checkout")
def test_shipped_data_is_what_the_public_tables_give():
    assert derived(TABLES, 2021, DATA.scaling) == DATA
    assert derived(TABLES, 2022, DATA.scaling) == load_performance("gpulets-2080ti-2022")
    assert all(model.error.mean < 0.15 for model in DATA.models.values())
    for name, slo_ms in SLO_MS.items():
        model = DATA.models[name]
        assert 2 * model.execution_ms(32, 1.0, DATA.scaling) == pytest.approx(slo_ms, rel=1e-4)
