"""The lease of a store: one server at a time works on its jobs.

The lease ends with the process that holds it, however it ends. On SQLite it is a lock on a file beside the database, on
PostgreSQL an advisory lock of a connection that is used for nothing else.
"""

import os
import zlib

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from provision import InputError
from provision.instances.files.lock import lock_file

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
