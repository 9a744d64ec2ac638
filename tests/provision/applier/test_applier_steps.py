"""The pure part of the applier: which GPU becomes which, which steps, in which order, against trial and error."""

from itertools import permutations

import pytest
from applier_scenario import KIND, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.applier.layout import MachineLayout, Observed, ObservedGpu, ObservedProfile, ObservedSlice, Process
from provision.applier.match import fitted, other_sms, target_layout
from provision.applier.steps import steps_between
from provision.applier.target import Commands, gpu_layout
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import gpu_type, gpu_types, names_type
from provision.models.plans.plan import Plan

SHAPE = geometry(gpu_type(KIND))
STATES = [[(SHAPE.profiles[kind].name, start) for start, kind in state] for state in sorted(SHAPE.states)]
PROFILES = {profile.name: profile for profile in gpu_type(KIND).mig.profiles}
states = st.sampled_from(STATES)


def observed(*states, clients=()):
    """GPUs in the given states, slices named in ``clients`` as (GPU, start) busy."""
    return Observed(gpus=tuple(_gpu(index, state, clients) for index, state in enumerate(states)))


def _gpu(index, state, clients):
    wanted = gpu_layout(plan(state).gpus[0], f"GPU-{index}", Commands())
    slices = [
        ObservedSlice(
            **piece.model_dump(),
            instance=at,
            devices=(f"MIG-{index}-{at}",),
            clients=(Process(pid=7),) if (index, piece.start) in clients else (),
        )
        for at, piece in enumerate(wanted.slices)
    ]
    profiles = [
        ObservedProfile(enumerator=one.nvml_profile, id=one.profile_id, name=one.name, sms=one.sms, most=one.max)
        for one in PROFILES.values()
    ]
    product = gpu_type(KIND).product
    return ObservedGpu(
        index=index, uuid=wanted.uuid, product=product, mig_capable=True, mig=True, mig_pending=True,
        profiles=profiles, slices=slices,
    )


def carried_out(state, steps):
    """The state after the steps; fails when instances would overlap or hold compute instances when destroyed."""
    there = {place: True for place in state}
    for step in steps:
        place = (step.slice.profile, step.slice.start)
        if step.action == "destroy_compute":
            there[place] = False
        elif step.action == "destroy_instance":
            assert there.pop(place) is False
        elif step.action == "create_instance":
            assert place not in there
            taken = {slot for other in there for slot in _slots(other)}
            assert taken.isdisjoint(_slots(place))
            there[place] = False
        elif step.action == "create_compute":
            there[place] = True
    assert all(there.values())
    return sorted(there)


def _slots(place):
    return range(place[1], place[1] + PROFILES[place[0]].memory)


@given(states, states)
def test_steps_lead_to_the_target_and_destroy_only_what_it_does_not_have(state, target):
    present = observed(state)
    steps = steps_between(present, MachineLayout(gpus=(gpu_layout(plan(target).gpus[0], "GPU-0", Commands()),)))
    assert carried_out(state, steps) == sorted(target)
    destroyed = [step for step in steps if step.action == "destroy_instance"]
    assert len(destroyed) == len(set(state) - set(target))
    assert bool(steps) == (set(state) != set(target))


@given(states, states)
def test_nothing_is_destroyed_before_what_needs_no_room_stands(state, target):
    steps = steps_between(observed(state), target_layout(plan(target), observed(state), Commands()))
    actions = [step.action for step in steps]
    if "destroy_instance" in actions:
        before = [step.slice for step in steps[: actions.index("destroy_instance")] if step.action == "create_instance"]
        free = [place for place in set(target) - set(state) if not _blocked(place, set(state) - set(target))]
        assert {(piece.profile, piece.start) for piece in before} == set(free)


def _blocked(place, doomed):
    return any(set(_slots(place)) & set(_slots(other)) for other in doomed)


@settings(max_examples=40)
@given(st.lists(states, min_size=2, max_size=4), st.data())
def test_the_assignment_destroys_the_fewest_instances(there, data):
    targets = data.draw(st.lists(states, min_size=1, max_size=len(there)))
    present = observed(*there)
    goals = target_layout(plan(*targets), present, Commands())
    steps = steps_between(present, goals)
    fewest = min(
        sum(len(set(state) - set(target)) for state, target in zip(order, targets, strict=False))
        for order in permutations(there, len(targets))
    )
    assert sum(step.action == "destroy_instance" for step in steps) == fewest
    assert len({goal.uuid for goal in goals.gpus}) == len(targets)


def test_a_busy_slice_is_avoided_before_anything_else():
    present = observed([("7g.80gb", 0)], [("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 2)], clients={(0, 0)})
    goals = target_layout(plan([("4g.40gb", 0)]), present, Commands())
    assert [goal.uuid for goal in goals.gpus] == ["GPU-1"]
    only = target_layout(plan([("4g.40gb", 0)]), present, Commands(), ["GPU-0"])
    assert "evict" in [step.action for step in steps_between(present, only)]


def test_steps_say_when_a_workload_falls_below_its_demand():
    before = gpu_layout(plan([("4g.40gb", 0, {"bert": 1})]).gpus[0], "GPU-0", Commands())
    here = observed([("4g.40gb", 0)]).gpus[0]
    slices = (here.slices[0].model_copy(update={"replicas": before.slices[0].replicas}),)
    present = Observed(gpus=(here.model_copy(update={"slices": slices}),))
    replaced = steps_between(present, target_layout(plan([("3g.40gb", 0, {"bert": 1})]), present, Commands()))
    down = [step.action for step in replaced if step.shortfalls]
    assert down == ["remove_replica", "destroy_compute", "destroy_instance", "create_instance", "create_compute"]
    assert [step.text for step in replaced] == [
        "remove replica 0 (bert) from 4g.40gb at 0", "destroy the compute instance with 56 SMs of 4g.40gb at 0",
        "destroy 4g.40gb at 0", "create 3g.40gb at 0", "create a compute instance with 42 SMs in 3g.40gb at 0",
        "add replica 0 (bert) to 3g.40gb at 0",
    ]
    assert {(one.workload, one.in_place_rps, one.demand_rps) for one in replaced[0].shortfalls} == {("bert", 0, 10)}
    spare = Observed(gpus=(*present.gpus, observed([], []).gpus[1]))
    moved = steps_between(spare, target_layout(plan([("3g.40gb", 0, {"bert": 1})]), spare, Commands()))
    assert moved[-1].action == "remove_replica" and not any(step.shortfalls for step in moved)


@pytest.mark.parametrize(("running", "actions"), [
    (2, []), (1, ["add_replica"]), (3, ["remove_replica", "add_replica"]),
])
def test_a_replica_that_lacks_processes_is_not_stopped_first(running, actions):
    """Of two processes one has ended: the other goes on while it is started; one too many means to begin anew."""
    commands, wanted = Commands("serve"), plan([("4g.40gb", 0, {"bert": 2})])
    [piece] = gpu_layout(wanted.gpus[0], "GPU-0", commands).slices
    there = piece.replicas[0].model_copy(update={"running": running})
    gpu = observed([("4g.40gb", 0)]).gpus[0]
    slices = (gpu.slices[0].model_copy(update={"replicas": (there,), "mps": True}),)
    present = Observed(gpus=(gpu.model_copy(update={"slices": slices}),))
    steps = steps_between(present, target_layout(wanted, present, commands))
    assert [step.action for step in steps] == actions


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA A30", "a30"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
    ],
)
def test_gpus_are_known_by_what_the_driver_calls_them(product, name):
    gpu = observed([]).gpus[0].model_copy(update={"product": product})
    assert [kind.name for kind in gpu_types().values() if names_type(gpu.product, kind)] == [name]


def test_the_drivers_number_of_sms_is_taken_and_told():
    here = observed([]).gpus[0]
    profiles = tuple(one.model_copy(update={"sms": one.sms - 2}) for one in here.profiles)
    present = Observed(gpus=(here.model_copy(update={"profiles": profiles}),))
    target = target_layout(plan([("3g.40gb", 0)]), present, Commands())
    assert [piece.computes[0].sms for piece in fitted(target, present).gpus[0].slices] == [40]
    (line,) = other_sms(target, present)
    assert line.startswith("GPU 0: 3g.40gb has 40 SMs here, the plan counts on 42")


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([("3g.20gb", 0)], "gpus[0].slices[0]: a100-80gb has no MIG profile '3g.20gb'"),
        ([("3g.40gb", 1)], "cannot start at memory slice 1; it can at 0, 4"),
        ([("4g.40gb", 0), ("2g.20gb", 2)], "gpus[0].slices[1]: 2g.20gb at 2 overlaps 4g.40gb at 0"),
        ([("1g.10gb", 0, {"bert": 49})], "gpus[0].slices[0]: 49 processes, MPS serves at most 6"),
    ],
)
def test_a_plan_that_no_gpu_takes_is_refused(pieces, words):
    with pytest.raises(InputError) as refusal:
        target_layout(plan(pieces), observed([]), Commands())
    assert words in str(refusal.value)


def test_what_a_type_cannot_do_is_refused():
    """MIG on a GPU without it, two profiles with the one set of media engines, replicas that take turns."""
    media = [("1g.6gb+me", 0), ("2g.12gb+me", 2)]
    turns = plan([("3g.40gb", 0, {"bert": 1})]).model_dump()
    turns["gpus"][0]["slices"][0]["replicas"][0]["turn"] = 0
    for wrong, words in (
        (plan([], kind="t4"), r"gpus\[0\]: t4 has no MIG; set mig to false"),
        (plan(media, kind="a30"), r"2 sets of media engines \(1g\.6gb\+me and 2g\.12gb\+me\), the GPU has 1"),
        (Plan.model_validate(turns), "apply takes no plan with turns"),
    ):
        with pytest.raises(InputError, match=words):
            target_layout(wrong, observed([]), Commands())


def test_too_few_gpus_and_unknown_gpus_are_named():
    with pytest.raises(InputError, match="the plan needs 2 GPUs of type a100-80gb, 1 may be used"):
        target_layout(plan([], []), observed([], []), Commands(), ["1"])
    with pytest.raises(InputError, match="--gpus 5: there is no such GPU; there are 0 NVIDIA A100"):
        target_layout(plan([]), observed([]), Commands(), ["5"])


def test_clients_are_limited_through_their_environment():
    replicas = [{"workload": "a", "batch": 8, "processes": 3, "sm_share": 0.25, "rate_rps": 12.5}]
    shared = [*replicas, {"workload": "b", "batch": 1, "sm_share": 0.5, "rate_rps": 1.0}]
    alone, both, single = (_environments(one) for one in (replicas, shared, shared[1:]))
    assert alone[0]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert alone[0]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={int(39.25 * 1024 / 3)}M"
    assert [one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for one in both] == ["25", "50"]
    assert not any("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in one for one in both)
    assert single[0]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    whole = _environments([shared[1] | {"sm_share": 1.0}])
    assert not any("MPS" in name for name in whole[0])


def _environments(replicas):
    gpu = {"gpu": KIND, "mig": True, "slices": [{"profile": "3g.40gb", "start": 4, "replicas": replicas}]}
    made = gpu_layout(Plan(version=1, instance="x", gpus=[gpu]).gpus[0], "-", Commands())
    return [replica.environment for replica in made.slices[0].replicas]


def test_commands_are_words_with_fields_and_no_shell_reads_them():
    replica = plan([("3g.40gb", 4, {"a b": 1})]).gpus[0].slices[0].replicas[0]
    command = Commands("serve {model} --batch {batch} '{workload};ls'", {"a b": "bert"}).command(replica, "3g.40gb")
    assert command == "serve bert --batch 4 'a b;ls'"
    for template, words in (
        ("serve {model}", "add --instance"),
        ("serve {modell}", "unknown field 'modell'"),
        ("serve {", "cannot be read"),
        (" ", "is empty"),
        ("serve '", "cannot be read"),
    ):
        with pytest.raises(InputError, match=words):
            Commands(template).command(replica, "3g.40gb")
