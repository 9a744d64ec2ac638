"""``provision export``: what is refused, what is written, and the way back from a ParvaGPU deployment map."""

import json
from pathlib import Path

import pytest
from export_plans import parts_of_whole_gpus, shared_slices

import provision
from provision.cli import main
from provision.exporters.common import TARGETS, render
from provision.instances.importers.parvagpu import import_deployment
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """Every test works in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def s1():
    """ParvaGPU's scenario 1 with its plan: single workloads on slices, some with several processes."""
    instance = provision.read("parvagpu-s1")
    return instance, provision.solve(instance, "greedy").plan


@pytest.fixture(scope="module")
def testbed():
    """iGniter's testbed with its plan."""
    return parts_of_whole_gpus()


def run(line, capsys):
    """Exit code, stdout and stderr of a command line."""
    try:
        code = main(line.split())
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def everything(folder):
    """All files below a folder with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def changed(plan, gpu=0, piece=0, replica=0, **changes):
    """A plan with one replica changed, or its slice where ``replica`` is None."""
    one = plan.gpus[gpu].slices[piece]
    if replica is None:
        one = one.model_copy(update=changes)
    else:
        replicas = list(one.replicas)
        replicas[replica] = replicas[replica].model_copy(update=changes)
        one = one.model_copy(update={"replicas": tuple(replicas)})
    slices = list(plan.gpus[gpu].slices)
    slices[piece] = one
    gpus = list(plan.gpus)
    gpus[gpu] = gpus[gpu].model_copy(update={"slices": tuple(slices)})
    return plan.model_copy(update={"gpus": tuple(gpus)})


def test_command(s1, capsys):
    """The verb writes the files it lists, with the shipped instance found by its name."""
    provision.write(s1[1], "plan.json")
    code, out, err = run("export plan.json --to shell --out out", capsys)
    assert (code, err) == (0, "") and "3 files written to out" in out
    code, out, err = run("export plan.json --to triton --out triton --json", capsys)
    assert (code, err) == (0, "")
    assert set(json.loads(out)["files"]) == set(everything("triton")) and "README.md" in everything("triton")


def test_command_needs_the_instance(s1, capsys):
    """A plan for an instance that does not ship needs ``--instance``."""
    instance = s1[0].replace(name="mine")
    provision.write(instance, "mine.yaml")
    provision.write(s1[1].model_copy(update={"instance": "mine"}), "plan.json")
    code, out, err = run("export plan.json --to shell --out out", capsys)
    assert code == 2 and out == "" and "name its file before" in err and err.count("\n") == 1
    assert run("export plan.json --to shell --out out --instance mine.yaml", capsys)[0] == 0


@pytest.mark.parametrize("to", TARGETS)
def test_a_plan_that_does_not_hold_is_refused(to, s1):
    """Nothing is exported that the verifier refuses, nor an empty plan."""
    instance, plan = s1
    broken = plan.model_copy(update={"gpus": plan.gpus[:1]})
    for wrong in (broken, plan.model_copy(update={"gpus": ()})):
        with pytest.raises(provision.InputError, match="the plan"):
            provision.export(wrong, to, "out", instance)
    assert not Path("out").exists()


def test_folder_is_not_overwritten(s1):
    """A folder with files is left alone without force; with force only an earlier export is overwritten."""
    instance, plan = s1
    files = provision.export(plan, "shell", "out", instance)
    before = everything("out")
    assert set(before) == set(files)
    for to in ("shell", "mig-parted"):
        with pytest.raises(provision.InputError, match="--force"):
            provision.export(plan, to, "out", instance)
    provision.export(plan, "shell", "out", instance, force=True)
    assert everything("out") == before
    Path("out/mine.txt").write_text("mine")
    with pytest.raises(provision.InputError, match=r"mine\.txt"):
        provision.export(plan, "shell", "out", instance, force=True)
    assert everything("out") == before | {"mine.txt": b"mine"}


def test_folder_that_is_a_file(s1):
    """A file in the place of the folder is named."""
    Path("out").write_text("mine")
    with pytest.raises(provision.InputError, match="out"):
        provision.export(s1[1], "shell", "out", s1[0], force=True)
    assert Path("out").read_text() == "mine"


@pytest.mark.parametrize("to", TARGETS)
def test_turns_are_refused(to, s1):
    """No target can make replicas take turns."""
    with pytest.raises(provision.InputError, match="export takes no plan with turns"):
        provision.export(changed(s1[1], turn=0), to, "out", s1[0])
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("mig-parted", "no GPU of the plan is partitioned"),
        ("kubernetes-device-plugin", "equal shares"),
        ("parvagpu", "v100 with MIG off"),
    ],
)
def test_parts_of_whole_gpus_are_refused(to, reason, testbed):
    """Targets that know no SM percentages on whole GPUs say so."""
    with pytest.raises(provision.InputError, match=reason):
        provision.export(testbed[1], to, "out", testbed[0])
    assert not Path("out").exists()


def test_mps_on_mig_devices_is_refused_by_the_device_plugin(s1):
    """The device plugin has no MPS on MIG devices."""
    with pytest.raises(provision.InputError, match=r"no MPS on MIG devices.*mps: false"):
        provision.export(s1[1], "kubernetes-device-plugin", "out", s1[0])


def test_shares_of_several_processes_are_refused_by_triton(testbed):
    """The instances of a Triton model share one process and so one percentage."""
    instance, plan = testbed
    with pytest.raises(provision.InputError, match="share one process"):
        TARGETS["triton"](changed(plan, processes=2), instance, 8)


def test_spread_is_refused_where_kubernetes_chooses_the_gpu(s1):
    """``max_share_per_gpu`` needs a machine per GPU under Kubernetes."""
    instance, plan = s1
    workloads = [one.model_copy(update={"max_share_per_gpu": 0.999}) for one in instance.workloads]
    spread = instance.replace(workloads=workloads)
    with pytest.raises(provision.InputError, match="--gpus-per-node 1"):
        TARGETS["kubernetes"](plan, spread, 8)
    assert TARGETS["kubernetes"](plan, spread, 1).files


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sm_share": 0.5}, "no SM percentages"),
        ({"replica": None, "profile": "1g.20gb"}, "no 1g.20gb"),
        ({"replica": None, "replicas": ()}, "0 workloads"),
    ],
)
def test_what_a_deployment_map_cannot_say(change, reason, s1):
    """ParvaGPU's map knows single workloads with all SMs on plain slices."""
    with pytest.raises(provision.InputError, match=reason):
        TARGETS["parvagpu"](changed(s1[1], **change), s1[0], 8)


def test_shared_slices_have_no_deployment_map():
    """ParvaGPU keeps workloads apart."""
    instance, plan = shared_slices()
    with pytest.raises(provision.InputError, match="slice 4: has 6 workloads"):
        provision.export(plan, "parvagpu", "out", instance)


def test_other_gpus_have_no_deployment_map():
    """An H100 is none of ParvaGPU's GPUs."""
    plan = Plan(version=1, instance="x", gpus=(PlannedGpu(gpu="h100-80gb", mig=True, slices=()),))
    with pytest.raises(provision.InputError, match="h100-80gb"):
        TARGETS["parvagpu"](plan, None, 8)


@pytest.mark.parametrize("name", ["parvagpu-s1", "parvagpu-s4", "parvagpu-s6"])
@pytest.mark.parametrize("gpus_per_node", [1, 4, 1000])
def test_deployment_map_reads_back(name, gpus_per_node):
    """Exported and imported again, ParvaGPU's plan is the same, rates included up to rounding."""
    instance = provision.read(name)
    plan = provision.solve(instance, "parvagpu").plan
    provision.export(plan, "parvagpu", "out", instance, gpus_per_node=gpus_per_node)
    back = import_deployment("out/deployment.csv", instance)
    assert [without_rates(gpu) for gpu in back.gpus] == [without_rates(gpu) for gpu in plan.gpus]
    assert rates(back) == pytest.approx(rates(plan))


def without_rates(gpu):
    """A GPU with all rates set to 0."""
    slices = [
        piece.model_copy(update={"replicas": tuple(one.model_copy(update={"rate_rps": 0.0}) for one in piece.replicas)})
        for piece in gpu.slices
    ]
    return gpu.model_copy(update={"slices": tuple(slices)})


def rates(plan):
    """Rates of all replicas, in order."""
    return [replica.rate_rps for _, _, _, replica in plan.replicas()]


def test_a_deployment_map_read_back_holds(s1):
    """What comes back is a plan that the verifier accepts."""
    instance, plan = s1
    provision.export(plan, "parvagpu", "out", instance)
    assert provision.verify(instance, import_deployment("out/deployment.csv", instance)).ok


def test_gpus_per_node(s1):
    """Machines take as many GPUs as they are said to have; fewer than one makes no sense."""
    instance, plan = s1
    assert len(plan.gpus) == 2
    one = [name for name in render(plan, "shell", instance, 1) if name.endswith(".sh")]
    assert one == ["a100-80gb-mig-0.sh", "a100-80gb-mig-1.sh"]
    with pytest.raises(provision.InputError, match="--gpus-per-node 0"):
        provision.export(plan, "shell", "out", instance, gpus_per_node=0)
    with pytest.raises(provision.InputError, match="no such name"):
        provision.export(plan, "slurm", "out", instance)


def test_names_that_collide_stay_apart():
    """Workloads whose names differ in punctuation only keep names of their own."""
    instance = provision.read("parvagpu-s1")
    names = ("A b", "a.b", "a/b", "ü", "é", "y" * 190)
    workloads = [
        one.model_copy(update={"name": name}) for one, name in zip(instance.workloads, names, strict=True)
    ]
    plan = provision.solve(instance.replace(workloads=workloads), "greedy").plan
    found = render(plan, "triton", instance.replace(workloads=workloads))
    served = {name.split("/")[3] for name in found if name.endswith("config.pbtxt")}
    assert served == {"a-b", "a-b-2", "a-b-3", "unnamed", "unnamed-2", "y" * 40}


def test_replica_record_is_what_is_exported():
    """Exporters name every field of a replica; a new one needs a decision here."""
    assert set(Replica.model_fields) == {"workload", "batch", "processes", "sm_share", "rate_rps", "turn", "model"}
    assert set(Slice.model_fields) == {"profile", "start", "replicas"}


def test_machines_are_the_nodes_on_which_a_plan_puts_its_gpus(s1):
    instance, plan = s1
    nodes = [{"name": name, "gpu": plan.gpus[0].gpu, "gpus": 2} for name in ("east", "west")]
    gpus = tuple(gpu.model_copy(update={"node": name}) for gpu, name in zip(plan.gpus, ("west", "east"), strict=True))
    there, on = instance.replace(places={"nodes": nodes}), plan.model_copy(update={"gpus": gpus})
    assert [name for name in render(on, "shell", there) if name.endswith(".sh")] == ["west.sh", "east.sh"]
    assert "provision/node: parvagpu-s1-west" in "".join(render(on, "kubernetes", there).values())
