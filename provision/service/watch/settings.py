"""The settings of a server: address, store, token and limits."""

from dataclasses import dataclass
from ipaddress import ip_address

from provision import InputError
from provision.cluster.journal import Journal

MIB = 2**20
GIB = 1024 * MIB


@dataclass(frozen=True)
class Settings:
    """The settings of ``provision serve``.

    Attributes
    ----------
    host, port
        The address on which the server listens.
    db
        The URL of the store's database, as SQLAlchemy writes it.
    token
        The token that clients have to send; None asks for no token and is allowed only on a loopback address and
        without ``allow_apply``.
    names
        Further host names under which the server may be reached.
    tls_cert, tls_key
        The files of the certificate and of its key; None serves plain HTTP.
    workers, queue
        The number of worker processes, and the most jobs that may wait.
    body_mib, bodies_mib, workloads, job_s, memory_gib
        The limits: MiB of a request's body and of the bodies of all requests at work, workloads of an instance,
        seconds of a job, GiB of a job's process.
    keep_days
        The age in days at which ended jobs, and documents that only they use, are deleted; None keeps everything.
    allow_apply
        Whether plans may be put on this machine's GPUs.
    journal
        The file of ``provision watch`` whose decisions are shown; None shows none.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    db: str = "sqlite:///provision.db"
    token: str | None = None
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    workers: int = 1
    queue: int = 1000
    body_mib: int = 16
    bodies_mib: int = 64
    workloads: int = 20_000
    job_s: float = 3600.0
    memory_gib: float = 16.0
    keep_days: float | None = None
    allow_apply: bool = False
    journal: str | None = None

    def check(self) -> None:
        """Refuse settings that are out of range or unsafe.

        Raises
        ------
        InputError
            If a setting is out of range or unsafe, or the journal cannot be read; the message names the remedy.
        """
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port {self.port}: should be between 0 and 65535")
        for name in ("workers", "queue", "body_mib", "bodies_mib", "workloads", "job_s", "memory_gib"):
            if not getattr(self, name) > 0:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: should be above 0")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("--tls-cert and --tls-key belong together; give both")
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise InputError(f"the token has {len(self.token)} characters; take at least {LEAST_TOKEN}")
        if self.token is None and self.allow_apply:
            raise InputError("--allow-apply: every user of this machine could change its GPUs; give a token with "
                             "--token-file F or in PROVISION_TOKEN")
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"--host {self.host}: others reach this address; give a token with --token-file F or in "
                "PROVISION_TOKEN, or listen on 127.0.0.1"
            )
        if self.journal is not None:
            Journal(self.journal)

    @property
    def body_bytes(self) -> int:
        """The most bytes that a request's body may have."""
        return self.body_mib * MIB

    @property
    def bodies_bytes(self) -> int:
        """The most bytes of the bodies of all requests at work; one body is always taken."""
        return max(self.bodies_mib, self.body_mib) * MIB


LEAST_TOKEN = 16
"""The fewest characters that a token may have."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
