"""The value of a place as a function of its SLO and of the requests/s that it carries.

The function is piecewise linear in both. It is given by its values at nodes: for the workloads of the same models and
traffic, some SLOs, and some rates (levels). A bound may use any such function that does not fall with the rate, and the
linear program of the bound has one row for each node.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.large.climb import PlaceValues
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import DUST, FORGIVEN


class Parts(NamedTuple):
    """Rows of nodes and their weights, both (entries, 4): a value is the weighted sum of the nodes' values."""

    rows: Ints
    weights: Floats


class ValueNodes:
    """The nodes.

    Parameters
    ----------
    kind
        (classes,) the number of the models and traffic of each class.
    slo_ms
        (classes,) their longest SLOs.
    most_rps
        (kinds,) the most requests/s of any place that count.
    slos, step, lowest
        The most SLOs that are nodes of a kind, the ratio between successive levels, and the lowest level above 0 as a
        fraction of the highest.

    Attributes
    ----------
    levels
        (kinds, levels) requests/s, ascending from 0.
    lower, above
        (classes,) the number of the node SLO at or below each class, and the weight of the next one. A node SLO has one
        row per level; node SLOs are numbered through all kinds.
    """

    def __init__(self, kind: Ints, slo_ms: Floats, most_rps: Floats, slos: int, step: float, lowest: float) -> None:
        many = int(np.ceil(np.log(1 / lowest) / np.log(step)))
        self.kind = kind
        self.levels = most_rps[:, None] * np.append(0.0, np.geomspace(lowest, 1, many + 1))
        self.lower, self.above, self.of_node = np.zeros(len(kind), int), np.zeros(len(kind)), list[int]()
        for one in range(len(most_rps)):
            of_kind = np.flatnonzero(kind == one)
            distinct = np.unique(slo_ms[of_kind])
            picked = np.linspace(0, len(distinct) - 1, min(slos, len(distinct))).round().astype(int)
            chosen = distinct[picked]
            at = np.clip(np.searchsorted(chosen, slo_ms[of_kind], "right") - 1, 0, max(len(chosen) - 2, 0))
            self.lower[of_kind] = len(self.of_node) + at
            if len(chosen) > 1:
                logs = np.log(chosen)
                self.above[of_kind] = (np.log(slo_ms[of_kind]) - logs[at]) / (logs[at + 1] - logs[at])
            self.of_node += [one] * len(chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of node SLOs of all kinds, and of levels."""
        return len(self.of_node), self.levels.shape[1]

    def parts(self, of_class: Ints, rps: Floats) -> Parts:
        """The Parts of the values of places, by the class of each place and the requests/s that it carries, both
        (places,).
        """
        lower, above = self.lower[of_class], self.above[of_class]
        levels = self.levels[self.kind[of_class]]
        rps = np.minimum(rps, levels[:, -1])
        at = np.clip((levels <= rps[:, None] * (1 + DUST)).sum(axis=1) - 1, 0, levels.shape[1] - 2)
        row = np.arange(len(at))
        over = np.clip((rps - levels[row, at]) / (levels[row, at + 1] - levels[row, at]), 0.0, 1.0)
        low, width = lower * levels.shape[1] + at, np.where(above > 0, levels.shape[1], 0)
        return Parts(np.stack([low, low + 1, low + width, low + 1 + width], axis=1),
                     np.stack([(1 - above) * (1 - over), (1 - above) * over, above * (1 - over), above * over], axis=1))

    def of_classes(self, values: Floats) -> PlaceValues:
        """The values of places of all classes at the levels, given the nodes' values (rows,)."""
        table = np.maximum.accumulate(values.reshape(self.shape), axis=1)
        table[:, 0] = 0.0
        upper = np.minimum(self.lower + 1, len(table) - 1)
        above = self.above[:, None]
        return PlaceValues(np.ascontiguousarray(self.levels[self.kind]),
                           np.ascontiguousarray(table[self.lower] * (1 - above) + table[upper] * above))


def in_steps(values: PlaceValues, most_rps: Floats, fine: int) -> PlaceValues:
    """Piecewise linear values as step functions with ``fine`` steps between two levels. Requests/s above ``most_rps``
    (classes,) do not count.
    """
    part = np.arange(fine) / fine
    rps = values.rps[:, :-1, None] + np.diff(values.rps)[:, :, None] * part
    value = values.value[:, :-1, None] + np.diff(values.value)[:, :, None] * part
    many = len(values.rps)
    rps = np.hstack([rps.reshape(many, -1)[:, 1:], values.rps[:, -1:], np.full((many, 1), np.inf)])
    value = np.hstack([value.reshape(many, -1)[:, 1:], values.value[:, -1:], np.zeros((many, 1))])
    least = np.where(rps <= most_rps[:, None] * (1 + FORGIVEN), value, 0.0).max(axis=1)
    return PlaceValues(rps, np.minimum(value, least[:, None]))


def kinds_of(keys: Sequence[object]) -> Ints:
    """The number of each key, in the order of first occurrence."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys])
