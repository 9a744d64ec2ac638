"""Writes figures atomically, as PNG or SVG according to the suffix of the file name."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from provision.instances.files.files import FilePath, check_writable, write_bytes
from provision.models.base.errors import InputError, optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")


def check_picture(path: FilePath, force: bool = False) -> None:
    """Refuse a picture that cannot be written; it is called before the work for the picture begins. Raises InputError
    if the suffix is none of FORMATS, the file exists and ``force`` is not set, the file cannot be written, or
    matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"{path}: pictures are PNG or SVG; end the name in .png or .svg")
    check_writable(path, force)
    with optional():
        import_module("matplotlib")


def write_figure(figure: Figure, path: FilePath, force: bool = False) -> None:
    """Write a matplotlib figure; equal figures give equal files. Raises InputError in the cases of ``check_picture``.
    """
    check_picture(path, force)
    kind, drawn = Path(path).suffix[1:].lower(), BytesIO()
    with import_module("matplotlib").rc_context({"svg.hashsalt": "provision"}):
        figure.savefig(drawn, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    write_bytes(path, drawn.getvalue(), force)
