"""Runs the migrations for Alembic, on the connection that the store has opened."""

from alembic import context

from provision.service.store.engine import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
