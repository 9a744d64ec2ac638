"""The state directory's files for every CUDA device: MPS daemon, environments of replicas, logs.

    slices/DEVICE/pipe, log         directories of the device's MPS control daemon
    slices/DEVICE/replica-N.env     environment of replica N, quoted for a shell, for whoever starts its servers
    slices/DEVICE/replica-N.log     output of the servers that the applier started
"""

import shlex
import shutil
from pathlib import Path

from provision.applier.layout import COMMAND, RATE, ReplicaLayout, SliceLayout
from provision.applier.serving import servers
from provision.applier.serving.mps import PROGRAM, Daemon
from provision.applier.serving.servers import Running, Sessions
from provision.instances.files.files import FilePath, read_text
from provision.models.base.errors import InputError
from provision.models.base.kept import replacing
from provision.models.base.objects import known

PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LONGEST_SOCKET = 107
"""The most characters in the path of a Unix socket."""
LONGEST_DEVICE = len("MIG-00000000-0000-0000-0000-000000000000")


class Services:
    """The daemons and replicas of a state directory."""

    def __init__(self, state: FilePath) -> None:
        self.state = Path(state).resolve()
        self.root = self.state / "slices"

    def check_mps(self) -> None:
        """Raise InputError if MPS daemons cannot be started: the program is missing, or the paths of sockets would be
        too long.
        """
        if shutil.which(PROGRAM) is None:
            raise InputError(f"{PROGRAM}: not found; it comes with NVIDIA's driver; add its folder to PATH")
        spare = LONGEST_SOCKET - LONGEST_DEVICE - len(f"{self.root}//pipe/control")
        if spare < 0:
            raise InputError(f"{self.state}: {-spare} characters too long for sockets of MPS; use a shorter --state")

    def running(self) -> Running:
        """The running servers as {device: {replica: {number: session}}}."""
        return servers.running(self.state)

    def devices(self, running: Running) -> set[str]:
        """The devices that have, or once had, a daemon, servers or environment files."""
        folders = self.root.iterdir() if self.root.is_dir() else ()
        return running.keys() | {folder.name for folder in folders}

    def serves(self, device: str, running: Running) -> bool:
        """Whether a device has a daemon, servers or environment files."""
        return device in running or bool(_files(self.root / device)) or self.daemon(device).runs()

    def daemon(self, device: str) -> Daemon:
        """The MPS control daemon of a device."""
        return Daemon(self.root / device)

    def replicas(self, device: str, sessions: Sessions) -> tuple[ReplicaLayout | None, ...]:
        """The replicas of a device in the order of their numbers, with None for missing numbers.

        ``sessions`` are its running servers.
        """
        found = {number: _read(path) for number, path in _files(self.root / device).items()}
        numbers = range(max((*found, *sessions), default=-1) + 1)
        return tuple(
            ReplicaLayout(environment=found.get(number, {}), running=len(sessions.get(number, ())))
            if number in found or number in sessions
            else None
            for number in numbers
        )

    def sessions(self, device: str) -> Sessions:
        """The running servers of a device as {replica: {number: session}}."""
        return self.running().get(device, {})

    def add(self, device: str, number: int, piece: SliceLayout) -> None:
        """Write a replica's environment, and start its servers that are not running."""
        replica = known(piece.replicas[number])
        environment = replica.environment | {servers.DEVICE: device}
        if piece.mps:
            environment |= self.daemon(device).environment
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items())
        # The command of a server may hold passwords.
        with replacing(self._path(device, number), mode=0o600) as file:
            file.write(text.encode())
        log = self._path(device, number).with_suffix(".log")
        missing = set(range(replica.running)) - set(self.sessions(device).get(number, {}))
        started = [
            servers.start(self.state, environment[COMMAND], environment, number, process, log) for process in missing
        ]
        servers.watch(started, log)

    def remove(self, device: str, number: int) -> None:
        """Stop a replica's servers and remove its environment file. Its log stays."""
        servers.stop(self.sessions(device).get(number, {}).values())
        self._path(device, number).unlink(missing_ok=True)

    def clear(self, device: str) -> None:
        """Remove everything of a device except its logs."""
        for number, replica in enumerate(self.replicas(device, self.sessions(device))):
            if replica:
                self.remove(device, number)
        self.daemon(device).stop()

    def _path(self, device: str, number: int) -> Path:
        return self.root / device / f"replica-{number}.env"


def _files(folder: Path) -> dict[int, Path]:
    """Environment files by the number of their replica."""
    named = ((path.stem.removeprefix("replica-"), path) for path in folder.glob("replica-*.env"))
    return {int(number): path for number, path in named if number.isdecimal()}


def _read(path: Path) -> dict[str, str]:
    text = read_text(path)
    try:
        pairs = dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)
        float(pairs[RATE])
    except (KeyError, ValueError):
        raise InputError(f"{path}: {RATE} is no number: changed by hand? Remove the file and apply again") from None
    return {name: value for name, value in pairs.items() if name and name not in (servers.DEVICE, PIPE)}
