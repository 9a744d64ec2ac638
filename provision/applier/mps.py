"""MPS control daemons through the program ``nvidia-cuda-mps-control``, one daemon per CUDA device.

The program exits with 0 whenever it reached the daemon, also when that refused: replies are read, never trusted.
Source: NVIDIA MPS documentation, "nvidia-cuda-mps-control".
"""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from provision.instances.files.files import reason
from provision.models.base.errors import InputError

PROGRAM = "nvidia-cuda-mps-control"
LIMIT_S = 60.0
START_S = 5.0
QUIT_S = 10
NO_DAEMON = "Cannot find MPS control daemon"


class Daemon:
    """The control daemon of one device; it may or may not run.

    Parameters
    ----------
    folder
        Holds its pipe and log directories.
    """

    def __init__(self, folder: Path) -> None:
        self.pipe, self.log = folder / "pipe", folder / "log"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}

    def start(self, device: str) -> None:
        """Start it for a device and check that it answers; nothing is done when it runs already."""
        if self.runs():
            return
        for path in (self.pipe, self.log):
            path.mkdir(parents=True, exist_ok=True)
        self._run(["-d"], "", {"CUDA_MPS_LOG_DIRECTORY": str(self.log), "CUDA_VISIBLE_DEVICES": device})
        until = time.monotonic() + START_S
        while not self.runs():
            if time.monotonic() > until:
                raise InputError(f"{PROGRAM} -d: no daemon answers after {START_S:g} s; see {self.log}/control.log")
            time.sleep(0.02)

    def stop(self) -> None:
        """Let it and its servers end."""
        if self.runs():
            self._ask(f"quit -t {QUIT_S}")
        if self.runs():
            raise InputError(f"{PROGRAM}: the daemon at {self.pipe} does not quit; see {self.log}/control.log")
        # A directory that stays costs a vain question, no more.
        shutil.rmtree(self.pipe, ignore_errors=True)

    def runs(self) -> bool:
        """Whether it answers."""
        return self.servers() is not None

    def servers(self) -> list[int] | None:
        """Process ids of its servers; None when it does not run."""
        if not self.pipe.exists():
            return None
        try:
            reply = self._ask("get_server_list")
        except NoDaemonError:
            return None
        if not all(word.isdecimal() for word in reply.split()):
            raise InputError(f"{PROGRAM} get_server_list at {self.pipe}: {reply}; see {self.log}/control.log")
        return [int(word) for word in reply.split()]

    def _ask(self, command: str) -> str:
        return self._run([], command + "\n", {})

    def _run(self, arguments: Sequence[str], text: str, environment: dict[str, str]) -> str:
        """What the program prints."""
        told = " ".join([PROGRAM, *arguments, text.strip()]).strip()
        try:
            done = subprocess.run(
                [PROGRAM, *arguments],
                input=text,
                env=inherited() | self.environment | environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{told}: {reason(error)}; see {self.log}/control.log") from None
        output = f"{done.stdout}{done.stderr}".strip()
        if NO_DAEMON in output:
            raise NoDaemonError(f"{told}: {output}; start the daemon of {self.pipe}")
        if done.returncode:
            raise InputError(f"{told}: {output or f'exit code {done.returncode}'}; see {self.log}/control.log")
        return output


class NoDaemonError(InputError):
    """No control daemon answers at a pipe directory."""


def inherited() -> dict[str, str]:
    """This process's environment without settings of MPS, which are meant for something else."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
