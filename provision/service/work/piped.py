"""Starts a process that the server talks to through a pipe."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any


def started(context: SpawnContext, target: Callable[..., None], *arguments: Any, name: str | None = None
            ) -> tuple[SpawnProcess, Connection]:
    """Start a daemon process; returns it and this end of its pipe. ``target`` gets the other end and ``arguments``.

    Raises
    ------
    OSError
        If the system starts no further process; nothing is left open then.
    """
    pipe, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
    try:
        process.start()
    except OSError:
        pipe.close()
        raise
    finally:
        theirs.close()
    return process, pipe
