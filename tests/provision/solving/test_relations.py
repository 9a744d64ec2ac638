"""A sample of the relations between instances: no answer contradicts that on a related instance."""

import pytest
from option_grid import KINDS
from relations import Answer, answer, checked, contradictions, drawn, relations

import provision
from provision.models.problem.instance import Instance


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_related_instances_agree(seed):
    """One of each data kind; the benchmark has 400."""
    lines, _ = checked(next(one for one in range(seed, 10_000, len(KINDS)) if drawn(one) is not None), 0.5, 1)
    assert not lines


def test_relations_know_a_contradiction():
    """A bound that is too high, an infeasible instance with a plan, and a plan that does not carry over."""
    table = next(one for at in range(0, 700, len(KINDS)) if (one := drawn(at)) is not None and not one.workflows)
    renamed = next(relations(table))
    here = answer(table, 0.5)
    assert here.plan is not None
    there = answer(renamed.other, 0.5)
    assert not list(contradictions(table, renamed, here, there))
    too_high = there._replace(bound=2 * here.value + 1)
    assert "bound" in next(contradictions(table, renamed, here, too_high))
    assert "infeasible" in next(contradictions(table, renamed, here, Answer(None, None, None, True)))
    empty = here.plan.model_copy(update={"gpus": ()})
    assert "does not hold" in next(contradictions(table, renamed, here._replace(plan=empty), there))


def test_all_relations_are_drawn_of_some_instance():
    content = {"version": 2, "name": "all", "fleet": [{"gpu": "t4", "price_per_hour": 1.0, "count": 9}], "policy": {
        "headroom": 0.1, "safety": 0.9, "survive": {"gpu_failures": 1}, "even_replicas": False}, "performance": [
        {"version": 1, "name": "m", "kind": "measured-segments", "gpu": "t4", "models": {
            "m": {"points": [["whole", 4, 1, 400.0, 10.0]]}}}], "workloads": [
        {"name": "w", "model": "m", "slo_ms": 90, "rate_rps": 90, "max_replicas": 8, "min_replicas": 2,
         "max_share_per_gpu": 0.5}]}
    names = {one.name for one in relations(Instance.model_validate(content))}
    assert len(names) >= 13
    assert provision.solve(Instance.model_validate(content), time_limit_s=1).verified
