"""A stand-in for nvidia-cuda-mps-control: its commands (the "v2" interface) and quirks, without a daemon process.

As with the real program the exit status is 0 whenever the daemon could be reached, even if it rejected the command; the
reason is printed on stdout. `quit` waits for clients, and ends with 1 if it had to drop them.
"""

import os
import re
import sys
import time
from pathlib import Path

from driver.daemon import Daemon, RejectedError, UnreachableError
from driver.state import call, locked

CHANGES = ("-d", "start_", "set_", "shutdown_", "terminate_", "quit")


def get_server_list(daemon, state):
    return "\n".join(str(server["pid"]) for server in daemon.servers)


def get_server_status(daemon, state, server):
    daemon.server(server)
    return "ACTIVE"


def get_client_list(daemon, state, server):
    return "\n".join(str(client["pid"]) for client in daemon.server(server)["clients"])


def ps(daemon, state):
    rows = [
        f"{client['pid']:<9} {number:<5} {server['pid']:<9} {daemon.device[:18]:<18} 4026531836     python"
        for server in daemon.servers
        for number, client in enumerate(server["clients"])
    ]
    return "\n".join(["PID       ID    SERVER    DEVICE             NAMESPACE      COMMAND", *rows])


def start_server(daemon, state, flag, uid):
    if flag != "-uid":
        raise RejectedError("Unknown command")
    daemon.start_server(state, int(uid))


def shutdown_server(daemon, state, server, force=None):
    server = daemon.server(server)
    if server["clients"] and force != "-f":
        raise RejectedError(f"Server {server['pid']} has clients")
    daemon.drop(state, server)


def terminate_client(daemon, state, server, client):
    if client not in get_client_list(daemon, state, server).split():
        raise RejectedError(f"Client {client} not found")
    state.remove("process", pid=int(client))


def get_default_active_thread_percentage(daemon, state):
    return str(daemon.percent)


def set_default_active_thread_percentage(daemon, state, percent):
    daemon.percent = _percentage(percent)


def get_active_thread_percentage(daemon, state, server):
    return str(daemon.server(server)["percent"])


def set_active_thread_percentage(daemon, state, server, percent):
    daemon.server(server)["percent"] = _percentage(percent)


def get_default_device_pinned_mem_limit(daemon, state, device):
    return daemon.limits.get(device, "")


def set_default_device_pinned_mem_limit(daemon, state, device, limit):
    daemon.limits[device] = _limit(limit)


def get_device_pinned_mem_limit(daemon, state, server, device):
    return daemon.server(server)["limits"].get(device, "")


def set_device_pinned_mem_limit(daemon, state, server, device, limit):
    daemon.server(server)["limits"][device] = _limit(limit)


def quit_daemon(daemon, state, flag=None, seconds=None):
    daemon.quit(state)


COMMANDS = {
    name: command
    for name, command in globals().items()
    if name.startswith(("get_", "set_", "start_", "shutdown_", "terminate_"))
} | {"ps": ps, "quit": quit_daemon}


def answer(state, pipe, line):
    """(text, exit status) for a command."""
    name, *arguments = line.split()
    try:
        daemon = Daemon.reach(state, pipe)
        if daemon.denied:
            return "Permission denied", 1
        if name not in COMMANDS:
            raise RejectedError("Unknown command")
        text = COMMANDS[name](daemon, state, *arguments)
        daemon.save(state)
    except UnreachableError as error:
        return str(error), 1
    except (RejectedError, TypeError, ValueError) as error:
        return str(error), 0
    return text or "", 0


def start_daemon(state, pipe, environment):
    """(text, exit status) of starting a daemon."""
    try:
        Daemon.start(state, pipe, environment)
    except RejectedError as error:
        return str(error), 1
    return "", 0


def wait_for_clients(folder, pipe, line):
    """Return 0 when all clients have ended, 1 when the time that `quit -t` allows is over."""
    words = line.split()
    deadline = time.monotonic() + (float(words[2]) if "-t" in words else float("inf"))
    while _has_clients(folder, pipe):
        if time.monotonic() >= deadline:
            return 1
        time.sleep(0.02)
    return 0


def main(arguments, environment=os.environ, lines=None, kill=False):
    """Run the program on stdin, or on the given lines; the exit status. ``kill`` as for `call`."""
    folder = environment["NVML_STANDIN_FOLDER"]
    pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY", str(Path(folder) / "nvidia-mps"))

    def run(line, effect):
        name, *words = line.split()
        gpu = _gpu_of(folder, pipe, environment)
        given = {"change": name.startswith(CHANGES), "gpu": gpu, "arguments": " ".join([pipe, *words]), "kill": kill}
        text, status = call(folder, f"mps:{name}", effect, **given)
        if text:
            print(text, flush=True)
        return status

    if arguments == ["-d"]:
        return run("-d", lambda state: start_daemon(state, pipe, environment))
    if arguments:
        print("usage: nvidia-cuda-mps-control [-d]", file=sys.stderr)
        return 1
    status = 0
    for line in filter(str.strip, sys.stdin if lines is None else lines):
        forced = wait_for_clients(folder, pipe, line) if line.split()[0] == "quit" else 0
        status = max(status, forced, run(line, lambda state, line=line: answer(state, pipe, line)))
    return status


def _gpu_of(folder, pipe, environment):
    """The GPU that a daemon is for, or would be."""
    with locked(folder) as state:
        try:
            device = Daemon.reach(state, pipe).device
        except UnreachableError:
            device = environment.get("CUDA_VISIBLE_DEVICES", "")
        part = state.part(device)
    return part[0] if part else -1


def _has_clients(folder, pipe):
    with locked(folder) as state:
        try:
            return any(server["clients"] for server in Daemon.reach(state, pipe).servers)
        except UnreachableError:
            return False


def _percentage(text):
    percent = float(text)
    if not 0 < percent <= 100:
        raise RejectedError(f"Invalid active thread percentage {text}: it is above 0 and at most 100")
    return percent


def _limit(text):
    if not re.fullmatch(r"\d+[GM]", text):
        raise RejectedError(f"Invalid memory limit {text}: it is an integer followed by G or M")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
