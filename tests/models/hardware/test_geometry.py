"""MIG geometry against NVIDIA's published counts, and against brute force."""

import itertools

import pytest

import provision
from provision.applier.target import check_plan
from provision.models.hardware.geometry import contains, geometry
from provision.models.hardware.gpu import gpu_type, gpu_types
from provision.models.plans.plan import Plan, PlannedGpu, Slice

GEOMETRY = {"profile", "start", "overlap", "capacity"}
"""Kinds of violations of what a GPU can hold."""

EIGHTHS = ["a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb"]


@pytest.mark.parametrize("name", EIGHTHS)
def test_counts_of_the_user_guide(name):
    """Five plain profiles: 298 states, 19 maximal placements, 14 multisets, 12 of them undominated."""
    derived = geometry(gpu_type(name))
    assert len(derived.states) == 298
    assert len(derived.maximal_states) == 19
    assert len(derived.maximal_partitions) == 14
    assert len(derived.undominated_partitions) == 12


@pytest.mark.parametrize("name", EIGHTHS)
def test_counts_with_double_memory(name):
    """With the double-memory 1g: 723 states, 78 maximal placements, 38 multisets."""
    gpu = gpu_type(name)
    names = [profile.name for profile in gpu.profiles.values() if profile.variant != "media"]
    derived = geometry(gpu, names)
    assert (len(derived.states), len(derived.maximal_states), len(derived.maximal_partitions)) == (723, 78, 38)


def test_a30_maximal_partitions():
    """An A30 takes 4, 2+2, 2+1+1 (two mirror placements) or four 1g."""
    derived = geometry(gpu_type("a30"))
    assert set(derived.maximal_partitions) == {(4, 0, 0), (2, 1, 0), (0, 2, 0), (0, 0, 1)}
    assert len(derived.maximal_states) == 5


def test_single_3g_stands_where_it_blocks_least():
    """A lone 3g goes to memory slice 4: at 0 it would make the fourth compute slice useless."""
    gpu = gpu_type("a100-80gb")
    assert geometry(gpu).place((0, 0, 1, 0, 0)) == ((4, 2),)


def test_no_place_for_what_does_not_fit():
    """Two 4g have one start between them; eight 1g have seven."""
    derived = geometry(gpu_type("a100-80gb"))
    assert derived.place((0, 0, 0, 2, 0)) is None
    assert derived.place((8, 0, 0, 0, 0)) is None
    assert derived.place((1, 0, 2, 0, 0)) is None


@pytest.mark.parametrize("name", [name for name, gpu in gpu_types().items() if gpu.mig])
def test_every_state_is_free_of_overlap_and_every_multiset_is_found(name):
    """The states are exactly the non-overlapping sets of allowed placements, found here by subsets per slot."""
    gpu = gpu_type(name)
    derived = geometry(gpu)
    found = {()}
    for start in range(gpu.mig.memory_slices):
        here = [(start, kind) for kind, profile in enumerate(derived.profiles) if start in profile.starts]
        found |= {(*state, one) for state in found for one in here if _free(derived, state, one)}
    assert found == derived.states
    assert all(
        any(contains(partition, derived.counts(state)) for partition in derived.undominated_partitions)
        for state in found
    )


def _free(derived, state, one):
    spans = [range(start, start + derived.profiles[kind].memory) for start, kind in (*state, one)]
    alike = all(
        sum(kind == other for _, other in (*state, one)) <= profile.max for kind, profile in enumerate(derived.profiles)
    )
    return alike and all(set(a).isdisjoint(b) for a, b in itertools.combinations(spans, 2))


def test_verifier_applier_and_geometry_agree():
    """All sets of up to four instances on an A30, two profiles of which take the one set of media engines."""
    gpu, instance = gpu_type("a30"), provision.read("parvagpu-s1")
    derived = geometry(gpu, list(gpu.profiles))
    places = [(start, kind) for kind, profile in enumerate(derived.profiles) for start in profile.starts]
    for size in range(1, 5):
        for state in itertools.combinations(places, size):
            plan = _cut((derived.profiles[kind].name, start) for start, kind in state)
            broken = GEOMETRY & {violation.kind for violation in provision.verify(instance, plan).violations}
            fits = tuple(sorted(state)) in derived.states
            assert fits == (not broken) == _taken(plan), state


def _cut(slices):
    """A plan of one A30 with these slices, (profile, start)."""
    made = tuple(Slice(profile=profile, start=start) for profile, start in slices)
    return Plan(version=1, instance="cut", gpus=(PlannedGpu(gpu="a30", mig=True, slices=made),))


def _taken(plan):
    """Whether the applier takes a plan."""
    try:
        check_plan(plan)
    except provision.InputError:
        return False
    return True


def test_two_media_profiles_are_one_too_many():
    """The verifier says which; the rule binds the A30 alone, other types have one media profile."""
    plan = _cut([("1g.6gb+me", 0), ("2g.12gb+me", 2)])
    found = [one for one in provision.verify(provision.read("parvagpu-s1"), plan).violations if one.kind == "capacity"]
    assert [one.message for one in found] == [
        "GPU 0: 2 sets of media engines (1g.6gb+me and 2g.12gb+me), the GPU has 1"
    ]
    several = {name for name, gpu in gpu_types().items() if len(gpu.with_media(gpu.profiles)) > 1}
    assert several == {"a30"}
    assert all(gpu.profiles[name].max == 1 for gpu in gpu_types().values() for name in gpu.with_media(gpu.profiles))


@pytest.mark.parametrize("name", list(gpu_types()))
def test_gpu_files_are_consistent(name):
    """Profiles grow in SMs and memory with their compute size, and none exceeds the GPU."""
    gpu = gpu_type(name)
    plain = sorted((p for p in gpu.profiles.values() if p.variant == "plain"), key=lambda p: p.compute)
    assert [p.sms for p in plain] == sorted(p.sms for p in plain)
    assert all(p.sms <= gpu.sms and p.memory_gib <= gpu.memory_gib for p in gpu.profiles.values())
    assert len({p.profile_id for p in gpu.profiles.values()}) == len(gpu.profiles)
    assert all(gpu.slice_mps_clients(p.name) >= 1 for p in plain)
