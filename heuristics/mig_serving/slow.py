"""MIG-serving's two phases (Tan et al. 2021): the fast algorithm, then a genetic algorithm on its result.

A deployment is a chromosome, a GPU configuration a gene. Mutation exchanges workloads between instances of equal size,
which changes no completion rate but can mix more than two workloads on a GPU. Crossover removes some GPUs and completes
the deployment with the slow algorithm (`provision.heuristics.mig_serving.tree`). Parents stay in the population with
their offspring, so that the best deployment is never lost. Three numbers are guessed: the size of the population, the
number of GPUs removed (any number up to half), and the number of exchanges (as many as there are GPUs).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from provision.formulations.search.segments import Segments
from provision.heuristics.mig_serving.configs import FEATURES, Config, Configs, planned
from provision.heuristics.mig_serving.tree import search
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

NAME = "mig-serving-slow"
POPULATION = 5
"""The number of deployments that are kept after a round."""


def solve(instance: Instance, control: Search) -> Outcome:
    """Search until the time is over or ``patience`` rounds found nothing better."""
    def deploy(segments: Segments) -> tuple[Segments, list[Config], Termination]:
        evolution = _Evolution(instance, Configs(instance, segments), control)
        termination = evolution.run()
        return segments, evolution.best, termination

    return planned(instance, control, NAME, deploy)


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
        name=NAME,
        summary="genetic algorithm with tree search, from the plan of mig-serving-fast; no MPS",
        run=solve,
        source="MIG-serving, Tan et al. 2021, two-phase algorithm",
        features=FEATURES,
        parameters={"patience": 20, "playouts": 10},
    ),
)
