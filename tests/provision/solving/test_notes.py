"""What is said beside an answer."""

import provision

FLEET = [{"gpu": "a100-80gb"}, {"gpu": "a30"}, {"gpu": "t4"}]


def notes(policy="half_slo", workloads=("resnet50",)):
    rows = [{"name": model, "model": model, "slo_ms": 500.0, "rate_rps": 10.0} for model in workloads]
    instance = provision.Instance(
        version=1, name="noted", fleet=FLEET, performance=["parvagpu-a100", "igniter-t4-derived"], workloads=rows,
        policy={"latency_budget": policy},
    )
    return provision.solve(instance).notes


def test_an_entry_without_data_and_a_narrow_workload_are_told():
    unused, narrow, memory, promise = notes(workloads=("resnet50", "bert"))
    assert unused.startswith("fleet[1]: a30 stays unused")
    assert narrow.startswith("workload bert can run on a100-80gb only")
    assert memory.startswith("memory of resnet50 on t4 is not known")
    assert promise.startswith("latency_budget half_slo")


def test_notes_stand_in_the_json_object():
    found = provision.solve("parvagpu-s1")
    assert found.summary()["notes"] == list(found.notes)
    assert len(found.notes) == 1
