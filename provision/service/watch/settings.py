"""The settings of a server: address, store, token and limits."""

from ipaddress import ip_address

from provision import InputError
from provision.cluster.journal import Journal
from provision.models.base.arguments import local
from provision.models.base.fields import Flag, Record

TOKEN = "PROVISION_TOKEN"
"""The variable of the environment with the token."""
MIB = 2**20
GIB = 1024 * MIB


class Settings(Record):
    """The settings of ``provision serve``. The limits are MiB of a request's body and of the bodies of all requests at
    work, workloads of an instance, seconds of a job, GiB of a job's process. ``token`` is what clients have to send;
    None asks for none and is allowed only on a loopback address and without ``allow_apply``.
    """

    host: str = local("127.0.0.1", "H", "address (default: 127.0.0.1, this machine)")
    port: int = local(8765, "N", "")
    db: str = local("sqlite:///provision.db", "URL",
                    "sqlite:///FILE (default: provision.db here) or postgresql://USER@HOST/NAME")
    token: str | None = None
    names: tuple[str, ...] = local((), "H", "a further host name to answer to", "--name", action="append")
    tls_cert: str | None = local(None, "F", "certificate, for HTTPS")
    tls_key: str | None = local(None, "F", "its key")
    workers: int = local(1, "N", "jobs that run at once")
    queue: int = local(1000, "N", "jobs that may wait")
    body_mib: int = local(16, "N", "largest request")
    bodies_mib: int = local(64, "N", "all requests at work")
    workloads: int = local(20_000, "N", "of an instance")
    job_s: float = local(3600.0, "S", "seconds of a job", "--job-s")
    memory_gib: float = local(16.0, "G", "of a worker")
    keep_days: float | None = local(None, "D", "delete ended jobs that are older (default: keep)")
    allow_apply: Flag = local(False, None, "let clients put plans on this machine's GPUs")
    journal: str | None = local(None, "F", "show the decisions in this journal of provision watch")

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
