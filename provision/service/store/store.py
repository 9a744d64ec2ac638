"""The store: documents by digest, jobs, events. Every method is one transaction and may be called from any thread."""

import json
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, NamedTuple

from sqlalchemy import Row, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from provision.service.messages.answers import ENDED
from provision.service.store.engine import digest_of, documents, events, jobs, opened, text_of, uses


class Document(NamedTuple):
    """A stored document: an instance, a plan or a result."""

    kind: str
    name: str
    content: Any


class Event(NamedTuple):
    """An event of a job; ``number`` increases from event to event, and ``created_s`` is in seconds since 1970."""

    number: int
    kind: str
    content: dict[str, Any]
    created_s: float


class Store:
    """A database of documents and jobs, given by SQLAlchemy's URL."""

    def __init__(self, url: str):
        self.engine = opened(url)
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
        digest = digest or digest_of(text)
        row = {"digest": digest, "kind": kind, "name": name[:200], "content": text, "created_s": time()}
        with self.engine.begin() as connection:
            connection.execute(self._new_document, row)
        return digest

    def document(self, digest: str, kind: str | None = None) -> Document | None:
        """The document of a digest; None if there is none, or if it is not of ``kind``."""
        with self.engine.connect() as connection:
            row = connection.execute(select(documents).where(documents.c.digest == digest)).first()
        if row is None or kind not in (None, row.kind):
            return None
        return Document(row.kind, row.name, json.loads(row.content))

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

    def jobs(self, most: int, before: str | None = None, instance: str | None = None) -> Sequence[Row[Any]]:
        """At most ``most`` jobs, latest first. If ``before`` is given, only jobs older than that job; if ``instance``
        is given, only jobs on instances of that name.
        """
        query = select(jobs).order_by(jobs.c.created_s.desc(), jobs.c.id.desc()).limit(most)
        if instance is not None:
            query = query.where(jobs.c.instance == instance)
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
        """Change the status of a job if its status is one of ``of``, and record the documents that it made; returns
        whether the status changed.
        """
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

    def events(self, id: str, after: int = 0, kind: str | None = None) -> list[Event]:
        """The events of a job with numbers above ``after``, in order; only events of ``kind`` if it is given."""
        query = select(events).where(events.c.job_id == id, events.c.id > after).order_by(events.c.id)
        with self.engine.connect() as connection:
            rows = connection.execute(query if kind is None else query.where(events.c.kind == kind)).all()
        return [Event(row.id, row.kind, json.loads(row.content), row.created_s) for row in rows]

    def collect(self, age_s: float) -> tuple[int, int]:
        """Delete jobs that ended more than ``age_s`` seconds ago, with their events, and documents of that age that no
        job uses.

        Returns the numbers of deleted jobs and documents.
        """
        limit = time() - age_s
        with self.engine.begin() as connection:
            old = jobs.c.status.in_(ENDED) & (jobs.c.ended_s < limit)
            ended = connection.execute(delete(jobs).where(old)).rowcount
            unused = documents.c.digest.not_in(select(uses.c.digest)) & (documents.c.created_s < limit)
            return ended, connection.execute(delete(documents).where(unused)).rowcount

    def counts(self) -> dict[str, int]:
        """The number of jobs by status."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(jobs.c.status, func.count()).group_by(jobs.c.status)).all()
        return {status: count for status, count in rows}


def _use(connection: Any, id: str, used: Mapping[str, str]) -> None:
    if used:
        connection.execute(insert(uses), [{"job_id": id, "role": role, "digest": one} for role, one in used.items()])


def _tell(connection: Any, id: str, kind: str, content: Any) -> None:
    row = {"job_id": id, "kind": kind, "content": text_of(content), "created_s": time()}
    connection.execute(insert(events), row)
