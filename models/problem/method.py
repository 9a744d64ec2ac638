"""What a method is: an entry function, a name, and what it can do, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.models.base.errors import UnsupportedError
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Outcome, Search
from provision.models.traffic.full_batches import NAME as FULL_BATCHES

FEATURES = {
    "several_gpu_types": "more than one fleet entry",
    "limited_counts": "a limited count of GPUs",
    "with_mig": "GPUs with MIG",
    "without_mig": "GPUs without MIG",
    "without_mps": "GPUs without MPS",
    "min_replicas": "min_replicas other than 1",
    "max_replicas": "max_replicas for isolated slices",
    "max_share_per_gpu": "max_share_per_gpu below 1",
    "variants": "variants of a workload",
    "interference": "interference between workloads on one slice (performance data of kind igniter)",
    "share_slices": "policy.share_slices (a bound for isolated segments does not hold there)",
    "gpulets": "parts of GPUs and turns on them (performance data of kind gpulets)",
    "random_interference": "interference between workloads under a latency rule for random arrivals",
    "random_turns": "turns on parts of GPUs under a latency rule for random arrivals",
    "random_slices": "policy.share_slices under a latency rule for random arrivals",
    "other_sharing": "sharing of slices by performance data of a further kind (such as colocation)",
    "max_throughput": "objective max_throughput",
    "survive": "policy.survive",
    "even_replicas": "policy.even_replicas",
    "full_batches": "latency_budget full_batches",
    "tokens": "language models (workloads with tokens)",
    "isolated_data": "performance data other than one file that tells how all models interfere (igniter, gpulets)",
}
"""What an instance may ask of a method, and how to say it."""

ISOLATED = frozenset({
    "several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
    "max_share_per_gpu", "variants", "isolated_data",
})
"""What methods can do that give every replica a slice of its own."""

REMEDIES = (
    ("survive", "auto"),
    ("even_replicas", "auto"),
    ("full_batches", "auto, master, greedy or inss"),
    ("tokens", "auto, master, partition-counts or greedy"),
    ("max_throughput", "auto or greedy"),
    ("variants", "auto, or leave variants out"),
    ("random_interference", "auto, master or greedy, or latency_budget half_slo"),
    ("interference", "auto, master or igniter"),
    ("random_turns", "auto or master, or latency_budget half_slo"),
    ("random_slices", "auto or master, or latency_budget half_slo"),
    ("share_slices", "auto"),
    ("other_sharing", "auto or master"),
    ("gpulets", "auto, master or gpulets"),
    ("max_replicas", "partition-counts"),
)
"""Methods that can do what few can; the first feature counts."""

ONE_REPLICA = frozenset(
    {"several_gpu_types", "limited_counts", "without_mig", "interference", "random_interference", "max_replicas",
     "max_throughput", "variants", "full_batches"}
)
"""What methods under interference take, which give every workload one replica where that is asked for.

For most throughput they do not under random arrivals, nor with variants: there each replica has a GPU of its own.
"""


@dataclass(frozen=True)
class Method:
    """A way to turn an instance into a plan.

    ``run(instance, search)`` returns an Outcome. ``features`` are those keys of FEATURES that it can
    handle; ``parameters`` its own parameters with their defaults. ``compiled`` says that under interference it runs
    kernels which are compiled when they are first called; ``rehearse`` calls them on a small instance, for
    some seconds at most, and is by default a short run.
    """

    name: str
    summary: str
    run: Callable[[Instance, Search], Outcome]
    exact: bool = False
    source: str = ""
    features: frozenset[str] = frozenset()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    compiled: bool = False
    rehearse: Callable[[Instance, float], None] | None = None

    def check(self, instance: Instance) -> None:
        """Refuse an instance that needs what this method cannot do.

        Raises
        ------
        UnsupportedError
            Naming the feature and the remedy.
        """
        asked = needs(instance)
        missing = sorted(asked - self.features)
        if missing:
            lacking = " and ".join(FEATURES[feature] for feature in missing)
            few = (text for feature, text in REMEDIES if feature in {*missing, *asked & {"max_throughput"}})
            remedy = f"use --method {next(few, 'auto, greedy or partition-counts')}"
            raise UnsupportedError(f"method {self.name} cannot plan {lacking}; {remedy}")


def needs(instance: Instance) -> set[str]:
    """The features that an instance asks for."""
    workloads, gpus = instance.workloads, {entry.gpu for entry in instance.fleet}
    random = instance.policy.rule.random_arrivals
    files = [data for data in instance.performance if data.gpu in gpus]
    shared = [data for data in files if data.sharing == "always"]
    kinds = {data.kind for data in shared}
    found = {
        "several_gpu_types": len(instance.fleet) > 1,
        "limited_counts": any(entry.count is not None for entry in instance.fleet),
        "with_mig": any(entry.partitioned for entry in instance.fleet),
        "without_mig": any(not entry.partitioned for entry in instance.fleet),
        "without_mps": not all(entry.mps for entry in instance.fleet),
        "min_replicas": any(workload.min_replicas != 1 for workload in workloads),
        "max_replicas": any(workload.max_replicas is not None for workload in workloads),
        "share_slices": instance.policy.share_slices,
        "max_share_per_gpu": any(workload.max_share_per_gpu < 1 for workload in workloads),
        "variants": any(workload.variants for workload in workloads),
        "interference": "igniter" in kinds,
        "gpulets": "gpulets" in kinds,
        "random_interference": random and "igniter" in kinds,
        "random_turns": random and "gpulets" in kinds,
        "random_slices": random and instance.policy.share_slices,
        "other_sharing": bool(kinds - {"igniter", "gpulets"}),
        "max_throughput": instance.objective == THROUGHPUT,
        "survive": instance.policy.survive is not None,
        "even_replicas": instance.policy.even_replicas,
        "full_batches": instance.policy.latency_budget == FULL_BATCHES,
        "tokens": any(workload.tokens for workload in workloads),
        "isolated_data": shared != files or len(files) > len({data.gpu for data in files}),
    }
    asked = {feature for feature, present in found.items() if present}
    placed_alone = found["max_throughput"] and (random or found["variants"])
    return asked - {"max_replicas"} if asked <= ONE_REPLICA and not placed_alone else asked
