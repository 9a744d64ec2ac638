"""Simulates PREMA, the temporal multitasking with which VELTAIR is compared (Choi and Rhu, HPCA 2020, Algorithm 2).

From the paper: one query at a time has the whole CPU. Waiting queries collect tokens by their slowdown so far. The
threshold is the highest number of tokens, rounded down to a priority level; queries with at least that many tokens are
candidates, and the candidate with the shortest estimated remaining time runs. The following is guessed: all priorities
are equal, and the levels are 0, 1, 3 and 9; the running query may change after every layer at no cost, which favours
PREMA (the paper's checkpoints cost little).

A query's tokens are its slowdown so far. In the algorithm as printed (``added``) they are the sum of its slowdowns at
all past choices, plus its priority: tokens then grow with the square of the waiting time, and soon nearly all waiting
queries are candidates.
"""

import numpy as np

from provision.heuristics.veltair.events import Log
from provision.heuristics.veltair.profile import Catalogue
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner

TOKEN_LEVELS = np.array([0.0, 1.0, 3.0, 9.0])
PRIORITY = 1.0


@compiled
def play_prema(
    arrival_s: Floats, networks: Ints, catalogue: Catalogue, cores: int, most_late: int, log: Log, added: bool = False
) -> None:
    """Simulate all queries, or stop when more than ``most_late`` of them have missed their QoS; see ``events.play``."""
    until_s = catalogue.until_s[-1, cores - 1]
    layer = np.array([catalogue.first[network] for network in networks])
    line = np.empty(len(arrival_s), np.int64)
    tokens = np.full(len(arrival_s), PRIORITY) if added else np.zeros(len(arrival_s))
    present = upcoming = late = 0
    now_s = 0.0
    while upcoming < len(arrival_s) or present > 0:
        if present == 0:
            now_s = max(now_s, arrival_s[upcoming])
        while upcoming < len(arrival_s) and arrival_s[upcoming] <= now_s:
            line[present] = upcoming
            present, upcoming = present + 1, upcoming + 1
        at = chosen(line[:present], layer, now_s, arrival_s, networks, catalogue.first, until_s, tokens, added)
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


@inner
def chosen(
    line: Ints, layer: Ints, now_s: float, arrival_s: Floats, networks: Ints, first: Ints, until_s: Floats,
    tokens: Floats, added: bool
) -> int:
    """The position in the line of the query that runs next; ``tokens`` (queries,) are updated."""
    left_s = np.empty(len(line))
    for at, query in enumerate(line):
        begin_s, end_s = until_s[first[networks[query]]], until_s[first[networks[query] + 1]]
        worked_s = until_s[layer[query]] - begin_s
        slowdown = (now_s - arrival_s[query] - worked_s) / (end_s - begin_s)
        tokens[query] = tokens[query] + slowdown if added else slowdown
        left_s[at] = end_s - until_s[layer[query]]
    held = tokens[line]
    fewest = TOKEN_LEVELS[max(np.searchsorted(TOKEN_LEVELS, held.max(), side="right") - 1, 0)]
    return int(np.argmin(np.where(held >= min(fewest, held.max()), left_s, np.inf)))
