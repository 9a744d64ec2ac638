"""The way back after the loss of a GPU: against brute force, and where the search is not exact."""

import json

import pytest
import replan_oracle
from replan_oracle import tiny

import provision
from provision.cli import main
from provision.commands.verb import Given, asked, request
from provision.models.problem.objective import objective_of
from provision.models.problem.policy import Survive
from provision.replanning.replan import CHANGE_COST, after_loss, replan_lost


def counted(instance, count):
    """The instance with so many GPUs of each entry."""
    return instance.replace(fleet=tuple(one.model_copy(update={"count": count}) for one in instance.fleet))


@pytest.mark.parametrize("rates", [(105.0, 60.0), (90.0, 95.0), (300.0, 20.0)])
def test_the_way_back_is_the_shortest(rates):
    """Cost and changes together are the least there are, from what the loss leaves running."""
    plan = provision.solve(tiny(rates)).plan
    for lost in range(len(plan.gpus)):
        found = replan_lost(tiny(rates), plan, lost, 0.2)
        left = after_loss(tiny(rates), plan, lost)[1]
        assert found.status == "optimal" and found.report.ok
        assert found.weighted == pytest.approx(replan_oracle.cheapest(tiny(rates), left, 0.2), abs=1e-4)


def test_a_counted_fleet_has_one_gpu_less():
    instance = provision.read("parvagpu-s2")
    plan = provision.solve(instance).plan
    enough, short = (counted(instance, len(plan.gpus) + more) for more in (1, 0))
    assert after_loss(enough, plan, 0)[0].fleet[0].count == len(plan.gpus)
    assert len(replan_lost(enough, plan, 0).plan.gpus) == len(plan.gpus)
    assert replan_lost(short, plan, 0).plan is None


def test_a_spare_gpu_takes_over_where_the_search_is_not_exact():
    """What shares GPUs, or must survive losses: at worst the GPU is replaced and all else goes on."""
    shared, alone = provision.read("igniter-testbed-12"), provision.read("parvagpu-s1")
    surviving = alone.with_policy(survive=Survive(gpu_failures=1))
    for instance, method in ((shared, "igniter"), (surviving, "auto")):
        plan = provision.solve(instance, method, replay=False).plan
        found = replan_lost(instance, plan, 1, time_limit_s=4)
        lost = sum(1 for at, _, _, _ in plan.replicas() if at == 1)
        replaced = objective_of(instance).value(plan) + lost * CHANGE_COST * objective_of(instance).weight(
            instance.fleet[0]
        )
        assert found.report.ok and found.bound <= found.weighted <= replaced * (1 + 1e-9)


@pytest.mark.parametrize("lost", [-1, 2])
def test_a_gpu_that_is_none_is_refused(lost):
    instance = provision.read("parvagpu-s1")
    plan = provision.solve(instance, "greedy").plan
    plan = plan.model_copy(update={"gpus": plan.gpus[:2]})
    with pytest.raises(provision.InputError, match=f"lost {lost}: is not in the plan, which has GPUs 0 to 1"):
        replan_lost(instance, plan, lost)


def test_the_command(tmp_path, capsys):
    """It writes a plan that holds, and tells what changes; the trade-off starts from what is left, too."""
    plan = provision.solve(provision.read("parvagpu-s1"), "greedy").plan
    provision.write(plan, tmp_path / "plan.json")
    asked = ["replan", "parvagpu-s1", str(tmp_path / "plan.json"), "--lost", "0", "--json"]
    assert main([*asked, "--out", str(tmp_path / "next.json")]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["replicas_started"] > 0 and row["gpus"] == len(provision.read_plan(tmp_path / "next.json").gpus)
    assert main([*asked, "--curve"]) == 0
    assert json.loads(capsys.readouterr().out)["curve"]
    assert main([*asked[:-2], "9"]) == 2


def test_the_loss_is_told_with_one_cost(tmp_path, capsys):
    """Where an owned GPU is lost, the one rented in its place costs more: both sentences on cost say so, and replicas
    start on it.
    """
    instance = tiny((105.0, 60.0))
    owned = instance.fleet[0].model_copy(update={"count": 1, "price_per_hour": 1.0})
    instance = instance.replace(fleet=(owned, owned.model_copy(update={"count": None, "price_per_hour": 3.0})))
    plan = provision.solve(instance).plan
    provision.write(instance, tmp_path / "i.json")
    provision.write(plan, tmp_path / "p.json")
    asked = ["replan", str(tmp_path / "i.json"), str(tmp_path / "p.json"), "--lost", "0"]
    assert main(asked) == 0
    first, compared, cost, gpus, moves, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("2 GPUs, 6.00 $ per hour") and compared.endswith("leaves running, 1 GPU:")
    assert cost == "+3.00 $ per hour, +100%: 6.00 instead of 3.00." and gpus == "2 GPUs: +1 a30."
    assert "1 replica started" in moves
    assert main([*asked, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["cost_per_hour_before"], row["cost_per_hour"]) == (3.0, 6.0)


def test_the_service_replans_after_a_loss():
    """A job with ``lost`` gives what the library gives."""
    instance = provision.read("parvagpu-s1")
    plan = provision.solve(instance, "greedy").plan
    wanted = request("replan")(verb="replan", instance="parvagpu-s1", plan="plan", lost=0)
    given = Given(instance.model_dump(mode="json"), plan.model_dump(mode="json"), lambda kind, news: None)
    found = asked("replan", wanted.model_dump(exclude={"instance", "plan"})).job(given)
    assert found["verified"] and found["replicas_started"] == replan_lost(instance, plan, 0).changes.replicas_started
