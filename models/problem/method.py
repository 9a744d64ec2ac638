"""Methods: an entry function, a name, and the features of instances that it can handle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from typing import Any, NamedTuple

from provision.models.base.errors import UnsupportedError
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.power_limit import Run, keeping_power
from provision.models.problem.search import Outcome, Search
from provision.models.traffic.rules import FULL_BATCHES


class Feature(NamedTuple):
    """A feature of instances that not every method can handle: its description, and whether an instance has it."""

    what: str
    asked: Callable[[Instance], bool]


def _files(instance: Instance) -> list[PerformanceFile]:
    """The performance data of the GPU types in the fleet."""
    gpus = {entry.gpu for entry in instance.fleet}
    return [data for data in instance.performance if data.gpu in gpus]


def _shares(feature: str, random: bool = False) -> Callable[[Instance], bool]:
    """A function that tells whether an instance has performance data with this feature of GPUs that replicas can share.
    If ``random``, its latency rule must also be for random arrivals.
    """
    def asked(instance: Instance) -> bool:
        if random and not instance.policy.rule.random_arrivals:
            return False
        shared = {entry.gpu for entry in instance.fleet if entry.mps}
        return any(data.sharing == "always" and data.feature == feature and data.gpu in shared
                   for data in instance.performance)

    return asked


def _isolated_data(instance: Instance) -> bool:
    files = _files(instance)
    return any(data.sharing != "always" for data in files) or len(files) > len({data.gpu for data in files})


FEATURES = {
    "several_gpu_types": Feature("more than one fleet entry", lambda one: len(one.fleet) > 1),
    "limited_counts": Feature("a limited count of GPUs", lambda one: any(e.count is not None for e in one.fleet)),
    "with_mig": Feature("GPUs with MIG", lambda one: any(entry.partitioned for entry in one.fleet)),
    "without_mig": Feature("GPUs without MIG", lambda one: not all(entry.partitioned for entry in one.fleet)),
    "without_mps": Feature("GPUs without MPS", lambda one: not all(entry.mps for entry in one.fleet)),
    "min_replicas": Feature("min_replicas other than 1", lambda one: any(w.min_replicas != 1 for w in one.workloads)),
    "max_replicas": Feature("max_replicas for isolated slices",
                            lambda one: any(w.max_replicas is not None for w in one.workloads)),
    "max_share_per_gpu": Feature("max_share_per_gpu below 1",
                                 lambda one: any(w.max_share_per_gpu < 1 for w in one.workloads)),
    "variants": Feature("variants of a workload", lambda one: any(w.variants for w in one.workloads)),
    "interference": Feature("interference between workloads on one slice (performance data of kind igniter)",
                            _shares("interference")),
    "share_slices": Feature("policy.share_slices (a bound for isolated segments does not hold there)",
                            lambda one: one.policy.share_slices),
    "gpulets": Feature("parts of GPUs and turns on them (performance data of kind gpulets)", _shares("gpulets")),
    "random_interference": Feature("interference between workloads under a latency rule for random arrivals",
                                   _shares("interference", random=True)),
    "random_turns": Feature("turns on parts of GPUs under a latency rule for random arrivals",
                            _shares("gpulets", random=True)),
    "random_slices": Feature("policy.share_slices under a latency rule for random arrivals",
                             lambda one: one.policy.share_slices and one.policy.rule.random_arrivals),
    "other_sharing": Feature("sharing of slices by performance data of a further kind (such as colocation)",
                             _shares("other_sharing")),
    "max_throughput": Feature("objective max_throughput", lambda one: one.objective == THROUGHPUT),
    "survive": Feature("policy.survive", lambda one: one.policy.survive is not None),
    "places": Feature("places", lambda one: one.places is not None),
    "even_replicas": Feature("policy.even_replicas", lambda one: one.policy.even_replicas),
    "full_batches": Feature("latency_budget full_batches", lambda one: one.policy.latency_budget == FULL_BATCHES),
    "tokens": Feature("language models (workloads with tokens)", lambda one: any(w.tokens for w in one.workloads)),
    "isolated_data": Feature(
        "performance data other than one file that tells how all models interfere (igniter, gpulets)", _isolated_data),
}
"""All features, by the key that methods declare."""

ISOLATED = frozenset({
    "several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
    "max_share_per_gpu", "variants", "isolated_data",
})
"""The features that methods with isolated replicas (one per slice) handle."""
SHARED = frozenset({"interference", "other_sharing", "gpulets", "share_slices"})
"""The features of instances whose replicas may share slices."""

REMEDIES = (
    ("survive", "auto"),
    ("places", "auto"),
    ("even_replicas", "auto"),
    ("full_batches", "auto, master, greedy or inss"),
    ("tokens", "auto, master or greedy"),
    ("max_throughput", "auto or greedy"),
    ("variants", "auto, or leave variants out"),
    ("random_interference", "auto, master or greedy, or latency_budget half_slo"),
    ("interference", "auto, master or igniter"),
    ("random_turns", "auto, master or greedy, or latency_budget half_slo"),
    ("random_slices", "auto or master, or latency_budget half_slo"),
    ("share_slices", "auto"),
    ("other_sharing", "auto, master, greedy or lns"),
    ("gpulets", "auto, master, greedy, lns or gpulets"),
    ("max_replicas", "master"),
)
"""For features that few methods handle, the methods to suggest. If an instance has several of these features, the first
counts.
"""

ONE_REPLICA = frozenset(
    {"several_gpu_types", "limited_counts", "without_mig", "interference", "random_interference", "max_replicas",
     "max_throughput", "variants", "full_batches"}
)
"""If an instance has only these features, methods under interference can plan it with a single replica per workload;
its ``max_replicas`` then needs no support. For max_throughput these methods do so only under half_slo or full_batches
and without variants; otherwise they give each replica its own GPU.
"""


@dataclass(frozen=True)
class Method:
    """A planning method. ``run(instance, search)`` returns an Outcome. ``features`` has the keys of FEATURES that the
    method can handle, ``parameters`` its own parameters with their defaults, and ``files`` those that name files, which
    jobs of a server may not. ``exact`` tells that it can prove plans optimal. ``begins_with(instance)`` names a fast
    method, from whose plan the search begins if no plan is given.
    """

    name: str
    summary: str
    run: Run
    exact: bool = False
    source: str = ""
    features: frozenset[str] = frozenset()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    begins_with: Callable[[Instance], str] | None = None

    def __post_init__(self) -> None:
        """Keep the limit of power in every run."""
        object.__setattr__(self, "run", update_wrapper(partial(_within_power, self.run), self.run))

    def check(self, instance: Instance) -> None:
        """Refuse an instance with a feature that this method cannot handle. Raises UnsupportedError if the instance has
        such a feature; the message names the feature and the remedy.
        """
        asked = needs(instance)
        missing = sorted(asked - self.features)
        if missing:
            lacking = " and ".join(FEATURES[feature].what for feature in missing)
            few = (text for feature, text in REMEDIES if feature in {*missing, *asked & {"max_throughput"}})
            remedy = f"use --method {next(few, 'auto, master or greedy')}"
            raise UnsupportedError(f"method {self.name} cannot plan {lacking}; {remedy}")


def _within_power(run: Run, instance: Instance, search: Search) -> Outcome:
    """The outcome of ``run`` on an instance, within its limit of power if it has one."""
    limited = instance.power is not None and instance.power.limit_w is not None
    return keeping_power(run, instance, search) if limited else run(instance, search)


def needs(instance: Instance) -> set[str]:
    """The keys of the features of an instance that a method must handle."""
    asked = {name for name, feature in FEATURES.items() if feature.asked(instance)}
    placed_alone = "max_throughput" in asked and ("variants" in asked or instance.policy.rule.random_arrivals)
    return asked - {"max_replicas"} if asked <= ONE_REPLICA and not placed_alone else asked
