"""Locks on files, each of which one process at a time has. The kernel releases a lock when its holder ends."""

import fcntl
import os
import stat

from provision.instances.files.files import reason
from provision.models.base.errors import InputError


def opened(path: str, inside: int | None = None) -> int:
    """The descriptor of a lock file, which is made if it does not exist. A relative path is one in the folder with the
    descriptor ``inside``. Raises OSError if it cannot be opened for writing, is a link or no regular file, or has other
    names too.
    """
    # Without O_NONBLOCK the opening of a named pipe could wait for ever.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600, dir_fd=inside)
    about = os.fstat(file)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return file
    os.close(file)
    raise PermissionError(0, f"{path} is no regular file, or has other names too (remove it)")


def taken(file: int) -> bool:
    """Take the lock on an open file; returns whether no other process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_file(path: str, option: str, value: object) -> int | None:
    """Lock a file, which is made if it does not exist; None if another has the lock. It ends with the process, or when
    the descriptor that is returned is closed. Errors name the option that led to the file, and its value. Raises
    InputError if the file cannot be opened as ``opened`` does.
    """
    try:
        file = opened(path)
    except OSError as error:
        raise InputError(f"{option} {value}: {path} should be a file that this user may write ({reason(error)}); "
                         f"remove it, or give another {option}") from None
    if taken(file):
        return file
    os.close(file)
    return None
