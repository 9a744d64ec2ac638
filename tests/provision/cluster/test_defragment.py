"""``provision defragment``, held against an enumeration of all ways to place the slices."""

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision import InputError, Replica
from provision.cli import main
from provision.cluster.defragment import defragment
from provision.cluster.kubernetes import budgets_of
from provision.cluster.state import Budget, State, StateGpu, StateSlice
from provision.models.hardware.gpu import gpu_type

KIND = gpu_type("a30")
SHAPES = {name: (KIND.profiles[name].memory, KIND.profiles[name].starts) for name in ("1g.6gb", "2g.12gb", "4g.24gb")}


def cluster(layouts, stays=()):
    """A state of A30s with these slices (profile, start) on each, one pod on every slice."""
    instance = provision.Instance.model_validate({
        "version": 2, "name": "c", "fleet": [{"gpu": "a100-80gb"}, {"gpu": "a30"}], "performance": "parvagpu-a100",
        "workloads": [{"name": "w", "model": "bert", "slo_ms": 500, "rate_rps": 1}]})
    gpus = [StateGpu(node=f"n{at // 2}", number=at % 2, gpu="a30", mig=True, slices=tuple(
        StateSlice(profile=profile, start=start, pods=(f"shop/p{at}-{start}",), stays="it stays" if (at, start) in stays
                   else "", replicas=(Replica(workload="w", batch=1, rate_rps=0.1),)) for profile, start in layout))
        for at, layout in enumerate(layouts)]
    return State(name="c", sources=("test",), gpus=tuple(gpus), instance=instance)


def stand(spots):
    """Whether slices (profile, GPU, start) keep apart."""
    taken = [(gpu, slot) for profile, gpu, start in spots for slot in range(start, start + SHAPES[profile][0])]
    return len(taken) == len(set(taken))


def least(layouts, free):
    """The fewest slices that must move so that so many GPUs are empty, by enumeration; None if none do."""
    slices = [(profile, at, start) for at, layout in enumerate(layouts) for profile, start in layout]
    choices = [[(profile, gpu, start) for gpu in range(len(layouts)) for start in SHAPES[profile][1]]
               for profile, *_ in slices]
    able = [sum(new != old for new, old in zip(spots, slices, strict=True)) for spots in product(*choices)
            if len({gpu for _, gpu, _ in spots}) <= len(layouts) - free and stand(spots)]
    return min(able, default=None)


LAYOUTS = [[], [("1g.6gb", 0)], [("1g.6gb", 3)], [("2g.12gb", 0)], [("2g.12gb", 2)], [("1g.6gb", 0), ("1g.6gb", 2)]]


@settings(max_examples=12)
@given(st.lists(st.sampled_from(LAYOUTS), min_size=2, max_size=3), st.integers(1, 2))
def test_the_moves_are_the_fewest_and_none_means_none(layouts, free):
    found = defragment(cluster(layouts), free=free)
    fewest = least(layouts, free)
    if fewest is None:
        assert found.status == "impossible" and not found.moves
        return
    assert found.status == "optimal" and len(found.moves) == fewest and found.weight == 2 * fewest
    assert len(found.freed) >= free
    if found.order.found:
        assert all(one.carried == 1 for one in found.order.steps)


def test_of_slices_that_are_alike_those_move_that_cost_least():
    """The slice with three pods stays, whichever GPU it is on."""
    layouts = [[("1g.6gb", 0)], [("1g.6gb", 0)], [("2g.12gb", 0), ("1g.6gb", 2), ("1g.6gb", 3)]]
    for heavy in (0, 1):
        state = cluster(layouts)
        [piece] = state.gpus[heavy].slices
        gpu = state.gpus[heavy].model_copy(update={"slices": (piece.model_copy(update={"pods": ("a", "b", "c")}),)})
        gpus = tuple(gpu if at == heavy else one for at, one in enumerate(state.gpus))
        found = defragment(state.model_copy(update={"gpus": gpus}), free=1)
        assert (found.weight, found.bound, found.freed) == (2, 2, (f"n0/{1 - heavy}",))


def test_a_machine_of_a_large_cluster_is_freed_with_proof():
    """Sixty machines, each half full: the program of one variable per slice and place had not ended after minutes."""
    found = defragment(cluster([[("2g.12gb", 0), ("1g.6gb", 3)], [("1g.6gb", 1)]] * 60), free_node="n7")
    assert found.status == "optimal" and found.weight == found.bound == 6 and {"n7/0", "n7/1"} <= set(found.freed)
    assert found.order.found and all(one.carried == 1 for one in found.order.steps)


def test_room_for_a_profile_is_made_or_proven_not_to_be():
    scattered = cluster([[("1g.6gb", 0)], [("1g.6gb", 3)]])
    found = defragment(scattered, admit="4g.24gb")
    assert found.status == "optimal" and len(found.moves) == 1 and found.room in ("n0/0 at 0", "n0/1 at 0")
    assert [one.action for one in found.order.steps] == ["start", "stop"]
    full = cluster([[("2g.12gb", 0), ("1g.6gb", 2)], [("2g.12gb", 0), ("1g.6gb", 2)]])
    assert defragment(full, admit="4g.24gb").status == "impossible"
    assert defragment(full, admit="a30:1g.6gb").moves == ()


def test_what_stays_budgets_and_limits_are_kept():
    layouts = [[("1g.6gb", 0)], [("1g.6gb", 0)], [("1g.6gb", 0)]]
    assert len(defragment(cluster(layouts), free=2).moves) == 2
    assert defragment(cluster(layouts, {(0, 0), (1, 0)}), free=2).status == "impossible"
    assert defragment(cluster(layouts), free=2, max_moves=1).status == "impossible"
    assert defragment(cluster(layouts), free=2, at_once={"w": 1}).status == "impossible"
    assert defragment(cluster(layouts), free=1, keep=["shop"]).status == "impossible"
    assert {one.before for one in defragment(cluster(layouts), free_node="n1").moves} == {"n1/0 at 0"}
    with pytest.raises(InputError, match="max_moves -1: should be 0 or more"):
        defragment(cluster(layouts), free=1, max_moves=-1)


def test_disruption_budgets_of_the_state_are_kept():
    scattered = cluster([[("1g.6gb", 0)], [("1g.6gb", 0)]])
    held = [Budget(name=f"shop/{one}", allowed=allowed, pods=(f"shop/p{one}-0",)) for one, allowed in ((0, 0), (1, 1))]
    found = defragment(scattered.model_copy(update={"budgets": tuple(held)}), free=1)
    assert [one.before for one in found.moves] == ["n0/1 at 0"]
    assert found.stays == {"n0/0, 1g.6gb": "disruption budget shop/0 allows 0 evictions"}
    none = [one.model_copy(update={"allowed": 0}) for one in held]
    assert defragment(scattered.model_copy(update={"budgets": tuple(none)}), free=1).status == "impossible"


@pytest.mark.parametrize(("selector", "fits"), [
    (None, False), ({}, True), ({"matchLabels": {"app": "a"}}, True), ({"matchLabels": {"app": "b"}}, False),
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}, True),
    ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, False),
    ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
    ({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, True)])
def test_selectors_of_budgets(selector, fits):
    objects = [{"metadata": {"namespace": "shop", "name": "b"}, "spec": {"selector": selector}}]
    pods = [{"metadata": {"namespace": one, "name": "p", "labels": {"app": "a"}}} for one in ("shop", "other")]
    assert [one.pods for one in budgets_of(objects, pods)] == [("shop/p",) if fits else ()]


def test_the_command_and_its_refusals(tmp_path, capsys):
    provision.write(cluster([[("1g.6gb", 0)], [("1g.6gb", 3)]]), tmp_path / "s.json")
    line = ["defragment", str(tmp_path / "s.json")]
    assert main([*line, "--free", "1", "--keep", "shp"]) == 2
    assert "--keep shp: no GPU has a pod of this namespace; there are shop" in capsys.readouterr().err
    assert main([*line, "--free", "1"]) == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("1 move, 2 restarts", "proven fewest", "stop and remove w on n0/",
                                          "Then empty: n0/"))
    assert main([*line, "--admit", "4g.24gb", "--keep", "shop", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "impossible"
    for given_, says in ((["--free", "9"], "from 1 to 2"), (["--free-node", "x"], "use one of n0"),
                         (["--admit", "9g"], "has no profile"), (["--admit", "t4:whole"], "no GPU is of type t4"),
                         (["--free", "1", "--budget", "w"], "write it as WORKLOAD=N"), ([], "give one of")):
        assert main([*line, *given_]) == 2
        assert says in capsys.readouterr().err
    with pytest.raises(InputError, match="give one of"):
        defragment(cluster([[]]), free=1, admit="1g.6gb")
