"""A console of Rich on stdout."""

from typing import NoReturn

from rich.console import Console


class Output(Console):
    """A console whose reader may stop reading, as ``head`` does. Rich itself would then exit with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error, so that the caller handles it."""
        raise BrokenPipeError
