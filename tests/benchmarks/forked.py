"""Scripts in processes of their own that need not load the package: each is forked from one that has."""

import os
import runpy
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

OURS = Path(__file__).parents[2]
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["provision.service.app"])  # as the service does, whose tests fork from the same process


def run(script, words, folder):
    """The completed process of a script with these arguments in a folder, as if Python were started for it."""
    out, err = folder / "stdout", folder / "stderr"
    process = FORKS.Process(target=_main, args=(str(script), words, folder, out, err))
    process.start()
    process.join()
    return subprocess.CompletedProcess([script, *words], process.exitcode, out.read_text(), err.read_text())


def _main(script, words, folder, *streams):
    os.chdir(folder)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    ours = {str(OURS / "tests"), str(OURS / "benchmarks")}
    sys.path[:] = [str(Path(script).parent), *(one for one in sys.path if not any(map(one.startswith, ours)))]
    sys.argv[:] = [script, *words]
    runpy.run_path(script, run_name="__main__")
