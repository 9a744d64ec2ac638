"""Where GPUs stand: nodes in zones and pools, and rules about which workloads stand where."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from provision.models.base.fields import Name, PositiveCount, Record, absent, empty
from provision.models.base.register import did_you_mean
from provision.models.hardware.gpu import split

Domain = Literal["node", "zone", "pool"]
Several = Annotated[tuple[Name, ...], Field(min_length=2)]
DOMAINS: tuple[Domain, ...] = ("node", "zone", "pool")


class Node(Record):
    """``count`` equal nodes with ``gpus`` GPUs of one type each, in a zone and a pool. With a count above 1 the nodes
    are called ``NAME-0``, ``NAME-1``, ...
    """

    name: Name
    gpu: Name
    gpus: PositiveCount
    count: Annotated[PositiveCount, Field(le=10_000)] = 1
    zone: Name | None = Field(default=None, exclude_if=absent)
    pool: Name | None = Field(default=None, exclude_if=absent)


class Spread(Record):
    """A workload has replicas in at least so many nodes, zones or pools."""

    workload: Name
    over: Domain
    at_least: Annotated[int, Field(strict=True, ge=2, le=1000)]


class Beside(Record):
    """Workloads stand in the same nodes, zones or pools (``together``), or share none of them (``apart``)."""

    workloads: Several
    on: Domain = "node"


class Within(Record):
    """A workload stands in these zones or pools alone."""

    workload: Name
    zones: tuple[Name, ...] = Field(default=(), exclude_if=empty)
    pools: tuple[Name, ...] = Field(default=(), exclude_if=empty)

    @property
    def allowed(self) -> dict[Domain, tuple[str, ...]]:
        """The zones and the pools, where they are limited."""
        both: dict[Domain, tuple[str, ...]] = {"zone": self.zones, "pool": self.pools}
        return {kind: names for kind, names in both.items() if names}


class Quota(Record):
    """The workloads of a tenant stand on at most so many GPUs."""

    tenant: Name
    workloads: Annotated[tuple[Name, ...], Field(min_length=1)]
    at_most: PositiveCount


class Losses(Record):
    """What may fail as a whole: after the loss of any one zone or any one node the others carry every rate."""

    zone: Literal[1] | None = Field(default=None, exclude_if=absent)
    node: Literal[1] | None = Field(default=None, exclude_if=absent)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """What may be lost."""
        return tuple(one for one in ("node", "zone") if getattr(self, one))


class Machine(NamedTuple):
    """One node: its name, the type and number of its GPUs, its zone and its pool."""

    name: str
    gpu: str
    gpus: int
    zone: str | None
    pool: str | None

    def domain(self, kind: Domain) -> str | None:
        """The node, zone or pool that it belongs to."""
        return self.name if kind == "node" else self.zone if kind == "zone" else self.pool


class Places(Record):
    """Nodes, and rules about where workloads stand. Every GPU of a plan is on a node with GPUs of its type; a GPU type
    such as ``8xh100-80gb`` takes eight GPUs of one node.
    """

    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    spread: tuple[Spread, ...] = Field(default=(), exclude_if=empty)
    together: tuple[Beside, ...] = Field(default=(), exclude_if=empty)
    apart: tuple[Beside, ...] = Field(default=(), exclude_if=empty)
    within: tuple[Within, ...] = Field(default=(), exclude_if=empty)
    quotas: tuple[Quota, ...] = Field(default=(), exclude_if=empty)
    survive: Losses | None = Field(default=None, exclude_if=absent)

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """All nodes, one by one."""
        return tuple(
            Machine(one.name if one.count == 1 else f"{one.name}-{at}", one.gpu, one.gpus, one.zone, one.pool)
            for one in self.nodes for at in range(one.count))

    @property
    def losses(self) -> tuple[Domain, ...]:
        """The kinds of domains of which any one may be lost."""
        return self.survive.domains if self.survive else ()

    @property
    def kinds(self) -> set[Domain]:
        """The kinds of domains that rules are about, except for zones and pools in which workloads stand alone."""
        return {one.over for one in self.spread} | {one.on for one in (*self.together, *self.apart)} | {*self.losses}

    @property
    def ruled(self) -> set[str]:
        """The workloads that rules name."""
        return {name for name, _ in self._named()}

    def of(self, workloads: Iterable[str]) -> Self:
        """These nodes with the rules about some workloads alone."""
        names, rules = {*workloads}, dict[str, tuple[Record, ...]]()
        for field in ("spread", "within"):
            rules[field] = tuple(one for one in getattr(self, field) if one.workload in names)
        for field, least in (("together", 2), ("apart", 2), ("quotas", 1)):
            several = [(one, tuple(name for name in one.workloads if name in names)) for one in getattr(self, field)]
            rules[field] = tuple(one.model_copy(update={"workloads": left}) for one, left in several
                                 if len(left) >= least)
        return self.model_copy(update=rules)

    def domains(self, kind: Domain) -> list[str]:
        """The names of all nodes, zones or pools."""
        return list(dict.fromkeys(name for one in self.machines if (name := one.domain(kind)) is not None))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        twice = [name for name, many in Counter(one.name for one in self.machines).items() if many > 1]
        if twice:
            raise ValueError(f"nodes: {twice[0]!r} stands twice; give each node a name of its own")
        for at, one in enumerate(self.spread):
            there = len(self.domains(one.over))
            if one.at_least > there:
                raise ValueError(f"spread[{at}].at_least: {one.workload} over {one.at_least} {one.over}s, and there "
                                 f"are {there}; lower it or add nodes")
        both = {pair for one in self.together for pair in _pairs(one)} & {pair for one in self.apart
                                                                          for pair in _pairs(one)}
        for first, second, kind in sorted(both):
            raise ValueError(f"apart: {first} and {second} are to stand together on a {kind} and apart; drop one rule")
        for kind in self.losses:
            if len(self.domains(kind)) < 2:
                raise ValueError(f"survive.{kind}: there is one {kind} at most, and none survives its loss; add nodes")
        for at, quota in enumerate(self.quotas):
            for rule in self.spread:
                if rule.workload in quota.workloads and rule.at_least > quota.at_most:
                    raise ValueError(f"quotas[{at}].at_most: {quota.at_most} GPUs, and {rule.workload} is to stand in "
                                     f"{rule.at_least} {rule.over}s; raise the quota")
        return self

    def check(self, workloads: Iterable[str], fleet: Iterable[str]) -> None:
        """Refuse rules for workloads that there are not, and GPU types that fit no node.

        Raises
        ------
        ValueError
            The message names the field and a remedy.
        """
        known = set(workloads)
        for name, field in self._named():
            if name not in known:
                raise ValueError(f"places.{field}: no workload {name!r}{did_you_mean(name, known)}")
        for at, one in enumerate(self.within):
            for kind, allowed in one.allowed.items():
                there = self.domains(kind)
                for name in allowed:
                    if name not in there:
                        raise ValueError(f"places.within[{at}].{kind}s: no node is in {kind} {name!r}"
                                         f"{did_you_mean(name, there)}")
        for gpu in fleet:
            many, base = split(gpu)
            largest = max((one.gpus for one in self.machines if one.gpu == base), default=0)
            if many > largest:
                raise ValueError(f"places.nodes: {gpu} takes {many} GPUs of type {base} on one node, and the largest "
                                 f"node has {largest}; add such a node or leave {gpu} out of the fleet")

    def count_of(self, gpu: str) -> int:
        """The most GPUs of a type of the fleet that the nodes hold together."""
        many, base = split(gpu)
        return sum(one.gpus // many for one in self.machines if one.gpu == base)

    def _named(self) -> Iterator[tuple[str, str]]:
        """Yield every workload that a rule names, and the rule."""
        yield from ((one.workload, f"spread[{at}].workload") for at, one in enumerate(self.spread))
        yield from ((one.workload, f"within[{at}].workload") for at, one in enumerate(self.within))
        for field in ("together", "apart", "quotas"):
            yield from ((name, f"{field}[{at}].workloads") for at, one in enumerate(getattr(self, field))
                        for name in one.workloads)


def _pairs(one: Beside) -> set[tuple[str, str, str]]:
    return {(*sorted(pair), one.on) for pair in combinations(one.workloads, 2)}  # type: ignore[misc]
