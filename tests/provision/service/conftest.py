"""A PostgreSQL server of its own for the tests."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class PostgreSQL:
    """A server, as Debian's package has it, which can be stopped and started; ``url`` leads to it."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.data, self.log = folder / "data", folder / "log"
        self.options = f"-h 127.0.0.1 -p {port} -k {folder}"
        self.url = f"postgresql://tester@127.0.0.1:{port}/postgres"
        self._run("initdb", "-D", self.data, "-U", "tester", "-A", "trust", "--no-sync")

    def start(self):
        self._run("pg_ctl", "-D", self.data, "-o", self.options, "-l", self.log, "-w", "start")

    def stop(self):
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")

    def _run(self, program, *arguments):
        user = {"user": "postgres"} if os.geteuid() == 0 else {}  # the server refuses to run as root
        subprocess.run([PROGRAMS[-1] / program, *arguments], check=True, stdout=subprocess.DEVNULL, **user)


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server that runs."""
    if not PROGRAMS:
        pytest.skip("no PostgreSQL server in /usr/lib/postgresql; apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    made = PostgreSQL(folder)
    made.start()
    yield made
    made.stop()
    shutil.rmtree(folder)
