"""Reads inferno's instances (github.com/llm-inferno): a folder of JSON files, each named after its content.

Keys are case-insensitive, as in inferno's own reader. Fields that planning does not need are left out. Rates are per
minute in the files and per second here.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from provision.instances.importers.tokens.server import read_json, written_by
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Name, NonNegative, PositiveCount

SECONDS_PER_MINUTE = 60


class _Part(BaseModel):
    """The base of inferno's records: immutable, read by lower-case field names; other fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Accelerator(_Part):
    """A choice of hardware: ``multiplicity`` GPUs of a type, which cost ``cost`` cents per hour."""

    name: Name
    type: Name
    multiplicity: PositiveCount = 1
    cost: NonNegative


class PerformanceParameters(_Part):
    """Coefficients of inferno's performance model in ms: alpha per iteration, beta per token, gamma per pair of tokens.
    """

    alpha: NonNegative
    beta: NonNegative
    gamma: NonNegative


class ModelProfile(_Part):
    """A model on an accelerator: the number of accelerators that it needs, its coefficients, and its largest batch for
    requests of ``at_tokens`` tokens.
    """

    name: Name
    accelerator: Name = Field(alias="acc")
    accelerators: PositiveCount = Field(default=1, alias="acccount")
    max_batch: PositiveCount = Field(alias="maxbatchsize")
    at_tokens: PositiveCount = Field(alias="attokens")
    parameters: PerformanceParameters = Field(alias="perfparms")


class Target(_Part):
    """The targets of a service class for the means of a model's latencies and rate; 0 means no target."""

    model: Name
    itl_ms: NonNegative = Field(default=0.0, alias="slo-itl")
    ttft_ms: NonNegative = Field(default=0.0, alias="slo-ttft")
    tokens_per_s: NonNegative = Field(default=0.0, alias="slo-tps")


class ServiceClass(_Part):
    """A service class: its targets by model, and its priority; the smallest number is the highest priority."""

    name: Name
    priority: Count
    targets: tuple[Target, ...] = Field(alias="modeltargets")


class _Load(_Part):
    arrivals_per_minute: NonNegative = Field(alias="arrivalrate")
    input_tokens: PositiveCount = Field(alias="avgintokens")
    output_tokens: PositiveCount = Field(alias="avgouttokens")


class _Allocation(_Part):
    load: _Load


class Server(_Part):
    """A model that is served in a service class, with its load."""

    name: Name
    service_class: Name = Field(alias="class")
    model: Name
    current: _Allocation = Field(alias="currentalloc")
    min_replicas: Count = Field(default=0, alias="minnumreplicas")

    @property
    def rate_rps(self) -> float:
        """Arrivals per second."""
        return self.current.load.arrivals_per_minute / SECONDS_PER_MINUTE

    @property
    def input_tokens(self) -> int:
        """Mean tokens of a prompt."""
        return self.current.load.input_tokens

    @property
    def output_tokens(self) -> int:
        """Mean tokens of an answer."""
        return self.current.load.output_tokens


class Choice(_Part):
    """The choice of inferno's own greedy method for a server."""

    accelerator: str
    replicas: Count = Field(alias="numreplicas")
    max_batch: Count = Field(alias="maxbatch")
    cost: NonNegative
    itl_ms: NonNegative = Field(alias="itlaverage")
    ttft_ms: NonNegative = Field(alias="ttftaverage")


class _Capacity(_Part):
    type: Name
    count: Count


class Inferno(BaseModel):
    """An instance of inferno. ``capacity`` is the number of GPUs by type, ``solution`` the Choice by server if the
    folder has
    one.
    """

    model_config = ConfigDict(frozen=True)

    accelerators: tuple[Accelerator, ...]
    profiles: tuple[ModelProfile, ...]
    service_classes: tuple[ServiceClass, ...]
    servers: tuple[Server, ...]
    capacity: dict[str, int]
    solution: dict[str, Choice]

    def target(self, server: Server) -> Target:
        """Return the target of a server's class for its model. Raises InputError if the class has no target for the
        model.
        """
        for one in self.service_classes:
            for target in one.targets:
                if (one.name, target.model) == (server.service_class, server.model):
                    return target
        raise InputError(
            f"server {server.name}: class {server.service_class} has no target for {server.model}; add it to "
            "serviceclass-data.json"
        )


def read_inferno(folder: str | Path) -> Inferno:
    """Read the instance in a folder of ``accelerator-data.json``, ``model-data.json`` and so on. Raises InputError if a
    file is missing, or a field is missing or not as it should be.
    """
    parts = {
        "accelerators": _part(folder, "accelerator", "accelerators", tuple[Accelerator, ...]),
        "profiles": _part(folder, "model", "models", tuple[ModelProfile, ...]),
        "service_classes": _part(folder, "serviceclass", "serviceclasses", tuple[ServiceClass, ...]),
        "servers": _part(folder, "server", "servers", tuple[Server, ...]),
    }
    counts = _part(folder, "capacity", "count", tuple[_Capacity, ...])
    solved = Path(folder, "solution-data.json").is_file()
    solution = _part(folder, "solution", "allocations", dict[str, Choice]) if solved else {}
    return Inferno(**parts, capacity={one.type: one.count for one in counts}, solution=solution)


def _part(folder: str | Path, name: str, key: str, kind: Any) -> Any:
    """The content of a file under a key, as objects of type ``kind``."""
    path = Path(folder, f"{name}-data.json")
    content = read_json(path)
    with written_by("inferno", f"{path}"):
        found = {field.lower(): value for field, value in content.items()}[key]
        return TypeAdapter(kind).validate_python(_lowered(found, key == "allocations"))


def _lowered(content: Any, names: bool = False) -> Any:
    """Content with lower-case keys; if ``names`` is set, the keys at the top are names and are kept."""
    if isinstance(content, list):
        return [_lowered(value) for value in content]
    if not isinstance(content, dict):
        return content
    return {key if names else key.lower(): _lowered(value) for key, value in content.items()}
