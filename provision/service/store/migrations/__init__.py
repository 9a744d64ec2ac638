"""The migrations of the store's tables, which Alembic runs."""
