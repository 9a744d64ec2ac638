"""Creates the first tables: documents, jobs, uses, events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "documents",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
    )
    op.create_index("documents_by_name", "documents", ["kind", "name", "created_s"])
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("verb", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("instance", sa.String(200), nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("problem", sa.Text),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("started_s", sa.Float),
        sa.Column("ended_s", sa.Float),
        sa.Column("begun", sa.Integer, nullable=False),
    )
    op.create_index("jobs_by_time", "jobs", ["created_s"])
    op.create_index("jobs_by_status", "jobs", ["status"])
    op.create_table(
        "uses",
        sa.Column("job_id", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("role", sa.String(32), primary_key=True),
        sa.Column("digest", sa.String(64), sa.ForeignKey("documents.digest"), nullable=False),
    )
    op.create_index("uses_by_digest", "uses", ["digest"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
    )
    op.create_index("events_by_job", "events", ["job_id", "id"])


def downgrade() -> None:
    """Drop the tables."""
    for table in ("events", "uses", "jobs", "documents"):
        op.drop_table(table)
