"""Writing figures: PNG or SVG by the name's suffix, whole or not at all."""

import os
from pathlib import Path

from provision.instances.files import check_writable, reason
from provision.models.errors import InputError

FORMATS = (".png", ".svg")


def check_picture(path, force=False):
    """Complain before the work when a picture cannot be written.

    Raises
    ------
    InputError
        When the suffix is none of FORMATS, the file exists and ``force`` is not set, or it cannot be written.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"{path}: pictures are PNG or SVG; end the name in .png or .svg")
    check_writable(path, force)


def write_figure(figure, path, force=False):
    """Write a matplotlib figure under a temporary name, then rename it.

    Raises
    ------
    InputError
        As ``check_picture`` does.
    """
    check_picture(path, force)
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    kind = path.suffix[1:].lower()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            figure.savefig(file, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {reason(error)}; choose another name") from None
    finally:
        temporary.unlink(missing_ok=True)
