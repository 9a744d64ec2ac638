"""Merged workloads are a relaxation: every plan of an instance is one of its merged instance, within all bounds."""

import pytest
from combined import random_combination

import provision
from provision.formulations.master.relaxations import merged, merged_bounds
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Search
from provision.verification.verify import verify

COPIES = 6


def _many(case: int | str) -> Instance:
    """A drawn or shipped instance with several workloads for each of its own, whose SLOs and rates differ."""
    base = random_combination(case, every=True) if isinstance(case, int) else provision.read(case)
    workloads = [one.model_copy(update={
        "name": f"{one.name}-{copy}", "slo_ms": one.slo_ms * (1 + copy / 20), "rate_rps": one.rate_rps * (1 - copy / 9),
        "max_replicas": one.max_replicas and one.max_replicas + copy})
        for one in base.workloads for copy in range(COPIES)]
    count = 3 * COPIES if base.objective == THROUGHPUT else None
    return base.replace(workloads=workloads, fleet=[one.model_copy(update={"count": count}) for one in base.fleet])


def _merged_into(many: Instance, most: int) -> tuple[Instance, dict[str, str]]:
    """The merged instance, and for each workload the name of the one into which it was merged."""
    few, names = merged(many, most), dict[str, str]()
    for one in many.workloads:
        able = [other for other in few.workloads if other.models == one.models and other.slo_ms >= one.slo_ms]
        names[one.name] = min(able, key=lambda other: other.slo_ms).name if able else one.name
    return few, names


@pytest.mark.parametrize("case", [*range(40), "gpulets-equal"])
def test_plans_are_plans_of_merged_workloads(case: int | str) -> None:
    """A plan with its workloads merged is valid, and no bound is above its value."""
    many = _many(case)
    found = provision.solve(many, "greedy", time_limit_s=3, replay=False)
    if found.plan is None or not found.verified:
        pytest.skip("greedy has no plan")
    assert found.objective is not None
    for most in (1, 2, 4):
        few, names = _merged_into(many, most)
        served = {one.name for one in few.workloads}
        gpus = []
        for gpu in found.plan.gpus:
            slices = [one.model_copy(update={"replicas": tuple(
                replica.model_copy(update={"workload": names[replica.workload]}) for replica in one.replicas
                if names[replica.workload] in served)}) for one in gpu.slices]
            gpus.append(gpu.model_copy(update={"slices": tuple(slices)}))
        verdict = verify(few, few.plan_of("test", gpus))
        assert verdict.ok, verdict.violations
    if len(many.workloads) > 10:
        for bound in merged_bounds(many, Search(time_limit_s=2)):
            better = found.objective - bound if many.objective == THROUGHPUT else bound - found.objective
            assert better <= 1e-9 * found.objective, (case, bound, found.objective)


def test_rates_add_up() -> None:
    """A merged workload has the rates of all, the longest SLO and no limits."""
    many = _many(1)
    few = merged(many, 1)
    assert sum(one.rate_rps for one in few.workloads) == pytest.approx(sum(one.rate_rps for one in many.workloads))
    assert all(one.max_replicas is None and one.min_replicas == 1 for one in few.workloads)
    assert {one.slo_ms for one in few.workloads} <= {one.slo_ms for one in many.workloads}


def test_replica_limits_make_no_further_workloads() -> None:
    """Merged workloads have no limits on replicas, so limits of the instance tell no classes apart."""
    many = _many(1)
    limited = many.replace(workloads=[
        one.model_copy(update={"min_replicas": 1, "max_replicas": 1 if at % 2 else None})
        for at, one in enumerate(many.workloads)])
    free = many.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in many.workloads])
    for most in (1, 2, 4):
        assert merged(limited, most).workloads == merged(free, most).workloads
