"""The tables of the store. Times are in seconds since 1970; contents are canonical JSON."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

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
"""Instances, plans and results; documents with the same digest are stored once."""

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
"""The documents that a job was given or has made, by role: ``instance``, ``given`` (a plan), ``result``, ``plan``,
``plan-1`` and so on.
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
