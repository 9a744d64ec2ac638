"""Traffic in the instance: who states it, what the rule plans for, what a simulation replays."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

import provision
from provision.models.plans.plan import Plan
from provision.models.problem.policy import Policy
from provision.models.traffic.arrivals import POISSON, Mmpp, Renewal

LEDGER = Path(__file__).parents[3] / "instances/ledger"


@pytest.fixture(scope="module")
def known():
    """ParvaGPU's first scenario and its best-known plan."""
    entry = json.loads((LEDGER / "parvagpu-s1.json").read_text())
    return provision.read("parvagpu-s1"), Plan(**entry["plan"]), entry["digest"]


def stating(instance, **traffic):
    return instance.with_policy(**traffic)


def test_defaults_leave_digests_as_they_are(known):
    instance, _, digest = known
    assert instance.digest == digest == stating(instance, arrivals=POISSON, routing="random", percentile=99.0).digest
    assert len({instance.digest, *(stating(instance, **one).digest for one in (
        {"arrivals": Renewal(cv=2.0)}, {"routing": "round_robin"}, {"percentile": 95.0}))}) == 4


def test_a_workload_says_more_than_the_policy(known):
    workload = known[0].workloads[0]
    policy = Policy(arrivals=Renewal(cv=3.0), percentile=95.0)
    own = workload.model_copy(update={"arrivals": Renewal(cv=2.0), "percentile": 90.0})
    assert policy.traffic_of(workload)[:2] == (Renewal(cv=3.0), 95.0)
    assert policy.traffic_of(own)[:2] == (Renewal(cv=2.0), 90.0)
    even = workload.model_copy(update={"arrivals": Renewal(cv=0.0)})
    assert policy.traffic_of(even).arrivals == POISSON


def test_stated_arrivals_are_replayed_unless_options_say_otherwise(known):
    instance, plan, _ = known
    bursts = Mmpp(high_over_mean=4.0, high_share=0.2, mean_high_s=2.0)
    calm, wild = (provision.simulate(one, plan, 20) for one in (instance, stating(instance, arrivals=bursts)))
    assert wild.violation_rate > calm.violation_rate
    asked = provision.simulate(stating(instance, arrivals=bursts), plan, 20, arrival_cv=1.0)
    assert asked.workloads == calm.workloads


def test_the_percentile_asked_for_decides(known):
    instance, plan, _ = known
    median = provision.simulate(stating(instance, percentile=50.0), plan, 20)
    assert all(one.at_slo == one.p50 for one in median.workloads)
    with pytest.raises(provision.InputError, match="too few for percentile"):
        provision.simulate(stating(instance, percentile=99.99), plan, 0.5)


@pytest.mark.parametrize("bad", [{"arrivals": {"process": "renewal", "cv": -1.0}}, {"percentile": 100.0},
                                 {"routing": "at_will"}, {"arrivals": {"process": "tides"}}])
def test_bad_traffic_is_refused(bad):
    with pytest.raises(ValidationError):
        Policy(**bad)


def test_workloads_on_shared_gpus_are_planned_for_one_traffic():
    instance = stating(provision.read("igniter-motivation"), latency_budget="queueing")
    first, *rest = instance.workloads
    with pytest.raises(ValidationError, match="state them in the policy"):
        instance.replace(workloads=(first, rest[0].model_copy(update={"percentile": 95.0}), *rest[1:]))
