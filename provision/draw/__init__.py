"""Plans, drawn: terminal, picture, page; and what sweeps, fits and replays found."""

from importlib import import_module

PICTURES = ("fit_plot", "latencies", "picture", "sweep", "trace", "training", "veltair")
"""Modules that draw with matplotlib; as ``draw.picture`` and so on they are imported when first used."""


def __getattr__(name):
    if name not in PICTURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
