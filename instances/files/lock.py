"""A lock on a file that one process at a time has."""

from __future__ import annotations

import fcntl
import os

from provision.models.base.errors import InputError


def lock_file(path: str, option: str, value: object) -> int | None:
    """Lock a file, which is made if it does not exist; None if another has the lock. It ends with the process, or when
    the descriptor that is returned is closed. Errors name the option that led to the file, and its value.

    Raises
    ------
    InputError
        If the file cannot be opened for writing, or is a link.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"{option} {value}: {path} should be a file that this user may write ({error.strerror}); "
                         f"remove it, or give another {option}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
