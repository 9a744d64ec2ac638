"""MIG geometry against NVIDIA's published counts, and against brute force."""

import itertools

import pytest

from provision.models.geometry import contains, geometry
from provision.models.gpu import gpu_type, gpu_types

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


@pytest.mark.parametrize("name", list(gpu_types()))
def test_gpu_files_are_consistent(name):
    """Profiles grow in SMs and memory with their compute size, and none exceeds the GPU."""
    gpu = gpu_type(name)
    plain = sorted((p for p in gpu.profiles.values() if p.variant == "plain"), key=lambda p: p.compute)
    assert [p.sms for p in plain] == sorted(p.sms for p in plain)
    assert all(p.sms <= gpu.sms and p.memory_gib <= gpu.memory_gib for p in gpu.profiles.values())
    assert len({p.profile_id for p in gpu.profiles.values()}) == len(gpu.profiles)
    assert all(gpu.slice_mps_clients(p.name) >= 1 for p in plain)
