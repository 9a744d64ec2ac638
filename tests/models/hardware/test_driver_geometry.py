"""The stand-in's placement rules, enumerated through pynvml, against NVIDIA's counts and the package's geometry."""

import pynvml
import pytest
from driver import Node
from driver.layouts import create, placements

from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import gpu_type


def reachable(device, profile_ids):
    """Every set of instances {(start, profile id)} that can be created, and those to which nothing can be added."""
    options = [(profile, *placement) for profile in profile_ids for placement in placements(device, profile)]
    found, maximal = set(), set()

    def visit(state):
        found.add(state)
        grown = False
        for profile, start, size in options:
            try:
                instance = create(device, profile, start, size)
            except pynvml.NVMLError_InsufficientResources:
                continue
            grown = True
            larger = state | {(start, profile)}
            if larger not in found:
                visit(larger)
            pynvml.nvmlGpuInstanceDestroy(instance)
        if not grown:
            maximal.add(state)

    visit(frozenset())
    return found, maximal


def enumerate_on(folder, name, variants):
    """What can be created on a GPU of a type from profiles of some variants, and the package's geometry of them."""
    profiles = [profile for profile in gpu_type(name).profiles.values() if profile.variant in variants]
    with Node(folder, [name], mig=True).loaded():
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        states = reachable(device, [profile.profile_id for profile in profiles])
        pynvml.nvmlShutdown()
    return states, geometry(gpu_type(name), [profile.name for profile in profiles])


@pytest.mark.parametrize(("name", "variants", "states", "maximal"), [
    ("a100-80gb", ("plain", "double-memory"), 723, 78),
    ("a30", ("plain",), 26, 5),
    ("a30", ("plain", "media"), 76, 17),
])
def test_what_can_be_created_is_what_nvidia_and_the_geometry_say(tmp_path, name, variants, states, maximal):
    """The driver's own table and rule lead to the same sets of instances as the package's files and derivation."""
    (found, full), derived = enumerate_on(tmp_path / "node", name, variants)
    assert (len(found), len(full)) == (states, maximal)

    def named(state):
        return frozenset((start, derived.profiles[kind].profile_id) for start, kind in state)

    assert found == {named(state) for state in derived.states}
    assert full == {named(state) for state in derived.maximal_states}
    if name == "a100-80gb":
        double = gpu_type(name).profiles["1g.20gb"].profile_id
        plain = {state for state in found if all(profile != double for _, profile in state)}
        assert len(plain) == 298 and sum(not any(state < other for other in plain) for state in plain) == 19


@pytest.mark.parametrize("name", ["a100-40gb", "a100-80gb", "a30", "h100-80gb"])
def test_profiles_are_those_of_the_package(tmp_path, name):
    """Every profile of the package's GPU files is offered under its enumerator with the same numbers."""
    with Node(tmp_path / "node", [name], mig=True).loaded():
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        for profile in gpu_type(name).profiles.values():
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, profile.nvml_profile)
            assert (info.id, info.sliceCount, info.instanceCount) == (profile.profile_id, profile.compute, profile.max)
            assert info.multiprocessorCount == profile.sms
            assert info.memorySizeMB / 1024 == pytest.approx(profile.memory_gib, abs=0.006)
            assert placements(device, info.id) == [(start, profile.memory) for start in profile.starts]
        pynvml.nvmlShutdown()
