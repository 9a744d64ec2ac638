"""Converts inferno's instances to instances of this package, for the GPU types that are known here.

inferno's servers become workloads, its accelerators entries of the fleet, and its coefficients performance data: the
time of an iteration is alpha + beta per token + gamma per token in the KV caches. A replica on several GPUs has a whole
node with that number of GPUs. If several profiles of a model use the same number of GPUs, the profile of the
accelerator with the most GPUs is used, which is the fastest in inferno's samples. inferno's targets limit means; here
they limit a percentile of the requests.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from provision.instances.files.files import refused
from provision.instances.importers.importer import Imported, Importer, Source
from provision.instances.importers.tokens.inferno import Accelerator, Inferno, ModelProfile, Server, read_inferno
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import SIZES, UNIT, WHOLE, gpu_type
from provision.models.problem.instance import Instance

CENTS = 100
KNOWN = {"A100": "a100-80gb", "H100": "h100-80gb", "L4": "l4", "L40S": "l40s"}
"""GPU types of this package by the name of the accelerator in inferno's samples."""


class Converted(NamedTuple):
    """The instance, notes on everything that was left out or changed, and the names of the servers that were left out.
    """

    instance: Instance
    notes: tuple[str, ...]
    servers: tuple[str, ...]


class _Group(NamedTuple):
    """A number of GPUs of one of inferno's types that a replica uses together, and their cost in cents per hour."""

    type: str
    gpus: int
    cost: float


def inferno_instance(given: Inferno, name: str, percentile: float, types: Mapping[str, str] = KNOWN) -> Converted:
    """Make an instance of the accelerators that are GPUs of a known type, and of the servers whose models run on them.

    Parameters
    ----------
    given
        The content of inferno's files.
    name
        The name of the instance.
    percentile
        The percentage of the requests that must keep the targets.
    types
        GPU types of this package by inferno's types of accelerators.

    Raises
    ------
    InputError
        If a GPU type is unknown, no accelerator is left, or a server has no target for a latency.
    """
    kinds = {one.name: one for one in given.accelerators}
    notes: list[str] = []
    groups: dict[_Group, list[ModelProfile]] = {}
    for profile in sorted(given.profiles, key=lambda one: -kinds[one.accelerator].multiplicity):
        group = _group(kinds[profile.accelerator], profile)
        reason = _left_out(group, profile, groups, types)
        if reason:
            notes.append(reason)
        else:
            groups.setdefault(group, []).append(profile)
    if not groups:
        raise InputError(f"inferno: no accelerator is a GPU of a known type ({', '.join(sorted(kinds))}); name theirs "
                         f"with --gpus NAME=TYPE, known are {', '.join(types)}")
    known = {profile.name for profiles in groups.values() for profile in profiles}
    with refused("inferno"):
        instance = Instance(
            version=1, name=name, source="github.com/llm-inferno/sample-data",
            fleet=[_entry(given, one, types) for one in groups],
            performance=tuple(_performance(one, profiles, types) for one, profiles in groups.items()),
            workloads=[_workload(given, one, percentile) for one in given.servers if one.model in known],
        )
    notes += [f"{one}: its {count} GPUs are a limit for groups of each size here, not for all of them together"
              for one, count in given.capacity.items() if sum(group.type == one for group in groups) > 1]
    return Converted(instance, tuple(dict.fromkeys(notes)),
                    tuple(one.name for one in given.servers if one.model not in known))


def _group(kind: Accelerator, profile: ModelProfile) -> _Group:
    return _Group(kind.type, profile.accelerators * kind.multiplicity, profile.accelerators * kind.cost)


def _left_out(group: _Group, profile: ModelProfile, groups: Mapping[_Group, list[ModelProfile]],
              types: Mapping[str, str]) -> str | None:
    """A line that tells why a model is left out on a group of GPUs; None if it is not left out."""
    if group.type not in types:
        return f"left out: {group.type}, no GPU type here; --gpus {group.type}=TYPE says which one it is like"
    if group.gpus not in (1, *SIZES):
        return (f"left out: {profile.name} on {group.gpus} {group.type}, nodes here have "
                f"{', '.join(map(str, SIZES))} GPUs")
    alike = [(other, profiles) for other, profiles in groups.items() if other[:2] == group[:2]]
    where = f"left out: {profile.name} on {profile.accelerators} x {profile.accelerator}"
    if any(other.cost != group.cost for other, _ in alike):
        return f"{where}, other machines of {group.gpus} {group.type} have another price"
    if any(profile.name == one.name for _, profiles in alike for one in profiles):
        return f"{where}, taken from the machine with most of these {group.gpus} {group.type}"
    return None


def _gpu(group: _Group, types: Mapping[str, str]) -> str:
    """The name of the GPU type of a group; if the group has several GPUs, the name of a node with that many GPUs."""
    one = gpu_type(types[group.type]).name
    return one if group.gpus == 1 else gpu_type(f"{group.gpus}x{one}").name


def _entry(given: Inferno, group: _Group, types: Mapping[str, str]) -> dict[str, Any]:
    count = {"count": given.capacity[group.type] // group.gpus} if group.type in given.capacity else {}
    whole = {"mig": False} if group.gpus == 1 else {}
    return {"gpu": _gpu(group, types), "price_per_hour": group.cost / CENTS} | whole | count


def _performance(group: _Group, profiles: list[ModelProfile], types: Mapping[str, str]) -> dict[str, Any]:
    profile = WHOLE if group.gpus == 1 else f"{group.gpus}{UNIT}"
    return {"version": 1, "kind": "tokens", "name": f"inferno-{group.gpus}x{group.type.lower()}",
            "gpu": _gpu(group, types), "source": "inferno's coefficients",
            "models": {one.name: {"slices": {profile: _slice(one)}} for one in profiles}}


def _slice(one: ModelProfile) -> dict[str, Any]:
    costs = one.parameters
    return {"kv_tokens": one.max_batch * one.at_tokens, "step_ms": costs.alpha, "token_ms": costs.beta,
            "context_ms": costs.gamma}


def _workload(given: Inferno, server: Server, percentile: float) -> dict[str, Any]:
    target = given.target(server)
    rate_rps = max(server.rate_rps, target.tokens_per_s / server.output_tokens)
    limits = {name: value for name, value in (("ttft_ms", target.ttft_ms), ("tpot_ms", target.itl_ms)) if value}
    if len(limits) < 2:
        raise InputError(f"server {server.name}: class {server.service_class} asks {server.model} for no "
                         f"{'slo-itl' if target.ttft_ms else 'slo-ttft'}; add it to serviceclass-data.json")
    tokens = {"input": {"mean": server.input_tokens}, "output": {"mean": server.output_tokens}}
    return {"name": server.name, "model": server.model, "rate_rps": rate_rps, "tokens": tokens,
            "slo": {**limits, "percentile": percentile}, "min_replicas": server.min_replicas}


class InfernoFolder(Source):
    """A folder of inferno's."""

    path: str = operand("DIR", "the file to read")
    gpus: str = local("", "NAME=TYPE,...", "GPU types of its types of accelerators")
    percentile: Annotated[float, Field(gt=0, lt=100)] = local(
        99.0, "P", "of the requests that keep its targets, which are for means there")

    def read(self) -> Imported:
        """Read the folder."""
        pairs = [one.partition("=") for one in self.gpus.split(",") if one]
        types = {**KNOWN, **{name: gpu for name, _, gpu in pairs}}
        found = inferno_instance(read_inferno(self.path), Path(self.path).resolve().name, self.percentile, types)
        left_out = f"left out, as their models fit no GPU that is left: {', '.join(found.servers)}"
        return Imported(found.instance, (f"{len(found.instance.workloads)} workloads",),
                        (*found.notes, left_out) if found.servers else found.notes)


IMPORTER = Importer("a folder of inferno's, as an instance", InfernoFolder)
