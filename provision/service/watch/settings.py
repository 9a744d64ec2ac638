"""How a server is run: address, store, token and limits."""

from dataclasses import dataclass
from ipaddress import ip_address

from provision import InputError

MIB = 2**20


@dataclass(frozen=True)
class Settings:
    """What ``provision serve`` is told.

    Attributes
    ----------
    host, port
        Where it listens.
    db
        SQLAlchemy's URL of the store.
    token
        What clients have to present; None lets everybody in who reaches a loopback address.
    names
        Further host names under which it may be reached.
    tls_cert, tls_key
        Files of the certificate and its key; None serves plain HTTP.
    workers, queue
        Processes that work on jobs, and jobs that may wait.
    body_mib, workloads, job_s, memory_gib
        The most that a request's body, an instance, the run of a job and its process may take.
    keep_days
        Age at which ended jobs and what only they use are deleted; None keeps everything.
    allow_apply
        Whether plans may be put on this machine's GPUs.
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
    workloads: int = 20_000
    job_s: float = 3600.0
    memory_gib: float = 16.0
    keep_days: float | None = None
    allow_apply: bool = False

    def check(self) -> None:
        """Refuse what is out of range or unsafe.

        Raises
        ------
        InputError
            Naming the option and the remedy.
        """
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port {self.port}: should be between 0 and 65535")
        for name in ("workers", "queue", "body_mib", "workloads", "job_s", "memory_gib"):
            if not getattr(self, name) > 0:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: should be above 0")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("--tls-cert and --tls-key belong together; give both")
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise InputError(f"the token has {len(self.token)} characters; take at least {LEAST_TOKEN}")
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"--host {self.host}: others reach this address; give a token with --token-file F or in "
                "PROVISION_TOKEN, or listen on 127.0.0.1"
            )

    @property
    def body_bytes(self) -> int:
        """The most that a request's body may take, in bytes."""
        return self.body_mib * MIB


LEAST_TOKEN = 16
"""Characters that a token has at least."""


def is_loopback(host: str) -> bool:
    """Whether an address is one that only this machine reaches."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
