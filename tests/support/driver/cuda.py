"""A program that uses CUDA and nothing else: it occupies its device until it is ended.

Like a CUDA program it obeys its environment: CUDA_VISIBLE_DEVICES names the device, and it becomes a client of the MPS
daemon at CUDA_MPS_PIPE_DIRECTORY, within CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; without a daemon it silently runs alone.
"""

import os
import signal
import sys

from driver.daemon import Daemon, RejectedError, UnreachableError
from driver.state import locked


def join(state, environment, pid):
    """Put the process on its device, through MPS or alone."""
    device, percent = environment.get("CUDA_VISIBLE_DEVICES", "0"), environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    try:
        daemon = Daemon.reach(state, environment.get("CUDA_MPS_PIPE_DIRECTORY", ""))
    except UnreachableError:
        state.add_process([device], "C", 500, "cuda-program", pid)
        return
    if daemon.device and device not in daemon.device.split(","):
        raise RejectedError(f"CUDA_ERROR_NO_DEVICE: the daemon serves {daemon.device}, not {device}")
    daemon.connect(state, float(percent) if percent else None, pid=pid)


def main():
    """Join and wait for the end."""
    try:
        with locked(os.environ["NVML_STANDIN_FOLDER"]) as state:
            join(state, os.environ, os.getpid())
    except (LookupError, RejectedError) as error:
        sys.exit(str(error))
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
