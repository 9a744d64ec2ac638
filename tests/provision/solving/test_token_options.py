"""Language models with further options of the policy and the objective: survival of a lost GPU, the most throughput."""

import pytest
from token_instances import chat, instance

import provision
from provision.models.problem.objective import objective_of
from provision.models.problem.policy import Survive
from provision.simulation.simulate import simulate

LONG = {"input": {"min": 400.0, "max": 900.0}, "output": {"min": 50.0, "max": 160.0}}


@pytest.fixture(scope="module")
def surviving():
    asked = instance([chat(rate_rps=150.0)]).with_policy(survive=Survive(gpu_failures=1))
    return asked, provision.solve(asked, replay=False)


def test_a_plan_survives_any_loss_in_the_replay(surviving):
    """Proven with one GPU more than the rate needs, and nobody is late on the GPUs that are left."""
    asked, result = surviving
    assert result.status == "optimal" and len(result.plan.gpus) == 3
    for lost in range(3):
        report = simulate(asked, result.plan, seconds=60, fail={"gpu": lost, "at_s": 20})
        [served] = report.workloads
        assert 0 < served.dropped < 100 and served.arrived == served.served + served.dropped + served.in_flight
        assert not report.late


def test_one_gpu_less_survives_nothing(surviving):
    asked, _ = surviving
    fewer = provision.solve(instance([chat(rate_rps=150.0)]), replay=False).plan
    report = provision.verify(asked, fewer)
    assert len(fewer.gpus) == 2 and not report.ok
    assert all("after its loss" in one.message for one in report.violations)
    alone = fewer.model_copy(update={"gpus": fewer.gpus[:1]})
    assert any("the others carry 0" in one.message for one in provision.verify(asked, alone).violations)


def test_the_most_throughput_gives_each_workload_its_rate_and_the_rest_to_the_quickest():
    """On counted GPUs, alike, every split is tried: the value is that of the best which carries both rates."""
    asked = instance([chat(rate_rps=50.0), chat("long", 20.0, tokens=LONG)],
                     [{"gpu": "h100-80gb", "mig": False, "count": 4}], objective="max_throughput")
    result = provision.solve(asked, "master", replay=False)
    single = {
        name: objective_of(asked).value(result.plan.model_copy(update={"gpus": (gpu,)}))
        for gpu in result.plan.gpus
        for name in {one.workload for one in gpu.slices[0].replicas}
    }
    splits = [(many, 4 - many) for many in range(5)
              if many * single["chat"] >= 50.0 and (4 - many) * single["long"] >= 20.0]
    best = max(chats * single["chat"] + longs * single["long"] for chats, longs in splits)
    assert result.status == "optimal" and result.objective == pytest.approx(best)
    assert provision.verify(asked, result.plan).ok
