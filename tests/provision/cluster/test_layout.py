"""``provision layout``, held against an enumeration that knows only the table of placements."""

import json
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision import InputError, layout
from provision.cli import main
from provision.models.hardware.gpu import gpu_type

A100 = gpu_type("a100-80gb")


def _stands(gpu, instances):
    """Whether instances (profile, start) can exist together, by NVIDIA's rules."""
    slots = [slot for name, start in instances for slot in range(start, start + gpu.profiles[name].memory)]
    names = [name for name, _ in instances]
    return (len(slots) == len(set(slots)) and sum(gpu.profiles[name].compute for name in names) <= gpu.compute_slices
            and all(names.count(name) <= gpu.profiles[name].max for name in names)
            and sum(gpu.profiles[name].variant == "media" for name in names) <= 1)


def _first_fit(gpu, on, order):
    """The instances after each profile has taken its lowest free start; None if one finds none."""
    placed = list(on)
    for name in order:
        start = next((one for one in gpu.profiles[name].starts if _stands(gpu, [*placed, (name, one)])), None)
        if start is None:
            return None
        placed.append((name, start))
    return placed


@settings(max_examples=60)
@given(st.sampled_from(["a100-80gb", "a30", "h100-80gb"]), st.data())
def test_every_answer_is_that_of_the_enumeration(name, data):
    gpu = gpu_type(name)
    profiles = data.draw(st.lists(st.sampled_from(sorted(gpu.profiles)), min_size=1, max_size=4))
    first = data.draw(st.sampled_from([None, *((one, start) for one in gpu.profiles
                                               for start in gpu.profiles[one].starts)]))
    on = [first] if first else []
    answer = layout(name, profiles, [f"{one}@{start}" for one, start in on])
    choices = product(*(gpu.profiles[one].starts for one in profiles))
    legal = [pairs for starts in choices if _stands(gpu, on + (pairs := list(zip(profiles, starts, strict=True))))]
    assert answer.legal == bool(legal)
    assert bool(answer.reason) != answer.legal
    if not legal:
        return
    assert {one: set(starts) for one, starts in answer.starts.items()} == {
        one: {start for pairs in legal for other, start in pairs if other == one} for one in set(profiles)}
    assert sorted(one for one, _ in answer.instances) == sorted(profiles)
    assert _stands(gpu, [*on, *answer.instances])
    for one in gpu.profiles:
        free = [start for start in gpu.profiles[one].starts if _stands(gpu, [*on, *answer.instances, (one, start)])]
        assert list(answer.further.get(one, ())) == free
    assert answer.as_given == (_first_fit(gpu, on, profiles) is not None)
    if answer.order:
        assert sorted(answer.order) == sorted(profiles)
        assert sorted(_first_fit(gpu, on, answer.order)) == sorted([*on, *answer.instances])
    else:
        assert not any(_first_fit(gpu, on, order) for order in permutations(profiles))


def test_a_layout_that_first_fit_misses(capsys):
    """The order of k8s-test-infra issue 886: 3g takes start 0, and 4g has no other."""
    assert main(["layout", "a100-80gb", "3g.40gb", "4g.40gb"]) == 0
    assert "create them as 4g.40gb, 3g.40gb" in capsys.readouterr().out
    assert main(["layout", "a100-80gb", "3g.40gb", "--on", "4g.40gb@0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instances"] == [["3g.40gb", 4]]


def test_a_layout_that_no_order_reaches_says_why(capsys):
    assert main(["layout", "a100-80gb", *["1g.20gb"] * 4, *["1g.10gb"] * 3]) == 1
    assert "11 memory slices, and the GPU has 8" in capsys.readouterr().out


@pytest.mark.parametrize(("gpu", "profiles", "on", "says"), [
    ("a100-80g", ["3g.40gb"], [], "did you mean .a100-80gb"),
    ("v100", ["3g.40gb"], [], "has no MIG"),
    ("a100-80gb", ["3g.20gb"], [], "use one of"),
    ("a100-80gb", ["whole"], [], "no profile"),
    ("a100-80gb", ["3g.40gb"], ["4g.40gb"], "write PROFILE@START"),
    ("a100-80gb", ["3g.40gb"], ["4g.40gb@4"], "starts at 0"),
    ("a100-80gb", ["3g.40gb"], ["4g.40gb@0", "2g.20gb@2"], "cannot exist together"),
])
def test_bad_input_is_refused_in_a_line(gpu, profiles, on, says):
    with pytest.raises(InputError, match=says) as error:
        layout(gpu, profiles, on)
    assert len(error.value.lines) == 1
