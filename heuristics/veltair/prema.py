"""PREMA, the temporal multitasking that VELTAIR compares with (Choi and Rhu, HPCA 2020, Algorithm 2).

Followed: one query at a time has the whole CPU. Waiting queries collect tokens by their slowdown so far; those with
no fewer than the most tokens, rounded down to a priority level, are candidates; of them the one with the shortest
estimated time left runs. Guessed: all priorities are equal, the levels are 0, 1, 3 and 9; queries may be changed
after every layer, at no cost (the paper's checkpoints cost little), in favour of PREMA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.models.base.compiled import compiled

if TYPE_CHECKING:
    from provision.heuristics.veltair.events import Log
    from provision.heuristics.veltair.profile import Catalogue
    from provision.models.base.arrays import Floats, Ints

TOKEN_LEVELS = np.array([0.0, 1.0, 3.0, 9.0])


@compiled
def play_prema(arrival_s: Floats, networks: Ints, catalogue: Catalogue, cores: int, most_late: int, log: Log) -> None:
    """Play all queries, or until more than ``most_late`` of them have missed their QoS; see ``veltair_events.play``."""
    until_s = catalogue.until_s[-1, cores - 1]
    layer = np.array([catalogue.first[network] for network in networks])
    line = np.empty(len(arrival_s), np.int64)
    present = upcoming = late = 0
    now_s = 0.0
    while upcoming < len(arrival_s) or present > 0:
        if present == 0:
            now_s = max(now_s, arrival_s[upcoming])
        while upcoming < len(arrival_s) and arrival_s[upcoming] <= now_s:
            line[present] = upcoming
            present, upcoming = present + 1, upcoming + 1
        at = chosen(line[:present], layer, now_s, arrival_s, networks, catalogue.first, until_s)
        query = line[at]
        layer_s = until_s[layer[query] + 1] - until_s[layer[query]]
        now_s += layer_s
        layer[query] += 1
        log.core_s[query] += cores * layer_s
        if layer[query] == catalogue.first[networks[query] + 1]:
            log.finish_s[query] = now_s
            late += now_s - arrival_s[query] > catalogue.qos_s[networks[query]]
            line[at : present - 1] = line[at + 1 : present].copy()
            present -= 1
        if late > most_late:
            return


@compiled
def chosen(
    line: Ints, layer: Ints, now_s: float, arrival_s: Floats, networks: Ints, first: Ints, until_s: Floats
) -> int:
    """Where the query that runs next stands in the line."""
    tokens, left_s = np.empty(len(line)), np.empty(len(line))
    for at, query in enumerate(line):
        begin_s, end_s = until_s[first[networks[query]]], until_s[first[networks[query] + 1]]
        worked_s = until_s[layer[query]] - begin_s
        tokens[at] = (now_s - arrival_s[query] - worked_s) / (end_s - begin_s)
        left_s[at] = end_s - until_s[layer[query]]
    fewest = TOKEN_LEVELS[max(np.searchsorted(TOKEN_LEVELS, tokens.max(), side="right") - 1, 0)]
    return int(np.argmin(np.where(tokens >= min(fewest, tokens.max()), left_s, np.inf)))
