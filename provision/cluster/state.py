"""The state of a cluster or machine: what was read, where every value comes from, and what could not be known.

A state is one file. It holds the GPUs with what stands on them, an instance (the demand of what runs), and from both
the plan that runs. Pods that cannot be planned, because nobody told their model or no data describes it, stay on their
GPUs.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from provision.instances.files.files import FilePath, load, path_of, validate
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, Name, NonNegative, Positive, Record, Text
from provision.models.base.register import one_of
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance

KIND = "cluster-state"
Origin = Literal["observed", "measured", "fitted", "composed", "assumed", "typed in"]


class Provenance(Record):
    """Where a value comes from: ``observed`` on the cluster, ``measured`` by whoever made the performance data,
    ``fitted`` to measurements, ``composed`` from laws of operators, ``assumed``, or ``typed in``. ``source`` names it.
    """

    origin: Origin
    source: Text


class Question(Record):
    """What could not be known: its ``name``, by which ``--set NAME=VALUE`` answers it, the question, the value used,
    and what that value rests on.
    """

    name: Name
    question: Text
    default: Text
    because: Text


class StateSlice(Record):
    """A slice of a running GPU: its pods as ``namespace/name``, and the replicas among them that can be planned."""

    profile: Name
    start: Count = 0
    pods: tuple[Text, ...] = ()
    replicas: tuple[Replica, ...] = ()
    stays: Text = ""
    """Why the slice must stay as it is; empty if it may move."""


class StateGpu(Record):
    """A running GPU: the machine it is in, its number there, its type, and its slices. ``sharing`` is how processes
    share it outside MIG.
    """

    node: Name
    number: Count
    gpu: Name
    mig: Flag
    uuid: Text = ""
    sharing: Literal["none", "mps", "time-slicing"] = "none"
    slices: tuple[StateSlice, ...] = ()
    utilisation_percent: NonNegative | None = None
    memory_mib: NonNegative | None = None

    @property
    def stays(self) -> str:
        """Why the GPU must stay as it is; empty if it may change."""
        return next((piece.stays for piece in self.slices if piece.stays), "")

    @property
    def place(self) -> str:
        """The machine and the number of the GPU there, as text."""
        return f"{self.node}/{self.number}"

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of its pods."""
        return {pod.partition("/")[0] for piece in self.slices for pod in piece.pods}

    def planned(self) -> PlannedGpu:
        """The GPU as a plan describes it: its slices with replicas."""
        slices = [Slice(profile=piece.profile, start=piece.start, replicas=piece.replicas) for piece in self.slices
                  if piece.replicas]
        return PlannedGpu(gpu=self.gpu, mig=self.mig, slices=tuple(slices))


Percentile = tuple[NonNegative, NonNegative, NonNegative | None]
"""A percentile in ms with the ends of the histogram's bucket that holds it; None: the last bucket has no end."""


class Observation(Record):
    """What was observed of a workload over a window: rate, the percentiles of its latency, its mean batch, and the
    requests that this rests on. ``tokens`` has P50 and P99 of a language model's first tokens (``ttft``) and of the
    time per further token (``tpot``).
    """

    window_s: Positive
    requests: NonNegative
    rate_rps: NonNegative | None = None
    p50_ms: Percentile | None = None
    p99_ms: Percentile | None = None
    tokens: dict[Literal["ttft", "tpot"], tuple[Percentile, Percentile]] = Field(default={})
    mean_batch: NonNegative | None = None


class Budget(Record):
    """A PodDisruptionBudget: how many of its pods may be evicted now."""

    name: Text
    allowed: Count
    pods: tuple[Text, ...]


class State(Record):
    """A cluster as it was read. ``provenance`` is by the name of a value, such as ``rate_rps.shop/search``."""

    kind: Literal["cluster-state"] = "cluster-state"
    version: Literal[1] = 1
    name: Name
    sources: tuple[Text, ...]
    gpus: tuple[StateGpu, ...]
    instance: Instance
    observations: dict[Name, Observation] = Field(default={})
    provenance: dict[Name, Provenance] = Field(default={})
    questions: tuple[Question, ...] = ()
    notes: tuple[Text, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def plan(self) -> Plan:
        """The plan that runs: all GPUs with replicas."""
        running = tuple(gpu.planned() for gpu in self.gpus if any(piece.replicas for piece in gpu.slices))
        return Plan(version=1, instance=self.instance.name, method="running", gpus=running)

    def refuse_unknown(self, keep: Iterable[str]) -> None:
        """Refuse namespaces to keep that no GPU has a pod of. Raises InputError if there is one."""
        known = set().union(*(gpu.namespaces for gpu in self.gpus))
        for one in keep:
            if one not in known:
                raise InputError(f"--keep {one}: no GPU has a pod of this namespace; there are "
                                 f"{', '.join(sorted(known)) or 'none'}")

    def price_of(self, gpu: str) -> float | None:
        """The price of a GPU of a type per hour; None if it has none."""
        return next((entry.price_per_hour for entry in self.instance.fleet if entry.gpu == gpu), None)

    @property
    def per_hour(self) -> float | None:
        """The price of all GPUs per hour; None if one has none."""
        prices = [self.price_of(gpu.gpu) for gpu in self.gpus]
        return None if None in prices else sum(price for price in prices if price is not None)


def read_state(path: State | FilePath) -> State:
    """Read a state from a file. A State is returned as it is.

    Raises
    ------
    InputError
        If the file does not exist, is no state, or is one of an unknown version.
    """
    if isinstance(path, State):
        return path
    content = load(path_of(path, "state: should be a State"))
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError(f"{path}: is no state of a cluster; make one with provision import kubernetes or import gpus")
    if content.get("version") != 1:
        raise InputError(f"{path}: version: is {content.get('version')!r}, and this version of provision knows 1; "
                         "import the cluster again")
    return validate(State, content, path)


class Values:
    """Collects values with their provenance while a state is put together, and answers questions from ``--set``."""

    def __init__(self, typed: Mapping[str, str]) -> None:
        self.typed = dict(typed)
        self.provenance: dict[str, Provenance] = {}
        self.questions: list[Question] = []
        self.known: set[str] = set()

    def note(self, name: str, origin: Origin, source: str) -> None:
        """State where a value comes from."""
        self.provenance[name] = Provenance(origin=origin, source=source)

    def text(self, name: str, found: str | None, origin: Origin, source: str) -> str | None:
        """The value of a name: the one typed in, or else the one found; None if there is neither."""
        self.known.add(name)
        if name in self.typed:
            self.note(name, "typed in", f"--set {name}")
            return self.typed[name]
        if found is not None:
            self.note(name, origin, source)
        return found

    def number(self, name: str, found: float | None, origin: Origin, source: str) -> float | None:
        """The value of a name as a number; None if there is none. Raises InputError if it is negative or not finite."""
        text = self.text(name, None if found is None else repr(found), origin, source)
        try:
            value = None if text is None else float(text)
        except ValueError:
            value = -1.0
        if value is not None and not 0 <= value < float("inf"):
            where = f"--set {name}" if name in self.typed else source
            raise InputError(f"{where}: should be a number of 0 or more (got {text!r})")
        return value

    def asked(self, name: str, question: str, default: object, because: str) -> None:
        """Ask what could not be known, and state the default that is used."""
        self.known.add(name)
        self.note(name, "assumed", because)
        self.questions.append(Question(name=name, question=question, default=str(default), because=because))

    def refuse_unknown(self) -> None:
        """Refuse values typed in under names that nothing has. Raises InputError if there is one."""
        for name in self.typed:
            if name not in self.known:
                raise InputError(f"--set {name}: no value has this name; {one_of(name, sorted(self.known))}")
