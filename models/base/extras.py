"""Optional packages: the extras that install them, and one line where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from provision.models.base.errors import InputError

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
def optional() -> Iterator[None]:
    """Context for imports of optional packages. Raises InputError if a package imported inside the block is not
    installed; the message has the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise InputError(f"{package} is not installed; pip install 'gpu-provision[{EXTRAS[package]}]'") from None
