"""MIG-serving's slow algorithm (Tan et al. 2021): Monte Carlo tree search, customised.

A node is a vector of completion rates, an edge a GPU configuration, and a path from the root to a node at which all
workloads are complete is a deployment; the shortest path is sought. Customised means restricted: a node has few
children, the configurations with the highest scores, and a playout draws from equally few configurations at every GPU.
Two points are guessed: this number, and that children are chosen by UCT (Kocsis and Szepesvari 2006) on the mean length
of their paths.
"""

from __future__ import annotations

import math

import numpy as np

from provision.heuristics.mig_serving.configs import Config, Configs, needed
from provision.models.base.arrays import Floats
from provision.models.base.known import known
from provision.models.problem.search import Search

CANDIDATES = 10
"""The number of configurations that are tried from a node, and from which a playout draws."""
EXPLORATION = 1.0
"""The factor of UCT's exploration term, in GPUs."""


class _Node:
    """A node: its completion rates, the configuration that led to it, the number of its visits, and the total number of
    GPUs of the deployments found on these visits.
    """

    def __init__(self, completion: Floats, config: Config | None = None) -> None:
        self.completion, self.config = completion, config
        self.visits = self.gpus = 0
        self.children: list[_Node] = []

    def expand(self, configs: Configs) -> None:
        """Make the children of the node."""
        candidates = configs.best(self.completion, CANDIDATES)
        self.children = [_Node(self.completion + configs.given(config), config) for config in candidates]

    def promising(self) -> _Node:
        """The child to follow: a child that was not visited yet, otherwise the child with the lowest lower confidence
        bound.
        """
        return min(self.children, key=self._optimistic)

    def _optimistic(self, child: _Node) -> float:
        if not child.visits:
            return -math.inf
        return child.gpus / child.visits - EXPLORATION * math.sqrt(math.log(self.visits) / child.visits)


def search(configs: Configs, completion: Floats, playouts: int, control: Search,
           draw: np.random.Generator) -> list[Config]:
    """Find few configurations that complete all workloads; there are at most as many as the fast algorithm needs.

    Parameters
    ----------
    configs
        The GPU configurations.
    completion
        (workloads,), the completion rates at the root.
    playouts, control
        The most playouts, and the search, which limits the time.
    draw
        The generator of random numbers.
    """
    root, best = _Node(completion), configs.fill(completion)
    for _ in range(playouts):
        if not control.left_s:
            break
        path = _descend(root, configs)
        found = [known(node.config) for node in path[1:]] + _playout(configs, path[-1].completion, draw)
        best = min(best, found, key=len)
        for node in path:
            node.visits += 1
            node.gpus += len(found)
    return best


def _descend(root: _Node, configs: Configs) -> list[_Node]:
    """The path from the root to a node that was not visited before, or at which all workloads are complete."""
    path = [root]
    while path[-1].visits and needed(path[-1].completion).any():
        if not path[-1].children:
            path[-1].expand(configs)
        path.append(path[-1].promising())
    return path


def _playout(configs: Configs, completion: Floats, draw: np.random.Generator) -> list[Config]:
    """Configurations that complete all workloads; each is drawn from the configurations with the highest scores."""
    chosen = []
    while needed(completion).any():
        candidates = configs.best(completion, CANDIDATES)
        chosen.append(candidates[draw.integers(len(candidates))])
        completion = completion + configs.given(chosen[-1])
    return chosen
