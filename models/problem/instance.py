"""A provisioning problem: fleet, workloads, performance data and policy."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_serializer, field_validator, model_validator

from provision.models.base.fields import Name, Record, Text, absent, no_flag
from provision.models.base.register import one_of
from provision.models.base.shown import Shown, frame
from provision.models.hardware.gpu import WHOLE
from provision.models.hardware.places import Places
from provision.models.performance.catalogue import PerformanceFile, reference, resolve
from provision.models.performance.operating_points import OperatingPoints
from provision.models.plans.plan import Plan, PlannedGpu, Replica
from provision.models.problem.buying import Buying
from provision.models.problem.policy import Policy
from provision.models.problem.power import Power
from provision.models.problem.uncertainty import Stretch
from provision.models.problem.workflow import Workflow, check_workflows, split_in_pools
from provision.models.problem.workload import FleetEntry, Workload
from provision.models.traffic.arrivals import POISSON
from provision.models.traffic.rule import LatencyRule, Traffic
from provision.models.traffic.rules import FILLED, FULL_BATCHES

if TYPE_CHECKING:
    from pandas import DataFrame

THROUGHPUT = "max_throughput"
FIRST_RULE = "half_slo"
"""The latency rule of files of version 1 that name no rule."""

FileVersion = Annotated[Literal[1, 2], BeforeValidator(no_flag)]
"""The versions of instance files; they differ in the latency rule that applies if a file names none."""


class Instance(Shown, Record):
    """A problem instance. It is immutable, and its performance data is loaded at construction.

    ``objective`` is ``min_cost``, the price of all GPUs per hour (their number if no prices are given), ``min_gpus``,
    the number of GPUs whatever they cost, or ``max_throughput``, the requests/s that all replicas on a fixed fleet
    could carry together (InSS, problem 1). A policy that names no latency rule means ``queueing``; in files of
    ``version`` 1 it means ``half_slo``, as it did when they were written.
    """

    version: FileVersion
    name: Name
    source: Text = ""
    objective: Literal["min_cost", "min_gpus", "max_throughput"] = "min_cost"
    policy: Policy = Field(default=Policy(), validate_default=True)
    fleet: tuple[FleetEntry, ...] = Field(min_length=1)
    performance: Annotated[
        tuple[PerformanceFile, ...],
        BeforeValidator(
            resolve, json_schema_input_type=str | PerformanceFile | list[str | PerformanceFile]
        ),
    ]
    workloads: tuple[Workload, ...] = Field(min_length=1)
    workflows: tuple[Workflow, ...] = ()
    buying: Buying | None = Field(default=None, exclude_if=absent)
    power: Power | None = Field(default=None, exclude_if=absent)
    places: Places | None = Field(default=None, exclude_if=absent)

    @model_validator(mode="wrap")
    @classmethod
    def _with_pools(cls, given: Any, handler: Callable[[Any], Self]) -> Self:
        """Replace every language model with ``disaggregated`` by two workloads, determine the factors that plans must
        bear to hold with the policy's confidence, and validate the result again.
        """
        found = handler(given)
        workloads, flows = split_in_pools(found.workloads, found.policy)
        if flows:
            fields = {name: getattr(found, name) for name in cls.model_fields}
            found = handler(fields | {"workloads": workloads, "workflows": (*found.workflows, *flows)})
        policy = found.policy
        if policy.confidence is None and policy.uncertainty is None and policy.stretch == Stretch():
            return found
        models = {model for one in found.workloads for model in one.models}
        fields = {name: getattr(found, name) for name in cls.model_fields}
        return handler(fields | {"policy": policy.stretched(found._fleet_performance, models)})

    @field_validator("policy")
    @classmethod
    def _as_written(cls, policy: Policy, info: ValidationInfo) -> Policy:
        """Give the policy of a file of version 1 the latency rule that was the default of this version."""
        if info.data.get("version") == 1 and "latency_budget" not in policy.model_fields_set:
            return policy.model_copy(update={"latency_budget": FIRST_RULE})
        return policy

    @field_serializer("performance")
    def _by_name(self, performance: tuple[PerformanceFile, ...]) -> Any:
        files = [reference(one) for one in performance]
        return files[0] if len(files) == 1 else files

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_twice("workloads", "name", [workload.name for workload in self.workloads])
        _refuse_twice("fleet", "gpu", [(entry.gpu, entry.partitioned, entry.price_per_hour) for entry in self.fleet])
        _refuse_unlike(self.fleet)
        priced = {entry.price_per_hour is not None for entry in self.fleet}
        if len(priced) == 2:
            raise ValueError("fleet: some GPUs have a price_per_hour and some have none; price all or none")
        for data in self._fleet_performance:
            if data.turns and self.policy.rule.random_arrivals:
                self._refuse_unknown_turns()
            if self._lets_share(data) and self.policy.rule.random_arrivals:
                self._refuse_unlike_traffic()
        if self.power is not None:
            self.power.check(self.fleet)
        if self.policy.survive:
            self._refuse_unknown_survival("policy.survive")
        if self.places is not None:
            self.places.check(self.workload, (one.gpu for one in self.fleet))
            if self.places.survive:
                self._refuse_unknown_survival("places.survive")
                if any(one.tokens for one in self.workloads):
                    raise ValueError("places.survive: knows no language models; leave it out")
        if self.objective == THROUGHPUT:
            _refuse_unfixed(self.fleet)
        if self.policy.latency_budget == FULL_BATCHES:
            self._refuse_unlike_inss()
        for index, workload in enumerate(self.workloads):
            for number, model in enumerate(workload.models):
                if model not in self._known_models:
                    field = f"variants[{number - 1}]" if number else "model"
                    raise ValueError(
                        f"workloads[{index}].{field}: no performance data for {model!r} on this fleet; "
                        f"{one_of(model, sorted(self._known_models) or ['no model'])}")
        _refuse_twice("workflows", "name", [one.name for one in self.workflows])
        check_workflows(self.workflows, self.workload)
        self._check_tokens()
        if self.buying:
            owned = Counter({entry.gpu: entry.count or 0 for entry in self.fleet if entry.committed})
            self.buying.check([entry.gpu for entry in self.fleet], owned, list(self.workload))
        return self

    def _refuse_unlike_inss(self) -> None:
        """Refuse the latency rule full_batches except for InSS's problem, since only there the time to fill a batch is
        known.
        """
        field = f"policy.latency_budget: {FULL_BATCHES} is for"
        if self.objective != THROUGHPUT:
            raise ValueError(f"{field} objective {THROUGHPUT}; use half_slo or queueing")
        if any(data.feature not in FILLED for data in self._fleet_performance):
            raise ValueError(f"{field} performance data of kind igniter; use half_slo")
        for index, workload in enumerate(self.workloads):
            if workload.max_replicas != 1:
                raise ValueError(f"{field} one replica per workload; give workloads[{index}] max_replicas: 1")

    def _check_tokens(self) -> None:
        """Refuse workloads with ``tokens`` but other data, and workloads without ``tokens`` but data of kind tokens."""
        for index, workload in enumerate(self.workloads):
            kinds = {data.of_tokens for model in workload.models for data in self._data_of(model)}
            if workload.tokens and kinds != {True}:
                raise ValueError(f"workloads[{index}].tokens: {workload.model} has performance data of another kind "
                                 "than tokens; leave tokens out or add such data alone")
            if not workload.tokens and True in kinds:
                raise ValueError(f"workloads[{index}]: {workload.model} has performance data of kind tokens; add "
                                 "tokens, the input and output of its requests")

    def _data_of(self, model: str) -> list[PerformanceFile]:
        """All performance data of a model on the GPU types of the fleet."""
        return [data for (_, name), files in self._performance_by_key.items() for data in files if name == model]

    def _refuse_unlike_traffic(self) -> None:
        """Refuse different traffic of workloads that share GPUs: their replicas are planned for the same traffic."""
        for index, workload in enumerate(self.workloads):
            if self.policy.traffic_of(workload)[:2] != self.policy.traffic_of(self.workloads[0])[:2]:
                raise ValueError(
                    f"workloads[{index}]: under {self.policy.latency_budget} workloads that share slices need the "
                    "same arrivals and percentile; state them in the policy"
                )

    def _refuse_unknown_turns(self) -> None:
        """Refuse temporal sharing under random arrivals that are not Poisson, or without given rates."""
        if self.objective == THROUGHPUT:
            raise ValueError(
                f"policy.latency_budget: {THROUGHPUT} on gpu-lets' turns takes no {self.policy.latency_budget}; use "
                "half_slo"
            )
        if self.policy.traffic_of(self.workloads[0]).arrivals != POISSON:
            raise ValueError(
                f"policy.arrivals: {self.policy.latency_budget} knows gpu-lets' turns for Poisson arrivals alone; "
                "leave arrivals out or use half_slo"
            )

    def _refuse_unknown_survival(self, field: str) -> None:
        """Refuse ``survive`` if the rate that a replica can carry depends on the rates routed to its neighbours, or a
        workload may have one replica only.
        """
        if self.objective == THROUGHPUT:
            raise ValueError(f"{field}: {THROUGHPUT} has no rates to keep beyond the given ones; use min_cost")
        if self.policy.share_slices and not self.policy.rule.random_arrivals:
            raise ValueError(
                f"{field}: under {self.policy.latency_budget} shared slices slow with what is routed to them; "
                "use queueing or leave share_slices out"
            )
        for index, one in enumerate(self.workloads):
            if one.max_replicas == 1 and one.rate_rps > 0:
                raise ValueError(f"workloads[{index}].max_replicas: one replica survives no loss; allow 2 or more")

    @cached_property
    def _known_models(self) -> set[str]:
        return {model for _, model in self._performance_by_key}

    @property
    def _fleet_performance(self) -> list[PerformanceFile]:
        """The performance data of the GPU types in the fleet."""
        gpus = {entry.gpu for entry in self.fleet}
        return [data for data in self.performance if data.gpu in gpus]

    @cached_property
    def _performance_by_key(self) -> dict[tuple[str, str], list[PerformanceFile]]:
        """The performance data by (GPU type, model), in order of precedence: data of shared GPUs, then measured, then
        fitted data.
        """
        found: dict[tuple[str, str], list[PerformanceFile]] = {}
        order = sorted(self._fleet_performance, key=lambda one: (one.sharing != "always", not one.measured))
        for data in order:
            for model in data.models:
                same = found.setdefault((data.gpu, model), [])
                if any(other.kind == data.kind for other in same):  # nothing tells which of the two is right
                    raise ValueError(f"performance: two files describe {model} on {data.gpu}; keep one")
                same.append(data)
        return found

    def __repr__(self) -> str:
        fleet = ", ".join(dict.fromkeys(entry.gpu for entry in self.fleet))
        return f"<Instance {self.name}: {len(self.workloads)} workloads on {fleet}, {self.objective}>"

    __str__ = __repr__

    def to_frame(self) -> "DataFrame":
        """A pandas frame with a row per workload."""
        return frame([one.model_dump() for one in self.workloads])

    @cached_property
    def workload(self) -> dict[str, Workload]:
        """The workloads by name."""
        return {workload.name: workload for workload in self.workloads}

    @cached_property
    def derived_limits(self) -> set[str]:
        """The language models without a stated limit on the whole answer, which follows from those on its tokens."""
        return {one.name for one in self.workloads if one.slo is not None and one.slo.e2e_ms is None}

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal, of everything on which a plan depends."""
        files = "".join(data.digest for data in self.performance)
        if self.policy.confidence is not None:
            files += repr(tuple(self.policy.stretch))
        rest = self.model_dump_json(exclude={"performance"} | ({"workflows"} if not self.workflows else set()))
        return sha256((rest + files).encode()).hexdigest()

    def performance_of(self, gpu: str, model: str, profile: str = WHOLE) -> PerformanceFile | None:
        """The performance data of a model alone on slices of a profile of a GPU type; None if there is none. On whole
        GPUs, data that describes the sharing of GPUs takes precedence, so that no neighbour ever seems to make a
        replica faster. Otherwise measured data takes precedence over fitted data.
        """
        files = self._performance_by_key.get((gpu, model), ())
        return next((data for data in files if profile == WHOLE or data.sharing != "always"), None)

    def points_of(self, data: PerformanceFile, model: str, profile: str) -> OperatingPoints:
        """The operating points of a model alone on a slice, with the times that the latency rule uses.

        Under random arrivals batches may start before they are full. Then each point has the longest times of any batch
        size up to its own (``longest_points``).
        """
        points = data.longest_points if self.policy.rule.random_arrivals else data.operating_points
        return points(model, profile)

    def sharing_of(self, gpu: str, models: Sequence[str]) -> PerformanceFile | None:
        """The performance data that describes these models together on one slice; None if there is none. Data of shared
        GPUs always describes shared slices; closed networks do if the policy lets workloads share slices.
        """
        files = self.sharing_files(gpu)
        return next((data for data in files if all(model in data.models for model in models)), None)

    def sharing_files(self, gpu: str) -> list[PerformanceFile]:
        """The performance data that describes replicas of different workloads on one slice of a GPU type."""
        return [data for data in self.performance if data.gpu == gpu and self._lets_share(data)]

    def _lets_share(self, data: PerformanceFile) -> bool:
        """Whether performance data describes shared slices, and the policy permits sharing."""
        return data.sharing == "always" or (data.sharing == "if_allowed" and self.policy.share_slices)

    def workflow_slo_ms(self, workflow: Workflow) -> float:
        """The SLO of a workflow in ms, from the request to the last answer: the largest sum of SLOs along a path."""
        return workflow.longest({name: self.workload[name].slo_ms for name in workflow.workloads})

    def model_of(self, replica: Replica) -> str:
        """The name of the model that a replica of a plan runs; its workload must be in the instance."""
        return replica.model or self.workload[replica.workload].model

    def budget_ms(self, workload: Workload) -> float:
        """The longest latency allowed for a workload, in ms.

        It limits the latency of a request under rules for random arrivals and for language models, otherwise the
        latency of a batch.
        """
        if workload.tokens:
            return self.policy.limits_of(workload).e2e_ms
        return workload.slo_ms * self.policy.part_of_slo

    @property
    def random_arrivals(self) -> bool:
        """Whether plans must keep all SLOs under random arrivals; plans for language models alone always do."""
        return self.policy.rule.random_arrivals or all(workload.tokens for workload in self.workloads)

    @cached_property
    def shared_traffic(self) -> Traffic:
        """The traffic on shared GPUs, which is the same for all workloads.

        It has the largest burst, the least rate of which replicas get parts, and the least limit on batches of all
        workloads.
        """
        several = [self.policy.traffic_of(workload) for workload in self.workloads]
        limits = [one.most_batch for one in several if one.most_batch is not None]
        return several[0]._replace(
            burst=max(one.burst for one in several), most_batch=min(limits, default=None),
            whole_rps=min((one.whole_rps for one in several if one.whole_rps), default=0.0))

    @property
    def shared_rule(self) -> LatencyRule:
        """The latency rule of replicas on shared GPUs."""
        return self.policy.rule.under(self.shared_traffic)

    def planned_rps(self, workload: Workload) -> float:
        """The rate for which to plan, in requests/s, headroom included."""
        return self.policy.planned_rps(workload.rate_rps)

    def plan_of(self, method: str, gpus: Iterable[PlannedGpu]) -> Plan:
        """The plan for this instance with these GPUs, made by ``method``."""
        return Plan(version=1, instance=self.name, digest=self.digest, method=method, gpus=tuple(gpus))

    def adopted(self, plan: Plan) -> Plan:
        """A plan for this instance, from a plan for another instance for which it holds too."""
        return plan.model_copy(update={"instance": self.name, "digest": self.digest})

    def replace(self, **changes: Any) -> "Instance":
        """A copy with some fields replaced, validated like a new instance. With workloads of other names it has no
        places, whose rules name workloads.
        """
        names = [one["name"] if isinstance(one, dict) else one.name for one in changes.get("workloads", ())]
        if self.places is not None and {*names} != {*self.workload} and "workloads" in changes:
            changes = {"places": None} | changes
        return Instance(**{name: getattr(self, name) for name in Instance.model_fields} | changes)

    def with_policy(self, **changes: Any) -> "Instance":
        """A copy with some fields of the policy replaced."""
        return self.replace(policy=self.policy.model_copy(update=changes))


def _refuse_unlike(fleet: Iterable[FleetEntry]) -> None:
    """Refuse fleet entries of one GPU type that differ in ``mps``."""
    first: dict[tuple[str, bool], bool] = {}
    for index, entry in enumerate(fleet):
        if first.setdefault((entry.gpu, entry.partitioned), entry.mps) != entry.mps:
            raise ValueError(f"fleet[{index}].mps: differs from that of another entry of {entry.gpu}; make them equal")


def _refuse_unfixed(fleet: Iterable[FleetEntry]) -> None:
    """Refuse the objective of most throughput for a fleet without counts."""
    for index, entry in enumerate(fleet):
        if entry.count is None:
            raise ValueError(f"fleet[{index}].count: {THROUGHPUT} needs a fixed fleet; say how many {entry.gpu} it has")


def _refuse_twice(field: str, key: str, values: Iterable[str | tuple[Any, ...]]) -> None:
    """Refuse a value that occurs twice; the message shows the first element of a tuple."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            shown = value if isinstance(value, str) else value[0]
            raise ValueError(f"{field}[{index}].{key}: {shown!r} stands twice; give each a {key} of its own")
        seen.add(value)

