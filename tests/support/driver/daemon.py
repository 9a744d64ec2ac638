"""An MPS control daemon: a row of the node's state, a file in its pipe directory, servers and clients on the GPU.

Servers and clients are processes of the state, so that a MIG device cannot be destroyed under them. Defaults hold for
servers started later, a server's settings for clients started later. A server outlives its clients.
"""

import json
import re
from pathlib import Path
from urllib.parse import quote

SERVER_MIB = 60
MOST_CLIENTS = 48


class RejectedError(Exception):
    """A command that the daemon refuses; the text is its answer."""


class UnreachableError(Exception):
    """There is no daemon at the pipe directory."""


class Daemon:
    """A daemon; ``servers`` are those that run, each a dict of pid, uid, percent, limits and clients."""

    def __init__(self, pipe, pid, device, percent=100.0, limits=None, servers=(), denied=False):
        self.pipe, self.pid, self.device, self.denied = str(pipe), pid, device, denied
        self.percent, self.limits, self.servers = percent, limits or {}, list(servers)

    @classmethod
    def start(cls, state, pipe, environment):
        """Start a daemon for CUDA_VISIBLE_DEVICES, which it does not check."""
        if _runs(state, pipe):
            raise RejectedError("An instance of this daemon is already running")
        for folder in (pipe, environment.get("CUDA_MPS_LOG_DIRECTORY", pipe)):
            Path(folder).mkdir(parents=True, exist_ok=True)
        daemon = cls(
            pipe,
            pid=state.add_process([], "D", 0, quote(str(pipe))),
            device=environment.get("CUDA_VISIBLE_DEVICES", ""),
            percent=float(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100)),
            limits=dict(re.findall(r"([^=,]+)=([^,]+)", environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))),
        )
        (Path(pipe) / "nvidia-cuda-mps-control.pid").write_text(str(daemon.pid))
        (Path(environment.get("CUDA_MPS_LOG_DIRECTORY", pipe)) / "control.log").touch()
        daemon._write()

    @classmethod
    def reach(cls, state, pipe):
        """The daemon at a pipe directory, without the servers and clients that have ended."""
        if not _runs(state, pipe):
            raise UnreachableError("Cannot find MPS control daemon process")
        daemon = cls(pipe, **json.loads((Path(pipe) / "control").read_text()))
        daemon._forget_ended(state)
        return daemon

    def save(self, state):
        """Write the daemon's file, unless it has quit."""
        if _runs(state, self.pipe):
            self._forget_ended(state)
            self._write()

    def _write(self):
        kept = {name: value for name, value in vars(self).items() if name != "pipe"}
        (Path(self.pipe) / "control").write_text(json.dumps(kept))

    def server(self, pid):
        """The server with a process id."""
        for server in self.servers:
            if server["pid"] == int(pid):
                return server
        raise RejectedError(f"Server {pid} not found")

    def start_server(self, state, uid):
        """Start a server for a user; one of another user makes way when it has no clients."""
        for server in self.servers:
            if server["uid"] == uid:
                return server
            if server["clients"]:
                raise RejectedError(f"Server {server['pid']} of user {server['uid']} has clients")
            self.drop(state, server)
        pid = self._add_process(state, "C", SERVER_MIB, "nvidia-cuda-mps-server")
        server = {"pid": pid, "uid": uid, "percent": self.percent, "limits": dict(self.limits), "clients": []}
        self.servers = [server]
        return server

    def connect(self, state, percent=None, memory_mib=500, pid=None):
        """Start a client process; it may ask for less than its server allows, not for more."""
        server = self.start_server(state, uid=0)
        if len(server["clients"]) == MOST_CLIENTS:
            raise RejectedError("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED")
        pid = self._add_process(state, "M+C", memory_mib, "python", pid)
        granted = min(percent or server["percent"], server["percent"])
        server["clients"].append({"pid": pid, "percent": granted, "limits": dict(server["limits"])})
        self.save(state)
        return pid

    def drop(self, state, server):
        """End a server and its clients."""
        for pid in (server["pid"], *(client["pid"] for client in server["clients"])):
            state.remove("process", pid=pid)
        self.servers.remove(server)

    def quit(self, state):
        """End everything; settings are lost."""
        for server in list(self.servers):
            self.drop(state, server)
        state.remove("process", pid=self.pid)
        for name in ("control", "nvidia-cuda-mps-control.pid"):
            (Path(self.pipe) / name).unlink()

    def _add_process(self, state, *fields):
        """A process on the devices that the daemon sees: without CUDA_VISIBLE_DEVICES all GPUs not in MIG mode."""
        gpus = [gpu.uuid for gpu in state.rows["gpu"] if not gpu.mig]
        try:
            return state.add_process(self.device.split(",") if self.device else gpus, *fields)
        except LookupError as error:
            raise RejectedError(f"Failed to start: {error.args[0]}") from None

    def _forget_ended(self, state):
        alive = {process.pid for process in state.rows["process"]}
        self.servers = [server for server in self.servers if server["pid"] in alive]
        for server in self.servers:
            server["clients"] = [client for client in server["clients"] if client["pid"] in alive]


def _runs(state, pipe):
    """Whether a daemon lives that can be reached: its process and its pipe are there."""
    lives = any(row.kind == "D" and row.name == quote(str(pipe)) for row in state.rows["process"])
    return lives and (Path(pipe) / "control").exists()
