"""The functions with which every exported shell script begins."""

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
