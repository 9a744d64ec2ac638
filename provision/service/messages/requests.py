"""Requests for jobs as pydantic models, one for every verb; the field ``verb`` tells which model a request follows."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, WithJsonSchema

from provision.models.base.fields import Count, Flag, Name, NonNegative, Number, Positive, PositiveCount, Record, Text

Given = Annotated[dict[Name, Any], WithJsonSchema({"$ref": "#/components/schemas/Instance"})]
GivenPlan = Annotated[dict[Name, Any], WithJsonSchema({"$ref": "#/components/schemas/Plan"})]
InstanceField = Annotated[Name | Given, Field(description="a shipped name, the digest of a stored one, or a whole one")]
PlanField = Annotated[Name | GivenPlan, Field(description="the digest of a stored plan, the id of a job, or a plan")]
Seconds = Annotated[Positive, Field(le=1e7)]
Csv = Annotated[str, Field(strict=True, max_length=4 * 2**20)]
Value: TypeAlias = Number | Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*$", max_length=60)]
"""The value of a method's parameter: a number, or a word that cannot be taken for a path."""


class Request(Record):
    """Fields of all jobs."""

    instance: InstanceField


class Timed(Request):
    """Fields of all jobs that search; ``time_limit_s`` is for a single search."""

    time_limit_s: Seconds = 60.0
    seed: Count = 0


class Solve(Timed):
    """``provision solve``."""

    verb: Literal["solve"]
    method: Name = "auto"
    parameters: dict[Name, Value] = Field(default={})


class Compare(Timed):
    """``provision compare``; ``simulate_s`` is the seconds of arrivals with which every plan is replayed."""

    verb: Literal["compare"]
    methods: Annotated[tuple[Name, ...], Field(min_length=1, max_length=50)]
    simulate_s: Annotated[Positive, Field(le=3600)] | None = None


class WhatIf(Timed):
    """``provision what-if``: a sweep, breakpoints along its parameters, marginal prices (of all, or those named)."""

    verb: Literal["what-if"]
    method: Name = "auto"
    vary: Annotated[dict[Name, list[Number | Text] | Text], Field(max_length=4)] = Field(default={})
    one_at_a_time: Flag = False
    breakpoints: Annotated[tuple[Name, ...], Field(max_length=4)] = ()
    prices: Flag = False
    prices_of: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()


class Planned(Request):
    """Fields of all jobs on a plan."""

    plan: PlanField


class Explain(Planned):
    """``provision explain``: for one ``workload`` or all, compared with a GPU type (``on``) or all of the fleet."""

    verb: Literal["explain"]
    workload: Name | None = None
    on: Name | None = None
    time_limit_s: Seconds = 20.0


class Verify(Planned):
    """``provision verify``."""

    verb: Literal["verify"]


class Simulate(Planned):
    """``provision simulate``."""

    verb: Literal["simulate"]
    seconds: Annotated[Positive, Field(le=1e5)] = 60.0
    seed: Count = 0
    replications: Annotated[PositiveCount, Field(le=100)] = 1
    arrival_cv: Annotated[NonNegative, Field(le=10)] | None = None
    service_cv: Annotated[NonNegative, Field(le=10)] = 0.0
    service_factor: Annotated[Positive, Field(le=1000)] = 1.0
    shadow: Flag = False


class SimulateTrace(Timed):
    """``provision simulate-trace``: ``demand`` is a CSV text (time_s,workload,rate_rps) or ``two-waves``."""

    verb: Literal["simulate-trace"]
    demand: Csv = "two-waves"
    policies: Annotated[tuple[Name, ...], Field(min_length=1, max_length=10)] = ("replan", "static")
    time_limit_s: Seconds = 5.0


class Replan(Planned):
    """``provision replan``: new rates by a factor for all, or by workload; or a GPU of the plan that was ``lost``."""

    verb: Literal["replan"]
    lost: Count | None = None
    rate: Positive | None = None
    rates_rps: dict[Name, NonNegative] = Field(default={})
    change_cost: NonNegative | None = None
    allow: Literal["batches", "replicas", "slices"] = "slices"
    time_limit_s: Seconds = 60.0


class Export(Planned):
    """``provision export``: the files come as texts by name."""

    verb: Literal["export"]
    to: Name
    gpus_per_node: Annotated[PositiveCount, Field(le=1024)] = 8


class Diff(Planned):
    """``provision diff`` against a saved ``provision status --json``."""

    verb: Literal["diff"]
    status: dict[Name, Any]


class Apply(Planned):
    """``provision apply`` on the server's own GPUs, if it was started with ``--allow-apply``."""

    verb: Literal["apply"]
    gpus: Annotated[tuple[Name, ...], Field(max_length=64)] | None = None


JobRequest = Annotated[
    Solve | Compare | WhatIf | Explain | Verify | Simulate | SimulateTrace | Replan | Export | Diff | Apply,
    Field(discriminator="verb"),
]
"""The request for any job; the field ``verb`` chooses the model."""
