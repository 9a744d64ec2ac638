"""Export as a shell script per machine, which partitions its GPUs with nvidia-smi and starts the MPS daemons.

Every placement is explicit (``nvidia-smi mig -cgi PROFILE:START``). The script changes nothing unless all given GPUs
are idle and unpartitioned. Source: NVIDIA MIG user guide, nvidia-smi(1), nvidia-cuda-mps-control(1).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from provision.exporters import routing
from provision.exporters.common import Exported, Node, nodes, slice_name
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, GpuType
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import needs_mps, percentage

FUNCTIONS = r"""
# -E: functions report where they failed, too.
set -Eeuo pipefail
export LC_ALL=C
STATE=${PROVISION_STATE:-/run/provision}
DEVICE=""

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
trap 'printf "error: line %s failed; see what stands with: nvidia-smi mig -lgi\n" "$LINENO" >&2' ERR

# take_gpus COUNT GPU...: the GPUs to set up, all different
take_gpus() {
  local expected=$1
  shift
  [[ $# -eq $expected ]] || fail "give $expected GPUs as arguments, indices or UUIDs of nvidia-smi -L (got $#)"
  gpus=()
  local gpu uuid
  for gpu in "$@"; do
    uuid=$(nvidia-smi -i "$gpu" --query-gpu=uuid --format=csv,noheader)
    [[ $uuid == GPU-* ]] || fail "GPU $gpu: nvidia-smi knows none: $uuid"
    [[ " ${gpus[*]-} " != *" $uuid "* ]] || fail "GPU $gpu is given twice"
    gpus+=("$uuid")
  done
}

mig_mode() { nvidia-smi -i "$1" --query-gpu=mig.mode.current --format=csv,noheader; }

# check_free GPU: refuse a GPU that is in use; nothing has been changed yet
check_free() {
  say "GPU $1: check that it is free"
  local running listed
  running=$(nvidia-smi -i "$1" --query-compute-apps=pid --format=csv,noheader)
  [[ -z $running ]] || fail "GPU $1 runs processes: ${running//$'\n'/ }; stop them first"
  [[ $(mig_mode "$1") == Enabled ]] || return 0
  listed=$(nvidia-smi mig -i "$1" -lgi 2>&1 || true)
  [[ $listed == *"No GPU instances found"* ]] || fail "GPU $1 has MIG instances, destroy them first: $listed"
}

# switch_mig GPU Enabled|Disabled 1|0: set the MIG mode where it differs
switch_mig() {
  [[ $(mig_mode "$1") != "$2" ]] || return 0
  say "GPU $1: set MIG mode to $2"
  nvidia-smi -i "$1" -mig "$3"
  [[ $(mig_mode "$1") == "$2" ]] || fail "GPU $1: MIG mode is still pending; reset the GPU or reboot, then start again"
}

mig_uuids() { nvidia-smi -L | { grep -o 'MIG-[^)]*' || true; } | sort; }

# create_slice GPU PROFILE_ID START NAME: a GPU instance with its compute instance; DEVICE becomes its UUID
create_slice() {
  say "GPU $1: create $4 at memory slice $3"
  local before after
  before=$(mig_uuids)
  nvidia-smi mig -i "$1" -cgi "$2:$3" -C
  after=$(mig_uuids)
  DEVICE=$(comm -13 <(printf '%s\n' "$before") <(printf '%s\n' "$after"))
  [[ $DEVICE == MIG-* && $DEVICE != *$'\n'* ]] || fail "GPU $1: expected one new MIG device, found: ${DEVICE:-none}"
}

# take_whole GPU [exclusive]: the whole GPU; under MPS only the MPS server may open it
take_whole() {
  say "GPU $1: use it whole"
  DEVICE=$1
  [[ -z ${2:-} ]] || nvidia-smi -i "$1" -c EXCLUSIVE_PROCESS
}

# make_folder SLICE: where the sockets, logs and descriptions of a slice go
make_folder() {
  mkdir -p "$STATE"
  mkdir "$STATE/$1" || fail "$STATE/$1 is left from an earlier run; remove it"
}

mps() { printf '%s\n' "$2" | CUDA_MPS_PIPE_DIRECTORY="$STATE/$1/pipe" nvidia-cuda-mps-control; }

# start_mps SLICE PERCENT: an MPS daemon for DEVICE; no client may use more than this part of its SMs
start_mps() {
  say "$1: start MPS on $DEVICE, at most $2 % of its SMs per process"
  mkdir "$STATE/$1/pipe" "$STATE/$1/log"
  CUDA_VISIBLE_DEVICES="$DEVICE" CUDA_MPS_PIPE_DIRECTORY="$STATE/$1/pipe" CUDA_MPS_LOG_DIRECTORY="$STATE/$1/log" \
    nvidia-cuda-mps-control -d
  mps "$1" "set_default_active_thread_percentage $2" >/dev/null
  # The control program succeeds even when the daemon refuses a command: ask what is set.
  local held
  held=$(mps "$1" get_default_active_thread_percentage)
  awk -v held="$held" -v wanted="$2" 'BEGIN { exit !(held - wanted < 0.1 && wanted - held < 0.1) }' ||
    fail "$1: MPS holds $held %, not $2 %"
}

# describe SLICE N PERCENT|'' WORKLOAD MODEL BATCH PROCESSES RATE_RPS PORT: the environment of a replica's processes
describe() {
  say "$1: $7 processes of $4 at batch $6, $8 requests/s"
  {
    printf 'CUDA_VISIBLE_DEVICES=%q\n' "$DEVICE"
    if [[ -n $3 ]]; then
      printf 'CUDA_MPS_PIPE_DIRECTORY=%q\n' "$STATE/$1/pipe"
      printf 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%q\n' "$3"
    fi
    printf 'PROVISION_WORKLOAD=%q\nPROVISION_MODEL=%q\n' "$4" "$5"
    printf 'PROVISION_BATCH=%q\nPROVISION_PROCESSES=%q\nPROVISION_RATE_RPS=%q\n' "$6" "$7" "$8"
    printf 'PROVISION_PORT=%q\n' "$9"
  } >"$STATE/$1/$2.env"
}
"""

FIRST_PORT = 8000
HEAD = """\
#!/usr/bin/env bash
# Sets up {count} x {product}; the arguments are their indices or UUIDs.
"""


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``NODE.sh`` for every machine, and the configuration of nginx."""
    machines = nodes(plan, gpus_per_node)
    if grouped := [node.name for node in machines if node.type.gpus > 1]:
        raise InputError(f"shell: {grouped[0]} serves groups of GPUs; use --to kubernetes")
    files = {f"{node.name}.sh": _script(instance, node) for node in machines}
    files[routing.FILE] = routing.configuration(instance, _servers(machines))
    return Exported(files, (*_use(machines), *NOTES, routing.NGINX_NOTE))


NOTES = (
    "A script refuses GPUs that have MIG instances or running processes, before it changes anything.",
    "For every replica it leaves `/run/provision/SLICE/N.env` (PROVISION_STATE names another folder): the environment "
    "for each of its server processes, and what they serve. `set -a; . FILE; set +a`, then start them: the first "
    "listens at PROVISION_PORT, the next at the port after it, and so on.",
    "A script that fails stops at once and undoes nothing; it says where it stopped. `nvidia-smi mig -dci`, `-dgi` and "
    "`echo quit | nvidia-cuda-mps-control` undo its steps.",
)


def _use(machines: Sequence[Node]) -> Iterator[str]:
    for node in machines:
        gpus = " ".join(f"GPU{device}" for device in range(len(node.gpus)))
        yield f"`bash {node.name}.sh {gpus}`, as root: indices or UUIDs of {len(node.gpus)} x {node.type.product}."


def _script(instance: Instance, node: Node) -> str:
    count = len(node.gpus)
    lines = [HEAD.format(count=count, product=node.type.product) + FUNCTIONS, f'take_gpus {count} "$@"']
    lines += [f"check_free {_gpu(device)}" for device in range(count)]
    ports = (port for _, port in _ports(node))
    for device, (index, gpu) in enumerate(node.gpus):
        lines += ["", f"# GPU {index} of the plan", *_mode(node, device)]
        for position, piece in enumerate(gpu.slices):
            lines += _slice(instance, node.type, device, slice_name(index, position), piece, ports)
    return "\n".join([*lines, "say done", ""])


def _ports(node: Node) -> Iterator[tuple[Replica, int]]:
    """Yield every replica of a machine with its first port. It has as many consecutive ports as processes."""
    port = FIRST_PORT
    for _, gpu in node.gpus:
        for replica in (one for piece in gpu.slices for one in piece.replicas):
            yield replica, port
            port += replica.processes


def _servers(machines: Sequence[Node]) -> routing.Servers:
    """The addresses of the processes of every workload, each with its rate."""
    found: dict[str, list[tuple[str, float]]] = {}
    for node in machines:
        for replica, first in _ports(node):
            each_rps = replica.rate_rps / replica.processes
            ports = range(first, first + replica.processes)
            found.setdefault(replica.workload, []).extend((f"{node.name}:{port}", each_rps) for port in ports)
    return found


def _gpu(device: int) -> str:
    return f'"${{gpus[{device}]}}"'


def _mode(node: Node, device: int) -> list[str]:
    if not node.type.mig:
        return []
    return [f"switch_mig {_gpu(device)} {'Enabled 1' if node.mig else 'Disabled 0'}"]


def _slice(instance: Instance, kind: GpuType, device: int, name: str, piece: Slice,
           ports: Iterator[int]) -> Iterator[str]:
    """Yield shell lines that make a slice, start its MPS daemon and describe its replicas, which take the next
    ``ports``.
    """
    if piece.profile == WHOLE:
        yield f"take_whole {_gpu(device)}{' exclusive' if needs_mps(piece) else ''}"
    else:
        profile = kind.profiles[piece.profile]
        yield f"create_slice {_gpu(device)} {profile.profile_id} {piece.start} {profile.name}"
    yield f"make_folder {name}"
    if needs_mps(piece):
        largest = max(piece.replicas, key=lambda replica: replica.sm_share)
        yield f"start_mps {name} {percentage(largest)}"
    for order, replica in enumerate(piece.replicas):
        described = (replica.workload, instance.model_of(replica), replica.batch, replica.processes,
                     f"{replica.rate_rps:.6g}", next(ports))
        limit = percentage(replica) if needs_mps(piece) else ""
        yield shlex.join(["describe", name, str(order), limit, *map(str, described)])
