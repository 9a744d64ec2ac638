"""Plans replayed over draws of what is uncertain."""

import json

import pytest
from token_instances import chat, instance

from provision import read, solve
from provision.cli import main
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.problem.policy import Policy
from provision.models.problem.uncertainty import Uncertainty
from provision.simulation.draws import ALL, KeptDraws, refutes, replay_draws


def uncertain(confidence, **uncertainty):
    """ParvaGPU's first scenario under random arrivals, uncertain."""
    found = read("parvagpu-s1")
    given = found.policy.model_dump(exclude_unset=True) | {
        "latency_budget": "queueing", "confidence": confidence, "uncertainty": uncertainty}
    return found.replace(policy=Policy(**given))


def test_a_plan_with_confidence_keeps_its_slos_in_so_many_draws(tmp_path, capsys):
    problem = uncertain(0.9, service="15%", rates="15%")
    plan = solve(problem, "greedy", replay=False).plan
    write(problem, tmp_path / "instance.json")
    write(plan, tmp_path / "plan.json")
    code = main(["simulate", str(tmp_path / "instance.json"), str(tmp_path / "plan.json"), "--draws", "20", "--seconds",
                 "20", "--json"])
    found = {one["workload"]: one for one in json.loads(capsys.readouterr().out)["draws"]}
    assert code == 0 and found[ALL]["draws"] == 20
    assert all(found[ALL]["kept"] <= one["kept"] for one in found.values())
    assert min(one["kept"] for name, one in found.items() if name != ALL) >= 15


def test_few_successes_refute_a_probability():
    assert refutes(KeptDraws(workload="a", kept=10, draws=20), 0.95)
    assert not refutes(KeptDraws(workload="a", kept=18, draws=20), 0.95)


def test_nothing_uncertain_is_refused():
    problem = read("parvagpu-s1")
    plan = solve(problem, "greedy", replay=False).plan
    with pytest.raises(InputError, match=r"add policy\.confidence"):
        replay_draws(problem, plan, 2)


def test_first_and_further_tokens_count():
    """Servers half as fast miss their limits on tokens, although no limit on whole answers is stated."""
    problem = instance([chat(rate_rps=4.0)])
    plan = solve(problem, "greedy", replay=False).plan
    slower = problem.with_policy(confidence=0.9, uncertainty=Uncertainty(service="1%"))
    assert replay_draws(slower, plan, 2, 5.0)[0].kept == 2
    tight = slower.replace(workloads=[chat(rate_rps=4.0, slo={"ttft_ms": 300.0, "tpot_ms": 1.0})])
    assert [one.kept for one in replay_draws(tight, tight.adopted(plan), 2, 5.0)] == [0, 0]
