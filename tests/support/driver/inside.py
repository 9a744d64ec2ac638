"""The stand-in's MPS control program inside of the process that runs it: the same calls without a process for each."""

import contextlib
import io
import subprocess

from driver import mps
from driver.state import HangError

PROGRAM = "nvidia-cuda-mps-control"


def within(folder):
    """A ``subprocess.run`` that runs the MPS control program of a node in this process, and others as ever."""
    real = subprocess.run

    def run(command, **options):
        if command[0] != PROGRAM:
            return real(command, **options)
        environment = options["env"] | {"NVML_STANDIN_FOLDER": str(folder.absolute())}
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                lines = options.get("input", "").splitlines()
                status = mps.main(list(command[1:]), environment, lines, kill=True)
        except HangError:
            raise subprocess.TimeoutExpired(command, options["timeout"]) from None
        return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())

    return run
