"""Rich on stdout."""

from typing import NoReturn

from rich.console import Console


class Output(Console):
    """A console whose reader may go away, as ``head`` does: Rich itself would exit as if the answer were no."""

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to the caller."""
        raise BrokenPipeError
