"""Nodes of several GPUs: their groups, plans on them against brute force, and what other tools are told."""

import pytest
import yaml
from token_instances import chat, instance, performance

import provision
from provision.exporters.common import render
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import gpu_type, gpus_in, group_of
from provision.models.hardware.prices import list_price
from provision.models.plans.plan import Plan
from provision.models.problem.objective import objective_of

NODE = "8xh100-80gb"


def test_a_node_is_split_into_aligned_groups():
    node, gpu = gpu_type(NODE), gpu_type("h100-80gb")
    assert node.gpus == 8 and node.memory_gib == 8 * gpu.memory_gib
    assert node.profiles["4gpu"].starts == (0, 4) and node.profiles["4gpu"].memory_gib == 4 * gpu.memory_gib
    shapes = geometry(node, ("1gpu", "2gpu", "4gpu", "8gpu")).maximal_partitions
    # (8), (4 + 4), (4 + a split of the other 4) and so on: every way to write 8 as ordered powers of two that align
    assert set(shapes) == {(a, b, c, d) for d in (0, 1) for c in range(3) for b in range(5) for a in range(9)
                           if a + 2 * b + 4 * c + 8 * d == 8}


def test_names():
    assert [group_of(one) for one in ("whole", "2gpu", "1g.10gb")] == [1, 2, None]
    assert gpus_in([NODE, "t4", "2xa30", "b9000"]) == 12
    for name in ("3xh100-80gb", "8xh10", "xh100-80gb"):
        with pytest.raises(provision.InputError, match="unknown GPU type"):
            gpu_type(name)


@pytest.fixture(scope="module")
def served():
    """A model on groups of two and of four GPUs, and its plan."""
    data = performance(NODE, **{"2gpu": (400_000, 1.0), "4gpu": (900_000, 0.6)})
    asked = instance([chat(rate_rps=150.0)], [{"gpu": NODE, "price": "aws"}], [data])
    return asked, provision.solve(asked, replay=False)


def test_the_plan_is_proven_and_priced(served):
    asked, result = served
    rented = asked.fleet[0].price_per_hour
    assert rented == 8 * list_price("h100-80gb", "aws").per_hour
    assert result.status == "optimal" and result.report.ok and result.report.gpus == 8 * len(result.plan.gpus)
    assert result.objective == pytest.approx(rented * len(result.plan.gpus))


def test_without_prices_a_node_counts_its_gpus(served):
    asked, result = served
    assert objective_of(asked.replace(objective="min_gpus")).value(result.plan) == result.report.gpus


def test_groups_that_do_not_fit_are_refused(served):
    asked, result = served
    piece = result.plan.gpus[0].slices[0]
    doubled = result.plan.gpus[0].model_copy(update={"slices": (piece, piece)})
    moved = result.plan.gpus[0].model_copy(update={"slices": (piece.model_copy(update={"start": 1}),)})
    for gpu, kind in ((doubled, "overlap"), (moved, "start")):
        report = provision.verify(asked, Plan(version=1, instance=asked.name, gpus=(gpu,)))
        assert kind in {one.kind for one in report.violations}


def test_kubernetes_is_asked_for_whole_groups(served):
    asked, result = served
    files = render(result.plan, "kubernetes", asked, 8)
    counts = [claim["spec"]["spec"]["devices"]["requests"][0]["exactly"].get("count", 1)
              for claim in yaml.safe_load_all(files["claims.yaml"])]
    held = {group_of(piece.profile) for gpu in result.plan.gpus for piece in gpu.slices}
    assert set(counts) == held and "mig-config.yaml" not in files
    assert f"value: \"{max(held)}\"" in files["deployments.yaml"]
    with pytest.raises(provision.InputError, match="groups of GPUs"):
        render(result.plan, "shell", asked, 8)
