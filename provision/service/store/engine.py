"""Opens the database of the store: SQLite with a write-ahead log, or PostgreSQL. Alembic brings its tables up to date.
"""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from provision import InputError

MIGRATIONS = Path(__file__).with_name("migrations")
BUSY_MS = 30_000
"""The most milliseconds that a writer of SQLite waits for another writer."""


def opened(url: str) -> Engine:
    """SQLAlchemy's engine for a store; the tables are created or migrated if necessary.

    Raises
    ------
    InputError
        If the URL cannot be used, or the database does not answer.
    """
    try:
        target = _driver(make_url(url))
        engine = create_engine(target, pool_pre_ping=True)
    except ImportError as error:
        raise InputError(f"--db {url}: {error.name} is not installed; pip install 'provision[postgresql]'") from None
    except ArgumentError as error:
        raise InputError(f"--db {url}: {error}; write sqlite:///FILE or postgresql://USER@HOST/NAME") from None
    if target.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _sqlite)
    try:
        migrate(engine)
    except SQLAlchemyError as error:
        where = target.render_as_string(hide_password=True)
        raise InputError(f"--db {where}: the database cannot be used: {getattr(error, 'orig', error)}") from None
    return engine


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
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={BUSY_MS}", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
