"""A stdout that goes away, is full or was never there; and arguments that a shell left empty."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from provision.cli import main


@pytest.mark.parametrize("line", ["gpus --json", "gpus", "schema plan"])
def test_a_closed_pipe_is_no_failure(line):
    """A reader that goes away, such as ``head``, gets no traceback."""
    command = [sys.executable, "-m", "provision", *line.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait() == 0 and err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="writes to /dev/full")
@pytest.mark.parametrize("line", ["gpus --json", "gpus"])
def test_a_stdout_that_takes_nothing_gets_one_line(line):
    """A full disk is said in one line; a stdout that the caller closed is no failure."""
    command = f"{sys.executable} -m provision {line}"
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    assert full.returncode == 2
    assert full.stderr.startswith("error: ") and full.stderr.endswith("No space left on device\n")
    assert full.stderr.count("\n") == 1
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_an_empty_argument_is_refused(capsys):
    """What a shell makes of a variable that is not set names no file, and nothing is solved for it."""
    assert main(["solve", "parvagpu-s1", "--out", ""]) == 2
    assert "an argument is empty, after 'solve parvagpu-s1 --out'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["methods", "instances"])
def test_lists_stay_readable_when_piped(verb):
    """Long texts are folded, and none of their words is lost."""
    plain, listed = (subprocess.run([sys.executable, "-m", "provision", verb, *extra], capture_output=True, text=True,
                                    check=True).stdout for extra in ((), ("--json",)))
    assert max(map(len, plain.splitlines())) <= 130
    rows = json.loads(listed)
    words = {word for row in rows for word in f"{row['name']} {row.get('summary', row.get('source'))}".split()}
    assert not [word for word in words if word not in plain]
