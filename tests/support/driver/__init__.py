"""GPUs that exist only in a file, driven through the real bindings: a test double for NVIDIA's driver.

A `Node` is a folder: the state of its GPUs (`state`, shared by all processes under a lock), a log of every call, and
stand-ins for the programs `nvidia-cuda-mps-control` and `nvidia-smi` (-L and --gpu-reset). A C library with NVML's ABI,
compiled on first use, is what the unmodified `nvidia-ml-py` loads. Kill a process, start another: same hardware.

    node = Node(tmp_path / "node", ["a100-80gb", "a30"], mig=True)  # a100-40gb, a100-80gb, a30, h100-80gb, t4
    subprocess.run([...], env=node.environment(CUDA_...="..."))     # another process
    with node.loaded(): pynvml.nvmlInit(); ...                      # this process: same calls, same hardware

    node.gpus[0].uuid, .type, .mig, .pending_mig, .compute_mode
    node.instances(gpu=0)                     # [Instance(id, profile_id, start, size, devices)] by start;
                                              #   devices: (MIG UUID, CI profile id) per compute instance
    pid = node.start_process(uuid)            # a CUDA process on a GPU or MIG device (by UUID)
    pid = node.start_client(pipe, percent=50) # an MPS client of the daemon at a pipe directory; starts its server
    node.processes()                          # [Process(pid, gpu, gi, ci, kind, memory_mib, name)];
                                              #   kind: "C", "M+C" (MPS client), "D" (MPS daemon, on GPU -1)
    subprocess.Popen(["cuda-program"], env=...)  # a real process on the device of its CUDA_VISIBLE_DEVICES, through
                                              #   the daemon of its CUDA_MPS_PIPE_DIRECTORY if there is one; till ended
    node.end_process(pid)                     # as if it was killed: a process, client, MPS server or daemon
    node.daemons()                            # {pipe directory: Daemon(pid, device, percent, limits, servers)}

    node.fault("nvmlGpuInstanceDestroy", 2, "error", code=19)       # the 2nd such call from now on: refused
    node.fault("change", 3, "kill_after")     # the 3rd state-changing call from now on: done, then SIGKILL
    node.fault("call", 40, "hang")            # the 40th call of any kind never returns
    #   what: "call", "change", an NVML function (as exported: nvmlDeviceGetCount_v2), "mps:quit" and other commands,
    #         "mps:-d" (daemon start), "smi:--gpu-reset"
    #   kind: "error" (refused), "error_after" (done, but reported as failed), "hang", "kill_before", "kill_after"
    #         (SIGKILL to the process that called NVML; to the parent of a program, so not from pytest itself)
    #   code: the NVML status; for a program its exit status (0: rejected by the daemon, as text on stdout)
    node.counts                               # (calls, state-changing calls) over the life of the node
    node.calls()                              # [Call(number, pid, name, gpu, change, args, result)]; node.touched():
                                              #   GPUs named by state-changing calls (-1: a daemon's unknown device)

    node.unprivileged()                       # from now on calls that need root return NO_PERMISSION
    node.settle(0, "held")                    # GPU 0 switches MIG only by a reset; "pass-through": not even so
    node.answer(0, "sparse")                  # GPU 0's driver tells less than it might, as others do
    node.reset(0); node.reboot()              # what nvidia-smi --gpu-reset and a reboot do

Process ids are above Linux's largest, so signals find nobody; a process started with `pid=` of a real one leaves the
GPU when that ends. Choices where NVIDIA documents nothing: an MPS server keeps its MIG device in use; from Hopper on a
refused MIG switch leaves nothing pending; compute instances lie at multiples of their size.
"""

from driver.node import Node

__all__ = ["Node"]
