"""The tables of the store, the digests of its contents, and the connection to SQLite or PostgreSQL. Times are in
seconds since 1970; contents are canonical JSON.
"""

import json
import os
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from provision import InputError
from provision.instances.files.lock import lock_file
from provision.models.base.plain import finite


def text_of(content: Any) -> str:
    """The canonical JSON of plain content: sorted keys, no spaces, and null for numbers that are not finite."""
    return json.dumps(finite(content), sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


metadata = MetaData()

documents = Table(
    "documents",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", String(200), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_s", Float, nullable=False),
    Index("documents_by_name", "kind", "name", "created_s"),
)
"""Instances, plans, states and results; documents with the same digest are stored once."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("verb", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("instance", String(200), nullable=False),
    Column("request", Text, nullable=False),
    Column("problem", Text),
    Column("created_s", Float, nullable=False),
    Column("started_s", Float),
    Column("ended_s", Float),
    Column("begun", Integer, nullable=False),
    Index("jobs_by_time", "created_s"),
    Index("jobs_by_status", "status"),
)

uses = Table(
    "uses",
    metadata,
    Column("job_id", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("role", String(32), primary_key=True),
    Column("digest", String(64), ForeignKey("documents.digest"), nullable=False),
    Index("uses_by_digest", "digest"),
)
"""The documents that a job was given or has made, by role: ``instance``, ``given`` (a plan or a state), ``result``,
``plan``, ``plan-1`` and so on.
"""

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_s", Float, nullable=False),
    Index("events_by_job", "job_id", "id"),
)
"""The events of a job, in order: status, incumbent, progress."""

MIGRATIONS = Path(__file__).with_name("migrations")
BUSY_MS = 30_000
"""The most milliseconds that a writer of SQLite waits for another writer."""
POSTGRESQL = {"connect_timeout": 10, "tcp_user_timeout": 30_000}
"""How long PostgreSQL may be silent: seconds at the beginning, then milliseconds."""
FORMS = "write sqlite:///FILE or postgresql://USER@HOST/NAME"


def opened(url: str) -> Engine:
    """SQLAlchemy's engine for a store; the tables are created or migrated if necessary.

    Raises
    ------
    InputError
        If the URL cannot be used, or the database does not answer.
    """
    try:
        target = _driver(make_url(url))
        sqlite = target.get_backend_name() == "sqlite"
        engine = create_engine(target, pool_pre_ping=True, connect_args={} if sqlite else POSTGRESQL)
    except ImportError as error:
        missing = f"{error.name} is not installed; pip install 'gpu-provision[postgresql]'"
        raise InputError(f"--db {url}: {missing}") from None
    except ArgumentError as error:
        raise InputError(f"--db {url}: {error}; {FORMS}") from None
    where = target.render_as_string(hide_password=True)
    if sqlite:
        if not target.database or target.database == ":memory:" or target.database.startswith("file:"):
            raise InputError(f"--db {where}: names no file in which jobs can be kept; {FORMS}")
        _private(Path(target.database))
        event.listen(engine, "connect", _sqlite)
    try:
        migrate(engine)
        if sqlite:
            _refuse_damage(engine)
    except CommandError:
        engine.dispose()
        raise InputError(f"--db {where}: was written by a newer version; use that version, or another --db") from None
    except SQLAlchemyError as error:
        engine.dispose()
        raise InputError(f"--db {where}: the database cannot be used: {getattr(error, 'orig', error)}; mend it, bring "
                         "back a copy, or give another --db") from None
    return engine


def _private(path: Path) -> None:
    """Make a new file of SQLite readable for its owner alone; SQLite gives its other files the same permissions."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return  # it exists already, or SQLite tells why it cannot be made


def _refuse_damage(engine: Engine) -> None:
    """Let SQLite look for damage, so that it is told now rather than when a job meets it."""
    with engine.connect() as connection:
        if (told := connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()) != "ok":
            raise SQLAlchemyError(f"it is damaged: {told}")


def migrate(engine: Engine) -> None:
    """Bring the tables to the latest revision."""
    with engine.begin() as connection:
        command.upgrade(config(connection), "head")


def config(connection: Any) -> Config:
    """Alembic's configuration for migrations on an open connection."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def _driver(url: URL) -> URL:
    """The URL; if it is of PostgreSQL, it names the driver that the extra ``postgresql`` installs."""
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _sqlite(connection: Any, record: Any) -> None:
    """Set up a connection; ``synchronous=FULL`` keeps what was committed over a loss of power."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_MS}", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


KEY = zlib.crc32(b"provision.service")
"""The number of the advisory lock. Such locks are of one database, so that each store has its own."""


class Lease:
    """The lease of a store, which is taken at once.

    Raises
    ------
    InputError
        If another server has it, or its file cannot be opened.
    """

    def __init__(self, engine: Engine):
        self.engine = engine
        self.file: int | None = None
        self.connection: Connection | None = None
        self.where = engine.url.render_as_string(hide_password=True)
        sqlite = engine.dialect.name == "sqlite"
        if sqlite:
            self.file = lock_file(f"{engine.url.database}-lease", "--db", self.where)
        if self.file is None and (sqlite or not self.holds()):
            raise InputError(f"--db {self.where}: another server works on this store; stop it, or give another --db")

    def holds(self) -> bool:
        """Whether this server has the lease still; a lease that was lost with its connection is taken again if no other
        server has it.

        Raises
        ------
        SQLAlchemyError
            If the database does not answer.
        """
        if self.file is not None:
            return True
        try:
            if self.connection is None:
                self.connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                if not self.connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": KEY}):
                    self.close()
                    return False
            self.connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self.close()
            raise
        return True

    def close(self) -> None:
        """Give the lease back."""
        if self.file is not None:
            os.close(self.file)
            self.file = None
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.invalidate()  # which closes it, and so gives the lock back, rather than pooling it
            connection.close()
