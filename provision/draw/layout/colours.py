"""The colours and patterns by which drawings tell workloads apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

DARK, LIGHT = "#16191d", "#ffffff"

PALETTE = (
    ("#56b4e9", DARK),
    ("#e69f00", DARK),
    ("#009e73", DARK),
    ("#ffaabb", DARK),
    ("#0072b2", LIGHT),
    ("#eedd88", DARK),
    ("#882255", LIGHT),
    ("#99ddff", DARK),
    ("#b07aa1", DARK),
    ("#ee7733", DARK),
)
"""Pairs of fill and text colours, after Okabe and Ito, and Tol; colour-blind people can tell them apart too."""

PATTERNS = 5
"""The number of fill patterns, which tell workloads of the same colour apart; the first pattern is plain."""


class FillStyle(NamedTuple):
    """The fill and text colours and the pattern of a workload's boxes; ``pattern`` counts from 0, which is plain."""

    colour: str
    text: str
    pattern: int


def styles(names: Iterable[str]) -> dict[str, FillStyle]:
    """A FillStyle for every name, assigned in natural order, so that the same names always look the same."""
    ordered = sorted(names, key=lambda name: ([_natural(part) for part in re.split(r"(\d+)", name)], name))
    return {
        name: FillStyle(*PALETTE[index % len(PALETTE)], index // len(PALETTE) % PATTERNS)
        for index, name in enumerate(ordered)
    }


def _natural(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold())
