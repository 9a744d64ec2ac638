"""The store: documents by digest, jobs, the documents that they use, and their events, in SQLite or PostgreSQL.

Times are in seconds since 1970; contents are canonical JSON.
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from time import time
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from provision import InputError
from provision.instances.files.files import lock_file
from provision.models.base.fields import finite
from provision.service.messages import ENDED


def text_of(content: Any) -> str:
    """The canonical JSON of plain content: sorted keys, no spaces, and null for numbers that are not finite."""
    return json.dumps(finite(content), sort_keys=True, separators=(",", ":"))


metadata = MetaData()

documents = Table(
    "documents", metadata,
    Column("digest", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", String(200), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_s", Float, nullable=False),
    Index("documents_by_name", "kind", "name", "created_s"),
)
"""Instances, plans, states and results; documents with the same digest are stored once."""

jobs = Table(
    "jobs", metadata,
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
    "uses", metadata,
    Column("job_id", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("role", String(32), primary_key=True),
    Column("digest", String(64), ForeignKey("documents.digest"), nullable=False),
    Index("uses_by_digest", "digest"),
)
"""A job's documents by role: ``instance``, ``given`` (a plan or a state), ``result``, ``plan``, ``plan-1``."""

events = Table(
    "events", metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_s", Float, nullable=False),
    Index("events_by_job", "job_id", "id"),
)
"""The events of a job, in order: status, incumbent, progress."""

versions = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))
"""The revision of the tables, where Alembic keeps it: whoever changes them can migrate the stores that exist."""
REVISION = "0001"
BUSY_MS = 30_000
"""The most milliseconds that a writer of SQLite waits for another writer."""
POSTGRESQL = {"connect_timeout": 10, "tcp_user_timeout": 30_000}
"""How long PostgreSQL may be silent: seconds at the beginning, then milliseconds."""
FORMS = "write sqlite:///FILE or postgresql://USER@HOST/NAME"


def opened(url: str, known: bool = False) -> Engine:
    """SQLAlchemy's engine for a store; unless it is ``known``, it is looked at, and its tables are made. Raises
    InputError if the URL cannot be used, or the database does not answer.
    """
    try:
        target = make_url(url)
        if target.drivername in ("postgresql", "postgres"):  # the driver that the extra installs
            target = target.set(drivername="postgresql+psycopg")
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
        with suppress(OSError):  # it exists already, or SQLite tells why it cannot be made
            os.close(os.open(target.database, os.O_CREAT | os.O_EXCL, 0o600))  # SQLite's other files become alike
        event.listen(engine, "connect", _sqlite)
    try:
        if known or _revision(engine) == REVISION:
            return engine
        wrong = "was written by a newer version; use that version, or another --db"
    except SQLAlchemyError as error:
        wrong = (f"the database cannot be used: {getattr(error, 'orig', error)}; mend it, bring back a copy, or give "
                 "another --db")
    engine.dispose()
    raise InputError(f"--db {where}: {wrong}")


def _revision(engine: Engine) -> str:
    """The revision of the tables, which are made if there are none. SQLite tells damage now, not later."""
    with engine.begin() as connection:
        metadata.create_all(connection)
        sqlite = engine.dialect.name == "sqlite"
        if sqlite and (told := connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()) != "ok":
            raise SQLAlchemyError(f"it is damaged: {told}")
        found = connection.scalar(select(versions.c.version_num))
        if found is None:
            connection.execute(insert(versions), {"version_num": REVISION})
        return found or REVISION


def _sqlite(connection: Any, record: Any) -> None:
    """Set up a connection; ``synchronous=FULL`` keeps what was committed over a loss of power."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_MS}", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


KEY = zlib.crc32(b"provision.service")
"""The number of the advisory lock. Such locks are of one database, so that each store has its own."""


class Lease:
    """The lease of a store, taken at once. Raises InputError if another server has it, or its file cannot be opened."""

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
        server has it. Raises SQLAlchemyError if the database does not answer.
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


class Store:
    """A database of documents and jobs, given by SQLAlchemy's URL; ``known`` if this server has looked at it."""

    def __init__(self, url: str, known: bool = False):
        self.engine = opened(url, known)
        dialect = {"sqlite": sqlite, "postgresql": postgresql}[self.engine.dialect.name]
        new = dialect.insert(documents)
        self._new_document = new.on_conflict_do_update(
            index_elements=[documents.c.digest], set_={"created_s": new.excluded.created_s}
        )

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def keep(self, kind: str, name: str, content: Any, digest: str | None = None) -> str:
        """Store a document unless it is stored already; returns its digest.

        The digest is ``digest`` if given (an instance has its own digest), otherwise the SHA-256 of the text. If the
        document is stored already, its age counts from now on.
        """
        text = text_of(content)
        digest = digest or sha256(text.encode()).hexdigest()
        row = {"digest": digest, "kind": kind, "name": name[:200], "content": text, "created_s": time()}
        with self.engine.begin() as connection:
            connection.execute(self._new_document, row)
        return digest

    def document(self, digest: str, kind: str | None = None) -> Any:
        """The content of the document of a digest; None if there is none, or if it is not of ``kind``."""
        with self.engine.connect() as connection:
            row = connection.execute(select(documents).where(documents.c.digest == digest)).first()
        return None if row is None or kind not in (None, row.kind) else json.loads(row.content)

    def documents(self, kind: str, name: str | None = None, most: int = 100) -> Sequence[Row[Any]]:
        """At most ``most`` documents of a kind, and of a name if it is given, latest first."""
        query = select(documents).where(documents.c.kind == kind).order_by(documents.c.created_s.desc()).limit(most)
        with self.engine.connect() as connection:
            return connection.execute(query if name is None else query.where(documents.c.name == name)).all()

    def add_job(self, id: str, verb: str, instance: str, request: Any, used: Mapping[str, str]) -> None:
        """Add a queued job; ``used`` has the digests of the documents that it uses, by role."""
        row = {"id": id, "verb": verb, "instance": instance, "request": text_of(request), "created_s": time()}
        with self.engine.begin() as connection:
            connection.execute(insert(jobs), row | {"status": "queued", "begun": 0})
            _use(connection, id, used)
            _tell(connection, id, "status", {"status": "queued"})

    def job(self, id: str) -> Row[Any] | None:
        """The row of a job; None if there is no such job."""
        with self.engine.connect() as connection:
            return connection.execute(select(jobs).where(jobs.c.id == id)).first()

    def jobs(self, most: int, before: str | None = None) -> Sequence[Row[Any]]:
        """At most ``most`` jobs, latest first; if ``before`` is given, only jobs older than that job."""
        query = select(jobs).order_by(jobs.c.created_s.desc(), jobs.c.id.desc()).limit(most)
        if before is not None:
            then = select(jobs.c.created_s).where(jobs.c.id == before).scalar_subquery()
            query = query.where(or_(jobs.c.created_s < then, (jobs.c.created_s == then) & (jobs.c.id < before)))
        with self.engine.connect() as connection:
            return connection.execute(query).all()

    def used(self, ids: Sequence[str], role: str) -> dict[str, str]:
        """The digest of the document that each job uses in a role; jobs without such a document are left out."""
        query = select(uses.c.job_id, uses.c.digest).where(uses.c.job_id.in_(ids), uses.c.role == role)
        with self.engine.connect() as connection:
            return {row.job_id: row.digest for row in connection.execute(query)}

    def unfinished(self) -> list[str]:
        """Ids of the jobs that have not ended, oldest first."""
        query = select(jobs.c.id).where(jobs.c.status.not_in(ENDED)).order_by(jobs.c.created_s, jobs.c.id)
        with self.engine.connect() as connection:
            return list(connection.scalars(query))

    def move(self, id: str, status: str, *, of: Sequence[str], begin: bool = False, problem: Any = None,
             made: Mapping[str, str] | None = None) -> bool:
        """Change a job's status if it is one of ``of``, and record what it made; returns whether the status changed."""
        now = time()
        values: dict[str, Any] = {"status": status}
        values |= {"started_s": now} if status == "running" else {}
        values |= {"ended_s": now} if status in ENDED else {}
        values |= {"problem": text_of(problem)} if problem else {}
        values |= {"begun": jobs.c.begun + 1} if begin else {}
        with self.engine.begin() as connection:
            moved = connection.execute(update(jobs).where(jobs.c.id == id, jobs.c.status.in_(of)).values(**values))
            if moved.rowcount:
                _use(connection, id, made or {})
                _tell(connection, id, "status", {"status": status})
        return bool(moved.rowcount)

    def tell(self, id: str, kind: str, content: Any) -> None:
        """Add an event to a job."""
        with self.engine.begin() as connection:
            _tell(connection, id, kind, content)

    def events(self, id: str, after: int = 0, kind: str | None = None) -> Sequence[Row[Any]]:
        """The events of a job with an id above ``after``, in order; only those of ``kind`` if it is given."""
        query = select(events).where(events.c.job_id == id, events.c.id > after).order_by(events.c.id)
        with self.engine.connect() as connection:
            return connection.execute(query if kind is None else query.where(events.c.kind == kind)).all()

    def collect(self, age_s: float) -> tuple[int, int]:
        """Delete jobs that ended before ``age_s`` seconds, and old documents without a job; returns how many."""
        limit = time() - age_s
        with self.engine.begin() as connection:
            old = jobs.c.status.in_(ENDED) & (jobs.c.ended_s < limit)
            ended = connection.execute(delete(jobs).where(old)).rowcount
            unused = documents.c.digest.not_in(select(uses.c.digest)) & (documents.c.created_s < limit)
            return ended, connection.execute(delete(documents).where(unused)).rowcount


def _use(connection: Any, id: str, used: Mapping[str, str]) -> None:
    if used:
        connection.execute(insert(uses), [{"job_id": id, "role": role, "digest": one} for role, one in used.items()])


def _tell(connection: Any, id: str, kind: str, content: Any) -> None:
    row = {"job_id": id, "kind": kind, "content": text_of(content), "created_s": time()}
    connection.execute(insert(events), row)
