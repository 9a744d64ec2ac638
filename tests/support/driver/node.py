"""A node: a folder with GPUs in it, and what tests do to them."""

import contextlib
import os
import sys
import uuid
from collections import namedtuple
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from driver.daemon import Daemon
from driver.state import Fault, Gpu, State, locked, write

PROGRAMS = {"nvidia-cuda-mps-control": "driver.mps", "nvidia-smi": "driver.smi", "cuda-program": "driver.cuda"}
HOPPER = ("h100-80gb", "h100-pcie", "h100-other")
KINDS = ("error", "error_after", "hang", "kill_before", "kill_after")

Call = namedtuple("Call", "number pid name gpu change args result")


class Instance(NamedTuple):
    """A GPU instance with its MIG devices as (UUID, compute-instance profile id), in the order of their ids."""

    id: int
    profile_id: int
    start: int
    size: int
    devices: tuple


class Node:
    """GPUs of the given types in a new folder, idle, or those of an existing folder when no types are given."""

    def __init__(self, folder, types=None, mig=False):
        self.folder = Path(folder)
        if types is not None:
            self._create(types, mig)

    def _create(self, types, mig):
        (self.folder / "bin").mkdir(parents=True)
        state = State("node 0 0 0 1")
        for index, kind in enumerate(types):
            wanted = mig[index] if isinstance(mig, list) else mig
            mode = int(wanted and kind != "t4")
            gpu_uuid = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{kind} {index}')}"
            state.rows["gpu"].append(Gpu(kind, gpu_uuid, mode, mode, 0, "idle", "fully"))
        write(self.folder, state)
        (self.folder / "calls").touch()
        (self.folder / "boot_id").write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
        for name, module in PROGRAMS.items():
            self._write_program(self.folder / "bin" / name, module)

    def _write_program(self, path, module):
        """The program knows its node and needs nothing of the caller's environment."""
        path.write_text(
            f"#!/bin/sh\nNVML_STANDIN_FOLDER='{self.folder.absolute()}' PYTHONPATH='{Path(__file__).parents[1]}' "
            f"exec '{sys.executable}' -S -m {module} \"$@\"\n"
        )
        path.chmod(0o755)

    def environment(self, **variables):
        """Variables for another process that is to meet this node, besides this process's own."""
        from driver.build import library  # not at the top: the programs import this module too, and often

        searched = {"PATH": self.folder.absolute() / "bin", "LD_LIBRARY_PATH": library()}
        first = {name: f"{path}:{os.environ.get(name, '')}".rstrip(":") for name, path in searched.items()}
        own = {"NVML_STANDIN_FOLDER": self.folder.absolute(), "PROVISION_LOCKS": self.folder.absolute() / "locks"}
        return {**os.environ, **first, **{name: str(path) for name, path in own.items()}, **variables}

    @contextlib.contextmanager
    def loaded(self, inside=False):
        """This process meets the node: pynvml gets the library, programs are found first in PATH.

        With ``inside`` the MPS control program runs in this process, which is faster.
        """
        from ctypes import CDLL
        from unittest import mock

        import pynvml

        from driver.build import library
        from driver.inside import within  # not at the top: a program that is run as a module may not be imported first
        from provision.applier.driver import calls

        with (
            mock.patch.dict(os.environ, self.environment()),
            mock.patch.object(pynvml, "nvmlLib", CDLL(str(library() / "libnvidia-ml.so.1"))),
            mock.patch.dict(pynvml._nvmlGetFunctionPointer_cache, clear=True),
            mock.patch.object(calls, "BOOT", self.folder / "boot_id"),
            mock.patch("subprocess.run", within(self.folder)) if inside else contextlib.nullcontext(),
        ):
            yield

    def give_daemon(self, pipe):
        """The daemon at a pipe directory is another user's from now on."""
        with locked(self.folder) as state:
            daemon = Daemon.reach(state, pipe)
            daemon.denied = True
            daemon.save(state)

    @property
    def state(self):
        """A copy of the state as it is now."""
        with locked(self.folder) as state:
            return state

    @property
    def gpus(self):
        return self.state.rows["gpu"]

    @property
    def counts(self):
        """(calls, state-changing calls) so far."""
        state = self.state
        return state.call_count, state.change_count

    def instances(self, gpu):
        """The GPU instances of a GPU in the order of their starts."""
        rows = self.state.rows
        computes = sorted((row for row in rows["compute"] if row.gpu == gpu), key=lambda row: row.id)
        return [
            Instance(*row[1:5], tuple((ci.uuid, ci.profile_id) for ci in computes if ci.gi == row.id))
            for row in sorted(rows["instance"], key=lambda row: row.start)
            if row.gpu == gpu
        ]

    def processes(self):
        return self.state.rows["process"]

    def start_process(self, uuid, memory_mib=500, pid=None, name="python"):
        """Start a CUDA process on a MIG device, or on a GPU that is not in MIG mode."""
        with locked(self.folder) as state:
            return state.add_process([uuid], "C", memory_mib, name, pid)

    def end_process(self, pid):
        """End a process, an MPS server or an MPS daemon, as if killed."""
        with locked(self.folder) as state:
            state.remove("process", pid=pid)

    def start_client(self, pipe_directory, percent=None, memory_mib=500, pid=None):
        """Start an MPS client; the daemon starts a server for it when there is none."""
        with locked(self.folder) as state:
            return Daemon.reach(state, pipe_directory).connect(state, percent, memory_mib, pid)

    def daemons(self):
        """The running MPS daemons by pipe directory."""
        state = self.state
        pipes = [Path(unquote(row.name)) for row in state.rows["process"] if row.kind == "D"]
        return {str(pipe): Daemon.reach(state, pipe) for pipe in pipes if (pipe / "control").exists()}

    def fault(self, what, number, kind, code=0):
        """Let the ``number``-th call from now on that ``what`` matches go wrong; see the package's docstring."""
        if kind not in KINDS or number < 1:
            raise ValueError(f"fault {kind!r} at call {number}: kinds are {', '.join(KINDS)}, calls count from 1")
        with locked(self.folder) as state:
            state.rows["fault"].append(Fault(what, number, kind, code))

    def forget_faults(self):
        """What was to go wrong and has not yet will not."""
        with locked(self.folder) as state:
            state.rows["fault"].clear()

    def calls(self):
        """All calls in order; ``result`` is a status code, or "hang", "kill_before", "kill_after"."""
        lines = (line.split("\t") for line in (self.folder / "calls").read_text().splitlines())
        return [
            Call(int(number), int(pid), name, int(gpu), change == "1", args, _status(result))
            for number, pid, name, gpu, change, args, result in lines
        ]

    def touched(self):
        """The GPUs that any state-changing call named."""
        return {call.gpu for call in self.calls() if call.change}

    def unprivileged(self):
        """From now on callers are not root."""
        with locked(self.folder) as state:
            state.privileged = 0

    def settle(self, gpu, how):
        """How a GPU takes changes: "idle"; a switch of MIG mode "held" (by a monitor) or "pass-through"; "leaked".

        Leaked: something that is no process holds it, so that nothing is destroyed, until it is reset.
        """
        with locked(self.folder) as state:
            state.rows["gpu"][gpu] = state.rows["gpu"][gpu]._replace(settles=how)

    def answer(self, gpu, how):
        """How a GPU's driver answers: "fully", "sparse" as under vGPU and in NVIDIA's mock, "counted", "late", "named".

        Sparse: a largest number of MIG devices also with MIG off, no profiles, no list of MPS clients, no MIG switch.
        Counted: instances are counted and not listed. Late: what other processes changed shows up to a second later.
        Named: MIG devices that are made again have the UUIDs of those before them.
        """
        with locked(self.folder) as state:
            state.rows["gpu"][gpu] = state.rows["gpu"][gpu]._replace(answers=how)

    def reset(self, gpu):
        """Reset a GPU; a busy one refuses."""
        with locked(self.folder) as state:
            reset(state, gpu)

    def reboot(self):
        """Reboot the node: processes and instances are gone, and from Hopper on so is MIG mode."""
        (self.folder / "boot_id").write_text(str(uuid.uuid4()))
        with locked(self.folder) as state:
            state.rows["process"].clear()
            for index, gpu in enumerate(state.rows["gpu"]):
                reset(state, index)
                if gpu.type in HOPPER:
                    state.rows["gpu"][index] = gpu._replace(mig=0, pending_mig=0)


def reset(state, gpu):
    """Reset a GPU: a pending MIG mode becomes the current one, and instances are lost."""
    if any(row.gpu == gpu for row in state.rows["process"]):
        raise BlockingIOError(f"GPU {gpu} is in use")
    state.remove("instance", gpu=gpu)
    state.remove("compute", gpu=gpu)
    row = state.rows["gpu"][gpu]
    settles = "idle" if row.settles == "leaked" else row.settles
    state.rows["gpu"][gpu] = row._replace(mig=row.pending_mig, settles=settles)


def _status(result):
    return int(result) if result.isdigit() else result
