"""A Rich console that writes to stdout."""

from typing import NoReturn

from rich.console import Console


class Output(Console):
    """A console whose reader may stop reading, as ``head`` does. Rich's own console would then exit with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error, so that the caller can handle it."""
        raise BrokenPipeError
