"""Exported scripts, read by bash and run against programs that stand in for the driver's and record what they are told.

The stand-ins answer as nvidia-smi does on free GPUs and keep MIG devices in files.
"""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from export_plans import parts_of_whole_gpus, shared_slices

import provision
from provision.exporters.common import TARGETS, slugs
from provision.models.hardware.gpu import gpu_type
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

SMI = """\
#!/usr/bin/env bash
# nvidia-smi, as far as the scripts use it; $STAND/mode-UUID, gi-UUID and devices hold the state
echo "nvidia-smi $*" >>"$STAND/calls"
uuid() { [[ $1 == GPU-* ]] && echo "$1" || echo "GPU-$1"; }
mode() { cat "$STAND/mode-$1" 2>/dev/null || echo Disabled; }
case "$1 $2 ${*:3}" in
  "-L  ") cat "$STAND/devices" 2>/dev/null; exit 0 ;;
  "-i $2 --query-gpu=uuid "*) uuid "$2" ;;
  "-i $2 --query-gpu=mig.mode.current "*) mode "$2" ;;
  "-i $2 --query-compute-apps=pid "*) cat "$STAND/running-$2" 2>/dev/null || true ;;
  "-i $2 -mig 1") [[ -e $STAND/stuck ]] || echo Enabled >"$STAND/mode-$2" ;;
  "-i $2 -mig 0") echo Disabled >"$STAND/mode-$2" ;;
  "-i $2 -c EXCLUSIVE_PROCESS") ;;
  "mig -i $3 -lgi") cat "$STAND/gi-$3" 2>/dev/null || { echo "No GPU instances found: Not Found"; exit 6; } ;;
  "mig -i $3 -cgi "*" -C")
    [[ $(mode "$3") == Enabled ]] || exit 3
    echo "$5" >>"$STAND/gi-$3"
    printf '  MIG device (UUID: MIG-%s)\\n' "$(wc -l <"$STAND/calls")" >>"$STAND/devices" ;;
  *) echo "unexpected: $*" >&2; exit 2 ;;
esac
"""

MPS = """\
#!/usr/bin/env bash
# nvidia-cuda-mps-control: one daemon per pipe directory, with the default percentage in a file
[[ -d $CUDA_MPS_PIPE_DIRECTORY ]] || exit 1
if [[ ${1:-} == -d ]]; then
  [[ -d $CUDA_MPS_LOG_DIRECTORY ]] || exit 1
  echo "daemon $CUDA_VISIBLE_DEVICES" >>"$STAND/calls"
  echo 100.0 >"$CUDA_MPS_PIPE_DIRECTORY/percentage"
  exit 0
fi
read -r command value
echo "$command $value" >>"$STAND/calls"
case $command in
  set_default_active_thread_percentage) [[ -e $STAND/deaf ]] || echo "$value" >"$CUDA_MPS_PIPE_DIRECTORY/percentage" ;;
  get_default_active_thread_percentage) cat "$CUDA_MPS_PIPE_DIRECTORY/percentage" ;;
esac
"""

RECORD = """\
#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$STAND/calls"
echo "$CUDA_VISIBLE_DEVICES ${CUDA_MPS_PIPE_DIRECTORY:-} ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" >>"$STAND/environments"
"""


@pytest.fixture
def stand(tmp_path, monkeypatch):
    """A folder that holds the state of the stand-ins, which come first on the path."""
    programs = {"nvidia-smi": SMI, "nvidia-cuda-mps-control": MPS, "tritonserver": RECORD, "kubectl": RECORD}
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND", str(tmp_path))
    monkeypatch.setenv("PROVISION_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "calls").touch()
    return tmp_path


def segments():
    """ParvaGPU's scenario 2: single workloads on MIG slices."""
    instance = provision.read("parvagpu-s2")
    return instance, provision.solve(instance, "greedy").plan


@pytest.fixture(scope="module", params=[segments, shared_slices, parts_of_whole_gpus])
def planned(request):
    """Instances with plans."""
    return request.param()


def bash(text, *arguments, check=True):
    """Check a script's syntax, run it; returns the finished process."""
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    done = subprocess.run(["bash", "-s", "--", *arguments], input=text, text=True, capture_output=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def calls(stand, start):
    """Recorded calls that start so, without that start."""
    lines = (stand / "calls").read_text().splitlines()
    return [line.removeprefix(start).strip() for line in lines if line.startswith(start)]


def scripts(instance, plan, gpus_per_node=8):
    """The shell export's scripts, in the order of its machines."""
    files = TARGETS["shell"](plan, instance, gpus_per_node).files
    return [text for name, text in files.items() if name.endswith(".sh")]


def test_shell(planned, stand):
    """The scripts create exactly the plan's slices where it puts them, and a daemon where there are clients."""
    instance, plan = planned
    texts = scripts(instance, plan, len(plan.gpus))
    assert len(texts) == 1
    out = bash(texts[0], *map(str, range(len(plan.gpus)))).stdout
    assert Counter(calls(stand, "nvidia-smi mig -i")) == Counter(expected_instances(plan))
    daemons = [piece for gpu in plan.gpus for piece in gpu.slices if mps(piece)]
    assert len(calls(stand, "daemon")) == len(daemons) == len(set(calls(stand, "daemon")))
    assert Counter(map(float, calls(stand, "set_default_active_thread_percentage"))) == pytest.approx(
        Counter(round(100 * max(one.sm_share for one in piece.replicas), 4) for piece in daemons)
    )
    assert Counter(environments(stand)) == Counter(
        (one.workload, instance.workload[one.workload].model, str(one.batch), str(one.processes),
         f"{100 * one.sm_share:.6g}" if mps(piece) else None)
        for _, _, piece, one in plan.replicas()
    )
    exclusive = sum(piece.profile == "whole" for piece in daemons)
    assert sum("EXCLUSIVE_PROCESS" in one for one in calls(stand, "nvidia-smi")) == exclusive
    assert listening(stand) == addresses(instance, plan)
    assert out.count("== ") >= sum(len(gpu.slices) for gpu in plan.gpus)


def expected_instances(plan):
    """What ``nvidia-smi mig -i`` is told beyond -lgi: GPU, profile id and start of every slice."""
    for index, gpu in enumerate(plan.gpus):
        for piece in gpu.slices if gpu.mig else ():
            yield f"GPU-{index} -cgi {gpu_type(gpu.gpu).profiles[piece.profile].profile_id}:{piece.start} -C"


def mps(piece):
    """Whether a slice needs MPS."""
    return sum(one.processes for one in piece.replicas) > 1 or any(one.sm_share < 1 for one in piece.replicas)


def environments(stand):
    """Workload, model, batch, processes and percentage of every file of environment, as a shell reads it."""
    names = ["WORKLOAD", "MODEL", "BATCH", "PROCESSES"]
    show = "; ".join(f'printf "%s\\0" "$PROVISION_{name}"' for name in names)
    for path in sorted((stand / "state").rglob("*.env")):
        text = f'. "{path}"; {show}; printf "%s\\0" "${{CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}}" "$CUDA_VISIBLE_DEVICES"'
        *found, percentage, device, _ = bash(text).stdout.split("\0")
        assert device.startswith(("MIG-", "GPU-"))
        yield (*found, percentage or None)


def listening(stand):
    """The ports of every workload's processes, by the files of environment."""
    show = "; ".join(f'printf "%s\\0" "$PROVISION_{name}"' for name in ("WORKLOAD", "PORT", "PROCESSES"))
    found = Counter()
    for path in sorted((stand / "state").rglob("*.env")):
        workload, first, processes, _ = bash(f'. "{path}"; {show}').stdout.split("\0")
        found.update((workload, port) for port in range(int(first), int(first) + int(processes)))
    return found


def addresses(instance, plan):
    """The ports that nginx deals the requests of every workload to."""
    text = TARGETS["shell"](plan, instance, len(plan.gpus)).files["nginx.conf"]
    names = {slug: workload for workload, slug in slugs(one.name for one in instance.workloads).items()}
    upstreams = re.findall(r"upstream (\S+) \{(.*?)\}", text, re.DOTALL)
    return Counter((names[name], int(port)) for name, inside in upstreams for port in re.findall(r":(\d+) ", inside))


@pytest.fixture
def small(stand):
    """The script of one A100 with two slices, one of them with MPS, and a workload with an awkward name."""
    instance = provision.read("parvagpu-s1")
    name = "it's $(touch pwned) \"x\""
    instance = instance.replace(workloads=[instance.workloads[0].model_copy(update={"name": name})])
    replicas = [Replica(workload=name, batch=8, processes=number, rate_rps=1) for number in (1, 3)]
    slices = tuple(
        Slice(profile="2g.20gb", start=start, replicas=(one,)) for start, one in zip((2, 4), replicas, strict=True)
    )
    plan = Plan(version=1, instance="x", gpus=(PlannedGpu(gpu="a100-80gb", mig=True, slices=slices),))
    return scripts(instance, plan)[0]


def changes(stand):
    """Recorded calls that change something."""
    return [one for one in calls(stand, "nvidia-smi") if " -cgi" in one or " -mig" in one] + calls(stand, "daemon")


def test_names_are_data(small, stand):
    """A name with quotes and a command in it arrives as it is and runs nothing."""
    bash(small, "0")
    assert {one[0] for one in environments(stand)} == {"it's $(touch pwned) \"x\""}
    assert not Path("pwned").exists() and not (stand / "pwned").exists()


@pytest.mark.parametrize("gpu", ["0", "GPU-0"])
def test_shell_refuses_existing_instances(gpu, small, stand):
    """A GPU with MIG instances is left as it is."""
    (stand / "mode-GPU-0").write_text("Enabled\n")
    (stand / "gi-GPU-0").write_text("|   0  MIG 1g.10gb        19        7          0:1     |\n")
    done = bash(small, gpu, check=False)
    assert done.returncode == 1 and "has MIG instances" in done.stderr and changes(stand) == []


def test_shell_refuses_running_processes(small, stand):
    """A GPU that is in use is left as it is."""
    (stand / "running-GPU-0").write_text("4711\n")
    done = bash(small, "0", check=False)
    assert done.returncode == 1 and "runs processes: 4711" in done.stderr and changes(stand) == []


@pytest.mark.parametrize("arguments", [[], ["0", "1"]])
def test_shell_counts_its_gpus(arguments, small, stand):
    """As many GPUs as the plan has, or nothing happens."""
    done = bash(small, *arguments, check=False)
    assert done.returncode == 1 and "give 1 GPUs" in done.stderr and changes(stand) == []


def test_shell_refuses_a_gpu_given_twice(stand):
    """The index and the UUID of one GPU are one GPU."""
    gpu = PlannedGpu(gpu="a100-80gb", mig=True, slices=(Slice(profile="7g.80gb"),))
    text = scripts(provision.read("parvagpu-s1"), Plan(version=1, instance="x", gpus=(gpu, gpu)))[0]
    done = bash(text, "0", "GPU-0", check=False)
    assert done.returncode == 1 and "given twice" in done.stderr and changes(stand) == []


def test_shell_stops_when_the_mode_stays_pending(small, stand):
    """Without MIG mode no instance is created."""
    (stand / "stuck").touch()
    done = bash(small, "0", check=False)
    assert done.returncode == 1 and "pending" in done.stderr
    assert not any("-cgi" in one for one in changes(stand))


def test_shell_asks_mps_what_it_holds(small, stand):
    """The control program's exit code says nothing, so a refused percentage is found by asking."""
    (stand / "deaf").touch()
    text = small.replace("start_mps gpu000-slice1 100", "start_mps gpu000-slice1 40")
    assert text != small
    done = bash(text, "0", check=False)
    assert done.returncode == 1 and "holds 100.0 %, not 40 %" in done.stderr


def test_shell_does_not_run_twice(small, stand):
    """A second run finds the instances of the first."""
    bash(small, "0")
    before = changes(stand)
    assert bash(small, "0", check=False).returncode == 1 and changes(stand) == before


def test_whole_gpus_of_a_type_with_mig_have_it_switched_off(stand):
    """A plan that leaves MIG off turns it off where it is on."""
    (stand / "mode-GPU-0").write_text("Enabled\n")
    gpu = PlannedGpu(gpu="a100-80gb", mig=False, slices=(Slice(profile="whole"),))
    bash(scripts(provision.read("parvagpu-s1"), Plan(version=1, instance="x", gpus=(gpu,)))[0], "0")
    assert (stand / "mode-GPU-0").read_text() == "Disabled\n"


def test_triton_servers_start(planned, stand):
    """A start script hands its server the device, the folder of its model and, under MPS, its percentage."""
    instance, plan = planned
    files = TARGETS["triton"](plan, instance, 8).files
    starts = {name: text for name, text in files.items() if name.endswith("serve.sh")}
    shared = [len(piece.replicas) > 1 or one.sm_share < 1 for _, _, piece, one in plan.replicas()]
    for (name, text), needs_mps in zip(starts.items(), shared, strict=True):
        path = stand / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        assert subprocess.run(["bash", path], capture_output=True, check=False).returncode != 0
        given = ["MIG-1", "pipe"] if needs_mps else ["MIG-1"]
        subprocess.run(["bash", path, *given], check=True)
        assert f"--model-repository={path.parent}/models" in calls(stand, "tritonserver")[-1]
    wanted = [
        f"MIG-1 pipe {100 * one.sm_share:.6g}" if needs else "MIG-1  "
        for (_, _, _, one), needs in zip(plan.replicas(), shared, strict=True)
    ]
    assert (stand / "environments").read_text().splitlines() == wanted


def test_nodes_are_labelled(planned, stand):
    """One Kubernetes node per machine, in their order; another number of nodes labels nothing."""
    instance, plan = planned
    text = TARGETS["kubernetes"](plan, instance, 1).files["label-nodes.sh"]
    names = [f"node{number}" for number in range(len(plan.gpus))]
    assert bash(text, *names[1:], check=False).returncode == 1 and calls(stand, "kubectl") == []
    bash(text, *names)
    found = [line.split() for line in calls(stand, "kubectl label node")]
    assert [line[0] for line in found] == names
    machines = [dict(label.split("=") for label in line[2:]) for line in found]
    assert len({labels["provision/node"] for labels in machines}) == len(plan.gpus)
    partitioned = [gpu_type(gpu.gpu).mig is not None for gpu in plan.gpus]
    assert ["nvidia.com/mig.config" in labels for labels in machines] == partitioned
