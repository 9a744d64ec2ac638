"""Workloads with their SLOs and rates, their places in workflows, and entries of the fleet."""

import math
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from provision.models.base.fields import (
    Count,
    Flag,
    Fraction,
    Name,
    NonNegative,
    Percentile,
    Positive,
    PositiveCount,
    Record,
    absent,
    empty,
    is_one,
)
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_type
from provision.models.hardware.prices import list_price
from provision.models.performance.tokens.requests import Lengths, Limits, RequestTokens, TokenSlo, longest_ms
from provision.models.traffic.arrivals import Arrivals, Routing

UNTOLD_MS = 1.0
"""A placeholder for the limit on whole answers if tokens or their limits are invalid, so that only the invalid fields
are reported.
"""
LEAST_RPS = 1e-9
"""The smallest rate above 0, in requests/s: one request in thirty years. Smaller rates would only harm the precision of
solvers."""


PRICE = {"type": "string", "description": "PROVIDER or PROVIDER.TIER of the shipped table, in place of price_per_hour"}


def _with_price(schema: dict[str, Any]) -> None:
    """Add the field ``price``, which names a list price, to the JSON Schema of a fleet entry."""
    schema["properties"]["price"] = PRICE


def _tokens_for_slo(schema: dict[str, Any]) -> None:
    """Change a workload's JSON Schema so that it accepts ``slo`` instead of ``slo_ms``."""
    schema["required"].remove("slo_ms")
    schema["anyOf"] = [{"required": ["slo_ms"]}, {"required": ["slo", "tokens"]}]


class Stage(Record):
    """The effect of a workload's place in a workflow, while a plan is sought or verified.

    Attributes
    ----------
    burst
        The number of requests that may arrive at the same moment: the largest batch of the workloads before this
        workload.
    most_batch
        The largest batch that replicas of the workload may run; None for any.
    """

    burst: PositiveCount = 1
    most_batch: PositiveCount | None = None


class Workload(Record):
    """One served DNN model with its SLO and request rate.

    ``variants`` names further variants of the model (another precision, other kernels), each with performance data
    under its name; every replica runs one of the variants or ``model``. ``min_replicas`` and ``max_replicas`` bound the
    number of replicas (systems such as iGniter have one replica per workload). ``max_share_per_gpu`` is the largest
    fraction of the planned rate that may be routed to one GPU, so that the loss of a GPU loses no more than this
    fraction. ``arrivals``, ``routing`` and ``percentile`` override the fields of the policy. A language model has
    ``tokens``, and limits on their times in ``slo`` instead of ``slo_ms`` or in addition to it. ``slo_ms`` is then the
    limit on the whole answer, by default the longest time of an answer that ``ttft_ms`` and ``tpot_ms`` allow.

    Where GPUs or money are short (``provision ration``), workloads of a higher ``priority`` are served before all
    others; among equals, a request/s counts ``weight``. A workload is left out, or served at least the fraction
    ``floor`` of its rate.
    """

    model_config = ConfigDict(json_schema_extra=_tokens_for_slo)

    name: Name
    model: Name
    slo_ms: Positive
    rate_rps: NonNegative
    min_replicas: Annotated[int, Field(strict=True, ge=0, le=100)] = 1
    max_replicas: Annotated[int, Field(strict=True, ge=1, le=10**6)] | None = None
    max_share_per_gpu: Fraction = 1.0
    variants: tuple[Name, ...] = Field(default=(), exclude_if=empty)
    arrivals: Arrivals | None = Field(default=None, exclude_if=absent)
    routing: Routing | None = Field(default=None, exclude_if=absent)
    percentile: Percentile | None = Field(default=None, exclude_if=absent)
    tokens: RequestTokens | None = Field(default=None, exclude_if=absent)
    slo: TokenSlo | None = Field(default=None, exclude_if=absent)
    priority: Annotated[int, Field(strict=True, ge=-1000, le=1000)] = Field(default=0, exclude_if=empty)
    weight: Annotated[NonNegative, Field(le=1e6)] = Field(default=1.0, exclude_if=is_one)
    floor: Fraction = Field(default=1.0, exclude_if=is_one)
    stage: SkipJsonSchema[Stage | None] = Field(default=None, exclude_if=absent)
    """The place in a workflow. Only this package sets the field; files state workflows."""

    @property
    def limits(self) -> Limits:
        """The limits on the times of tokens and answers, without the percentile."""
        asked = self.slo or TokenSlo(e2e_ms=self.slo_ms)
        return Limits(asked.ttft_ms or math.inf, asked.tpot_ms or math.inf, self.slo_ms)

    def with_slo(self, factor: float) -> dict[str, Any]:
        """The fields of the workload, with all times of its SLO multiplied by a factor."""
        asked = self.model_dump(include={"slo_ms", "slo"})
        times = {name: value * (factor if name.endswith("_ms") else 1) for name, value in asked.get("slo", {}).items()}
        return self.model_dump() | {"slo_ms": self.slo_ms * factor} | ({"slo": times} if times else {})

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models that a replica may run: ``model`` first, then the variants."""
        return (self.model, *self.variants)

    def named(self, index: int) -> str | None:
        """The ``model`` of a Replica that runs ``models[index]``: None for the workload's own model."""
        return self.models[index] if index else None

    @model_validator(mode="before")
    @classmethod
    def _whole_answer(cls, given: Any) -> Any:
        """Fill in ``slo_ms``, the limit on the whole answer, from the limits on tokens if it is not given."""
        if not isinstance(given, dict) or "slo_ms" in given or not {"slo", "tokens"} <= given.keys():
            return given
        try:
            slo = TokenSlo.model_validate(given["slo"])
            answer = Lengths.model_validate(given["tokens"]["output"])
        except (ValidationError, TypeError, KeyError):
            return given | {"slo_ms": UNTOLD_MS}
        if slo.e2e_ms is not None:
            return given | {"slo_ms": slo.e2e_ms}
        if slo.ttft_ms is None or slo.tpot_ms is None:
            raise ValueError("slo: limits neither the whole answer nor both parts of it; add e2e_ms, or ttft_ms and "
                             "tpot_ms")
        return given | {"slo_ms": longest_ms(slo.ttft_ms, slo.tpot_ms, answer.most)}

    @model_validator(mode="after")
    def _of_tokens(self) -> Self:
        if self.slo is None:
            return self
        if self.tokens is None:
            raise ValueError("slo: is for language models; add tokens, or write slo_ms")
        if self.slo.e2e_ms not in (None, self.slo_ms):
            raise ValueError(f"slo.e2e_ms {self.slo.e2e_ms:g} and slo_ms {self.slo_ms:g} are the same limit; keep one")
        if None not in (self.percentile, self.slo.percentile):
            raise ValueError("percentile and slo.percentile are the same; keep one")
        return self

    @model_validator(mode="after")
    def _in_pools(self) -> Self:
        if self.tokens is None or self.tokens.disaggregated is None:
            return self
        if self.slo is None or self.slo.ttft_ms is None or self.slo.tpot_ms is None:
            raise ValueError("tokens.disaggregated: each pool needs a limit; give slo.ttft_ms, for prefill, and "
                             "slo.tpot_ms, for decode")
        if self.slo_ms <= self.slo.ttft_ms:
            raise ValueError(f"slo: {self.slo_ms:g} ms for the whole answer leave the decode pool nothing beside "
                             f"ttft_ms {self.slo.ttft_ms:g}; raise e2e_ms")
        if self.tokens.output.most < 2:
            raise ValueError("tokens.disaggregated: answers of one token need no decode pool; leave it out")
        return self

    @field_validator("variants")
    @classmethod
    def _differ(cls, variants: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        names = (info.data.get("model"), *variants)
        twice = [name for at, name in enumerate(names) if name in names[:at]]
        if twice:
            raise ValueError(f"{twice[0]!r} stands twice, model counted; name every model once")
        return variants

    @model_validator(mode="after")
    def _replicas_in_order(self) -> Self:
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas {self.max_replicas} is below min_replicas {self.min_replicas}; raise it")
        return self

    @model_validator(mode="after")
    def _rate_counts(self) -> Self:
        if 0 < self.rate_rps < LEAST_RPS:
            raise ValueError(f"rate_rps should be 0 or at least {LEAST_RPS:g} (got {self.rate_rps:g})")
        return self


class FleetEntry(Record):
    """GPUs of one type at one price. ``count`` is the number of GPUs that may be used, None for any number. A type may
    occur several times at different prices, such as owned, reserved and on demand; ``tier`` then names an entry.
    Instead of ``price_per_hour`` a file may state ``price``: a provider, or a provider and a tier with a dot between
    them; the list price is then taken from the shipped table (``price: aws``, ``price: aws.reserved``), and ``tier`` is
    set to this provider and tier. With ``mig`` the GPUs are partitioned; by default they are if the type has MIG.
    Without ``mps`` every slice runs a single process. GPUs that are ``committed`` are paid for whether a plan uses them
    or not, as reserved ones are; the objective counts what is paid beyond them.
    """

    model_config = ConfigDict(json_schema_extra=_with_price)

    gpu: Name
    tier: Name | None = Field(default=None, exclude_if=absent)
    price_per_hour: Annotated[NonNegative, Field(le=1e9)] | None = None
    count: Count | None = None
    mig: Flag | None = None
    mps: Flag = True
    committed: Flag = Field(default=False, exclude_if=empty)

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, given: object) -> object:
        """Replace ``price`` by the list price that it names."""
        if not isinstance(given, dict) or "price" not in given:
            return given
        if given.get("price_per_hour") is not None:
            raise ValueError("price and price_per_hour are both given; keep one")
        rest = {field: value for field, value in given.items() if field != "price"}
        found = list_price(str(given.get("gpu")), given["price"])
        return {"tier": f"{found.provider}.{found.tier}"} | rest | {"price_per_hour": found.per_hour}

    @model_validator(mode="after")
    def _known_gpu(self) -> Self:
        if not gpu_type(self.gpu).mig and self.mig:
            raise ValueError(f"GPU type {self.gpu} has no MIG; leave mig out or set it to false")
        if self.committed and (self.count is None or self.price_per_hour is None):
            raise ValueError("committed: GPUs that are paid for in any case need their count and price; add both")
        return self

    @property
    def type(self) -> GpuType:
        """The GPU type."""
        return gpu_type(self.gpu)

    @property
    def partitioned(self) -> bool:
        """Whether these GPUs run with MIG on."""
        return bool(self.type.mig) if self.mig is None else self.mig

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles of the slices that one of these GPUs can offer."""
        if not self.partitioned:
            return (WHOLE,)
        return tuple(name for name, profile in self.type.profiles.items() if profile.variant != "media")
