"""The register of ways to share a slice: which kinds of performance data come with a content oracle."""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from provision.models.contents.oracle import OracleFactory

ORACLES = {
    "closed-network": "provision.models.contents.network.oracle",
    "gpulets": "provision.models.contents.turns.oracle",
    "igniter": "provision.models.contents.interference.oracle",
    "colocation": "provision.models.contents.interference.oracle",
}
"""The module of each kind's oracle; it is imported when first asked for, compiled kernels and all."""
GROUP = "provision.contents"
"""Entry points by which other packages add oracles for their kinds of performance data."""


@cache
def factory_of(kind: str) -> OracleFactory:
    """What makes the oracles for a kind of performance data."""
    if kind in ORACLES:
        return cast(OracleFactory, import_module(ORACLES[kind]).oracle)
    [found] = entry_points(group=GROUP, name=kind)
    return cast(OracleFactory, found.load())

