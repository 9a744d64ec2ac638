"""Controls MPS daemons through the program ``nvidia-cuda-mps-control``, one daemon per CUDA device.

The program exits with 0 whenever it reached the daemon, even if the daemon refused. So its replies are checked. Source:
NVIDIA MPS documentation, "nvidia-cuda-mps-control".
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from provision.applier.serving.processes import processes, signalled
from provision.instances.files.files import reason
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError

PROGRAM = "nvidia-cuda-mps-control"
NAMES = "nvidia-cuda-mps"
"""The names of the daemon and its servers begin with this text. Linux keeps the first 15 characters of a name."""
LIMIT_S = 60.0
"""The seconds that the program may take to start or to end a daemon."""
ASK_S = 10.0
"""The seconds that a daemon may take to answer. A healthy daemon answers at once."""
START_S = 5.0
QUIT_S = 10
END_S = 5.0
"""The seconds that a killed daemon may take to end."""
NO_DAEMON, DENIED = "Cannot find MPS control daemon", "Permission denied"


class Daemon:
    """The MPS control daemon of one device. It may or may not be running.

    Parameters
    ----------
    folder
        The folder of its pipe and log directories.
    """

    def __init__(self, folder: Path) -> None:
        self.pipe, self.log = folder / "pipe", folder / "log"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which clients find the daemon."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}

    def start(self, device: str) -> None:
        """Start the daemon for a device, and check that it answers. If it runs already, do nothing."""
        if self.runs():
            return
        for path in (self.pipe, self.log):
            path.mkdir(parents=True, exist_ok=True)
        self._run(["-d"], "", {"CUDA_MPS_LOG_DIRECTORY": str(self.log), "CUDA_VISIBLE_DEVICES": device}, LIMIT_S)
        until = Deadline(START_S)
        while not self.runs():
            if until.over:
                raise InputError(f"{PROGRAM} -d: no daemon answers after {START_S:g} s; see {self.log}/control.log")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the daemon and its servers; if it does not answer, kill them."""
        try:
            if self.runs():
                self._run([], f"quit -t {QUIT_S}\n", {}, LIMIT_S)
            if self.runs():
                raise InputError(f"{PROGRAM}: the daemon at {self.pipe} does not quit; see {self.log}/control.log")
        except HungError:
            self._kill()
        # A pipe directory that remains does no harm: a later call finds no daemon there.
        shutil.rmtree(self.pipe, ignore_errors=True)

    def _kill(self) -> None:
        """Kill the daemon and its servers."""
        until = Deadline(END_S)
        while pids := self._processes():
            for pid in pids:
                signalled(pid, signal.SIGKILL)
            if until.over:
                raise InputError(f"{PROGRAM}: process {pids[0]} at {self.pipe} hangs and cannot be killed; reboot")
            time.sleep(0.02)

    def _processes(self) -> list[int]:
        """The process ids of the daemon and its servers, found by their names and their pipe directory."""
        mark = f"CUDA_MPS_PIPE_DIRECTORY={self.pipe}".encode()
        return [one.pid for one in processes() if mark in one.lines and one.name.startswith(NAMES)]

    def runs(self) -> bool:
        """Whether the daemon answers."""
        return self.servers() is not None

    def looked_at(self) -> tuple[list[int] | None, str | None]:
        """The process ids of the daemon's servers (None if the daemon does not run), and what is wrong with the daemon
        (None if nothing).
        """
        try:
            return self.servers(), None
        except DeniedError as error:
            return [], str(error)
        except HungError as error:
            return self._processes(), str(error)

    def servers(self) -> list[int] | None:
        """The process ids of the daemon's servers; None if the daemon does not run."""
        try:
            if not self.pipe.exists():
                return None
        except PermissionError:
            raise DeniedError(self._denied()) from None
        try:
            reply = self._run([], "get_server_list\n", {}, ASK_S)
        except NoDaemonError:
            return None
        if not all(word.isdecimal() for word in reply.split()):
            raise InputError(f"{PROGRAM} get_server_list at {self.pipe}: {reply}; see {self.log}/control.log")
        return [int(word) for word in reply.split()]

    def _denied(self) -> str:
        return f"the MPS daemon at {self.pipe} is another user's; run as that user or as root"

    def _run(self, arguments: Sequence[str], text: str, environment: dict[str, str], limit_s: float) -> str:
        """Run the program and return its output; raise an error if it fails or takes longer than ``limit_s``."""
        told = " ".join([PROGRAM, *arguments, text.strip()]).strip()
        try:
            done = subprocess.run(
                [PROGRAM, *arguments],
                input=text,
                env=inherited() | self.environment | environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HungError(f"{told}: no answer within {limit_s:g} s; see {self.log}/control.log") from None
        except OSError as error:
            raise InputError(f"{told}: {reason(error)}; see {self.log}/control.log") from None
        output = f"{done.stdout}{done.stderr}".strip()
        if NO_DAEMON in output:
            raise NoDaemonError(f"{told}: {output}; start the daemon of {self.pipe}")
        if DENIED in output:
            raise DeniedError(self._denied())
        if done.returncode:
            raise InputError(f"{told}: {output or f'exit code {done.returncode}'}; see {self.log}/control.log")
        return output


class NoDaemonError(InputError):
    """Raised when no control daemon listens at a pipe directory."""


class HungError(InputError):
    """Raised when a control daemon does not answer."""


class DeniedError(InputError):
    """Raised when a control daemon belongs to another user."""


def inherited() -> dict[str, str]:
    """The environment of this process without its MPS settings, which are for other daemons."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
