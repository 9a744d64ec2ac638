"""ParvaGPU's section III-F: services that change are placed anew, the others stay where they are."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.cli import main
from provision.heuristics.parvagpu.changes import reconfigured
from provision.models.hardware.gpu import gpu_type


def eased(instance, at, slo=1.0, rate=1.0):
    """The instance with one workload's SLO and rate times a factor."""
    one = instance.workloads[at]
    other = one.model_copy(update={"slo_ms": slo * one.slo_ms, "rate_rps": rate * one.rate_rps})
    return instance.replace(workloads=[other if at == number else one for number, one in enumerate(instance.workloads)])


def slices(plan):
    """Every slice by GPU, profile and start: its workload, batch and processes."""
    return {(at, piece.profile, piece.start): (one.workload, one.batch, one.processes)
            for at, gpu in enumerate(plan.gpus) for piece in gpu.slices for one in piece.replicas}


def test_nothing_changes_when_nothing_changed():
    for number in range(1, 7):
        instance = provision.read(f"parvagpu-s{number}")
        before = provision.solve(instance, "parvagpu").plan
        assert provision.replan(instance, before, method="parvagpu").changes.moved == 0


@settings(max_examples=25)
@given(st.integers(0, 10), st.sampled_from([0.7, 1.5, 2.0]), st.sampled_from([0.5, 1.0, 1.8]), st.sampled_from([3, 4]))
def test_the_plan_holds_and_full_gpus_of_others_stay(at, slo, rate, number):
    """What stands on GPUs that are not fragmented and without the changed workload stays slice by slice."""
    instance = provision.read(f"parvagpu-s{number}")
    before = provision.solve(instance, "parvagpu").plan
    changed = eased(instance, at, slo, rate)
    if provision.solve(changed, "parvagpu").plan is None:
        return
    after = reconfigured(changed, before)
    assert provision.verify(changed, after).ok
    name, now = instance.workloads[at].name, slices(after)
    for number, gpu in enumerate(before.gpus):
        compute = sum(gpu_type(gpu.gpu).profiles[piece.profile].compute for piece in gpu.slices
                      if piece.replicas[0].workload != name)
        if compute > 4:
            here = {key: value for key, value in slices(before).items() if key[0] == number and value[0] != name}
            assert here.items() <= now.items()


def test_the_command(tmp_path, capsys):
    """A plan for a higher rate, and one line for options that ParvaGPU does not know."""
    path = tmp_path / "plan.json"
    provision.write(provision.solve(provision.read("parvagpu-s2"), "parvagpu").plan, path)
    asked = ["replan", "parvagpu-s2", str(path), "--method", "parvagpu"]
    assert main([*asked, "--rate", "1.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "feasible"
    assert main([*asked, "--allow", "batches"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_plan_of_shared_slices_is_refused():
    instance = provision.read("parvagpu-s1")
    plan = provision.solve(instance, "parvagpu").plan
    first, *others = plan.gpus
    piece, *rest = first.slices
    twice = piece.model_copy(update={"replicas": piece.replicas * 2})
    shared = plan.model_copy(update={"gpus": (first.model_copy(update={"slices": (twice, *rest)}), *others)})
    with pytest.raises(provision.UnsupportedError, match="plans of isolated segments"):
        reconfigured(instance, shared)


def test_three_processes_as_in_the_paper():
    """Up to so many; more choice never takes more GPUs here."""
    instance = provision.read("parvagpu-s3")
    few, every = (provision.solve(instance, "parvagpu", **settings) for settings in ({"max_processes": 3}, {}))
    assert max(one.processes for *_, one in few.plan.replicas()) <= 3
    assert every.report.gpus <= few.report.gpus
