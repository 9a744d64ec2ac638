"""The GPU configurations of MIG-serving (a partition with a workload in every MIG instance), and their scores.

Tan et al. 2021 ("Serving DNN Models with Multi-Instance GPUs: A Case of the Reconfigurable Machine
Scheduling Problem"). The *utility* of a configuration for a workload is the fraction of the workload's rate that it
carries; the *completion rate* of a workload is the sum of its utilities over all GPUs so far. The score of a
configuration is

    sum over workloads of (1 - completion rate) * utility.

A configuration mixes at most two workloads. Since the score is a sum over instances, two workloads can divide a
partition with the best score so that all instances of one size go to the same workload. Therefore not all pairs of
workloads are tried, but all divisions of a partition's sizes into two groups; each group gets the workload with the
highest score on it.

The common parts of methods for one GPU type with MIG and without MPS: their features and their outcome.

MIG-serving's fast algorithm (Tan et al. 2021): it chooses the GPU configuration with the highest score again and
again. From the public description: the score, at most two workloads on a GPU, one whole GPU after the other, and MIG
instances with one process each (MIG-serving does not use MPS). The following is guessed, as the description does not
mention it:

- utilities count in full, even beyond the rate that a workload still needs; therefore the first GPUs of workloads with
  low rates have far more instances than they need, as ParvaGPU (SC 2024, section IV-B) observes of MIG-serving;
- partitions are those to which no instance can be added; instances that no workload needs are left out;
- an instance has the batch size with the highest throughput inside the latency budget;
- nothing is repacked at the end.

MIG-serving's slow algorithm (Tan et al. 2021): Monte Carlo tree search, customised.

A node is a vector of completion rates, an edge a GPU configuration, and a path from the root to a node at which all
workloads are complete is a deployment; the shortest path is sought. Customised means restricted: a node has few
children, the configurations with the highest scores, and a playout draws from equally few configurations at every GPU.
Two points are guessed: this number, and that children are chosen by UCT (Kocsis and Szepesvari 2006) on the mean length
of their paths.

MIG-serving's two phases (Tan et al. 2021): the fast algorithm, then a genetic algorithm on its result.

A deployment is a chromosome, a GPU configuration a gene. Mutation exchanges workloads between instances of equal size,
which changes no completion rate but can mix more than two workloads on a GPU. Crossover removes some GPUs and completes
the deployment with the slow algorithm (`provision.heuristics.rivals.mig_serving`). Parents stay in the population with
their offspring, so that the best deployment is never lost. Three numbers are guessed: the size of the population, the
number of GPUs removed (any number up to half), and the number of exchanges (as many as there are GPUs).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, best_segments, partitions_of
from provision.models.base.arrays import Floats, Ints
from provision.models.base.objects import known
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

SLACK = 1e-10
"""The fraction of a workload's rate below which a rest does not require one more instance."""

Config = tuple[tuple[int, int], ...]
"""A GPU configuration: the slice type and the workload of every instance."""
FAST = "mig-serving-fast"
CANDIDATES = 10
"""The number of configurations that are tried from a node, and from which a playout draws."""
EXPLORATION = 1.0
"""The factor of UCT's exploration term, in GPUs."""
SLOW = "mig-serving-slow"
POPULATION = 5
"""The number of deployments that are kept after a round."""


class Configs:
    """The GPU configurations of one fleet entry, tuples of (slice type, workload).

    ``utility`` is (workloads, slice types): the fraction of the rate that one instance carries, 1 for workloads without
    requests.
    """

    def __init__(self, instance: Instance, segments: Segments) -> None:
        rate = np.array([instance.planned_rps(one) for one in instance.workloads])[:, None]
        throughput = segments.throughput_rps
        self.utility = np.where(rate > 0, throughput / np.where(rate > 0, rate, 1), throughput > 0)
        splits = [split for slots in partitions_of(instance, segments).slots for split in _splits(slots)]
        self._first, self._second = np.array(splits).transpose(1, 0, 2)

    def given(self, config: Config) -> Floats:
        """(workloads,), the utility of a configuration for every workload."""
        found = np.zeros(len(self.utility))
        for slice_type, workload in config:
            found[workload] += self.utility[workload, slice_type]
        return found

    def best(self, completion: Floats, most: int = 1) -> list[Config]:
        """At most ``most`` configurations, highest score first; each is the best for one division of a partition's
        sizes.
        """
        gains = needed(completion)[:, None] * self.utility
        first, second = gains @ self._first.T, gains @ self._second.T
        order = np.argsort(-(first.max(axis=0) + second.max(axis=0)), kind="stable")
        owners = zip(first.argmax(axis=0)[order], second.argmax(axis=0)[order], order, strict=True)
        distinct = dict.fromkeys(
            self._held(gains, self._first[split], one) + self._held(gains, self._second[split], other)
            for one, other, split in itertools.islice(owners, None if most > 1 else 1)
        )
        return list(itertools.islice(distinct, most))

    def fill(self, completion: Floats) -> list[Config]:
        """Configurations that complete all workloads: the configuration with the highest score is chosen again and
        again.
        """
        completion, chosen = completion.copy(), []
        while needed(completion).any():
            chosen += self.best(completion)
            completion += self.given(chosen[-1])
        return chosen

    def _held(self, gains: Floats, slots: Ints, workload: int) -> Config:
        """The pairs (slice type, workload) for all MIG instances in ``slots`` that would raise the workload's
        completion rate. ``slots`` counts instances by slice type.
        """
        return tuple(
            (int(slice_type), int(workload))
            for slice_type in np.flatnonzero((slots > 0) & (gains[workload] > 0)) for _ in range(slots[slice_type])
        )


def needed(completion: Floats) -> Floats:
    """(workloads,), the fraction of each rate that is still to be carried."""
    left = 1 - completion
    return np.where(left > SLACK, left, 0.0)


def _splits(slots: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield all divisions of a partition's sizes into two groups, each once."""
    slice_types = np.flatnonzero(slots)
    for taken in itertools.product((True, False), repeat=len(slice_types) - 1):
        first = slots.copy()
        first[slice_types[1:][~np.array(taken, bool)]] = 0
        yield first, slots - first


FEATURES = frozenset({"limited_counts", "with_mig", "without_mps", "isolated_data"})
"""The features of instances that these methods can handle: one GPU type with MIG, any performance data for isolated
slices.
"""


def planned(instance: Instance, control: Search, name: str,
            deploy: Callable[[Segments], tuple[Segments, Sequence[Config], Termination]]) -> Outcome:
    """The Outcome of a method that deploys workloads on MIG instances with one process each.

    Parameters
    ----------
    instance, control
        The instance and the search.
    name
        The name of the method.
    deploy
        The function that deploys: given the Segments, it returns the Segments that it used, the GPUs as tuples of
        (slice type, workload), and the termination.
    """
    segments = best_segments(instance, max_processes=1)
    refused = proved_infeasible(instance, segments)
    if refused:
        return refused
    build_seconds = control.elapsed_s
    segments, deployment, termination = deploy(segments)
    limit = instance.fleet[0].count
    if limit is None or len(deployment) <= limit:
        plan, reason = assemble(instance, segments, [Layout(0, config) for config in deployment], name), ""
    else:
        plan, reason = None, f"{name} needs {len(deployment)} GPUs and the fleet has {limit}"
    return Outcome("feasible" if plan else "unknown", termination, plan, reason=reason, build_seconds=build_seconds)


def solve_fast(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with MIG-serving's fast algorithm."""

    def deploy(segments: Segments) -> tuple[Segments, list[Config], Termination]:
        return segments, Configs(instance, segments).fill(np.zeros(len(instance.workloads))), "completed"

    return planned(instance, control, FAST, deploy)


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


def solve_slow(instance: Instance, control: Search) -> Outcome:
    """Search until the time is over or ``patience`` rounds found nothing better."""
    def deploy(segments: Segments) -> tuple[Segments, list[Config], Termination]:
        evolution = _Evolution(instance, Configs(instance, segments), control)
        termination = evolution.run()
        return segments, evolution.best, termination

    return planned(instance, control, SLOW, deploy)


class _Evolution:
    """The population of deployments, best first; at the start it is the fast algorithm's result."""

    def __init__(self, instance: Instance, configs: Configs, control: Search) -> None:
        self.configs, self.control = configs, control
        self.patience, self.playouts = (int(control.positive(name, int)) for name in ("patience", "playouts"))
        self.gpu_weight = objective_of(instance).weight(instance.fleet[0])
        self.draw = np.random.default_rng(control.seed)
        self.population = [configs.fill(np.zeros(len(instance.workloads)))]
        self._tell()

    @property
    def best(self) -> list[Config]:
        return self.population[0]

    def run(self) -> Termination:
        """Run rounds until the time is over or ``patience`` rounds found nothing better; return the reason for the end.
        """
        idle = 0
        while idle < self.patience and len(self.best) > 1:
            before = len(self.best)
            for parent in tuple(self.population):
                if not self.control.left_s:
                    return "time_limit"
                self._admit(self._offspring(parent))
            idle = 0 if len(self.best) < before else idle + 1
        return "completed"

    def _offspring(self, parent: Sequence[Config]) -> list[Config]:
        """A deployment after mutation and crossover."""
        mutant = _exchanged(parent, self.draw)
        kept = len(mutant) - self.draw.integers(1, len(mutant) // 2 + 1)
        survivors = [mutant[gpu] for gpu in np.sort(self.draw.permutation(len(mutant))[:kept])]
        completion: Any = sum(map(self.configs.given, survivors))
        return survivors + search(self.configs, completion, self.playouts, self.control, self.draw)

    def _admit(self, deployment: list[Config]) -> None:
        """Add a deployment, and keep the deployments with the fewest GPUs; among equals, the newest comes first."""
        before = len(self.best)
        self.population = sorted([deployment, *self.population], key=len)[:POPULATION]
        if len(self.best) < before:
            self._tell()

    def _tell(self) -> None:
        self.control.report(Incumbent(len(self.best) * self.gpu_weight, None))


def _exchanged(deployment: Sequence[Config], draw: np.random.Generator) -> list[Config]:
    """A deployment after as many exchanges between instances of equal size as it has GPUs."""
    gpus = [list(config) for config in deployment]
    places = defaultdict(list)
    for gpu, config in enumerate(gpus):
        for slot, (slice_type, _) in enumerate(config):
            places[slice_type].append((gpu, slot))
    for _ in deployment:
        gpu = int(draw.integers(len(gpus)))
        slot = int(draw.integers(len(gpus[gpu])))
        alike = places[gpus[gpu][slot][0]]
        other, at = alike[draw.integers(len(alike))]
        gpus[gpu][slot], gpus[other][at] = gpus[other][at], gpus[gpu][slot]
    return [tuple(config) for config in gpus]


METHODS = (
    Method(
        name=FAST,
        summary="GPU configurations of at most two workloads by the outstanding rate they carry; no MPS",
        run=solve_fast,
        source="MIG-serving, Tan et al. 2021, fast algorithm",
        features=FEATURES,
    ),
    Method(
        name=SLOW,
        summary="genetic algorithm with tree search, from the plan of mig-serving-fast; no MPS",
        run=solve_slow,
        source="MIG-serving, Tan et al. 2021, two-phase algorithm",
        features=FEATURES,
        parameters={"patience": 20, "playouts": 10},
    ),
)
