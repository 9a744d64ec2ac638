"""The errors of the package: input that cannot be used, with a remedy in one line, and defects of methods.

Optional packages: the extras that install them, and one line where one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MOST_CHARACTERS = 1000


class InputError(ValueError):
    """Input that cannot be used; each problem has one line that names the place, the problem and the remedy. The
    command line prints the lines and exits with code 2. A message remains one line of bounded length without control
    characters, whatever it quotes from the input. ``lines`` has all lines.
    """

    def __init__(self, *messages: object) -> None:
        self.lines = tuple(map(_line, messages))
        super().__init__("\n".join(self.lines))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, ...], dict[str, object]]:
        """What is pickled: the lines, and notes that were added."""
        return type(self), self.lines, vars(self)


class UnsupportedError(InputError):
    """An instance or option that the method declares it cannot handle."""


class MethodError(RuntimeError):
    """A method returned a plan that the verifier rejects: a defect of the method."""


def _line(text: object) -> str:
    line = " ".join(str(text).split())
    if len(line) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        line = f"{line[:half]} ... {line[-half:]}"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


EXTRAS = {
    "dask": "dask",
    "distributed": "dask",
    "gymnasium": "rl",
    "kubernetes": "kubernetes",
    "matplotlib": "draw",
    "pandas": "pandas",
    "prometheus_client": "serve",
    "psycopg": "postgresql",
    "pyarrow": "parquet",
    "pynvml": "driver",
    "sqlalchemy": "serve",
    "starlette": "serve",
    "statsforecast": "forecast",
    "torch": "profile",
    "torchvision": "profile",
    "uvicorn": "serve",
}
"""The extra that installs each package, by the name under which the package is imported."""


@contextmanager
def optional(extra: str | None = None) -> Iterator[None]:
    """Context for imports of optional packages. Raises InputError if a package imported inside the block is not
    installed; the message has the command that installs it, or ``extra``, which installs more than this package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        needed = extra or EXTRAS[package]
        raise InputError(f"{package} is not installed; pip install 'gpu-provision[{needed}]'") from None
