"""Replays workflows, whose requests pass through several workloads. Their slices are replayed side by side.

A request reaches a workload when all workloads before it have answered, and is then routed to a replica like any other
request. Among events in the same nanosecond, requests that move on come last. If measured latencies say that a batch is
answered before its process is free, its requests move on when the process is free.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.plans.simulation_report import SimulationSettings
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import refuse_unequal_rates
from provision.models.problem.workflow import Workflow
from provision.simulation.deployment import Deployment, Place
from provision.simulation.kernel import FOREVER, Line, advance, next_ns


def refuse_without_stages(instance: Instance, deployment: Deployment, settings: SimulationSettings) -> None:
    """Refuse workflows that cannot be replayed: with options that do not support them, or with inconsistent stages.
    Raises InputError if a workflow cannot be replayed. The message names the option, or the workflow and its workload.
    """
    for option in ("trace", "queue_limit", "shadow"):
        if instance.workflows and getattr(settings, option):
            raise InputError(f"simulate: {option} is not for instances with workflows; leave one of them out")
    refuse_unequal_rates(instance)
    for workflow in instance.workflows:
        for name in workflow.workloads:
            if not deployment.places[name] and not deployment.engines.get(name):
                raise InputError(f"simulate: workflow {workflow.name}: {name} has no replica in the plan; give it one")


def arrivals_at_stages(instance: Instance, arrivals_ns: Iterable[Ints]) -> list[Ints]:
    """The arrivals of every workload. The first workloads of a workflow share one stream; those of later ones are not
    yet known.
    """
    found = dict(zip(instance.workload, arrivals_ns, strict=True))
    for workflow in instance.workflows:
        times_ns = found[workflow.order[0]]
        found |= {name: np.full(len(times_ns), FOREVER) if answers else times_ns
                  for name, answers in workflow.graph.in_degree()}
    return list(found.values())


Moved = tuple[int, int, int, int]
"""A request that moves on: the time in ns, the number of its flow, the request, and the index of its next workload."""


class _Flow:
    """The requests of a workflow. It counts for every workload how many answers a request still waits for.

    ``ready_ns`` is by workload the latest of the answers that a request has waited for. ``latest_ns`` is the time of
    its latest answer from any workload.
    """

    def __init__(self, number: int, workflow: Workflow, arrival_ns: Ints) -> None:
        self.number, self.graph, self.order, self.arrival_ns = number, workflow.graph, workflow.order, arrival_ns
        self.place = {name: place for place, name in enumerate(self.order)}
        self.left = {name: np.full(len(arrival_ns), answers) for name, answers in self.graph.in_degree()}
        self.ready_ns = {name: arrival_ns.copy() for name in self.order}
        self.latest_ns = arrival_ns.copy()

    def answer(self, request: int, name: str, done_ns: int) -> Iterator[Moved]:
        """Record a workload's answer, and yield the moves of the request to workloads that have waited only for this
        answer.
        """
        self.latest_ns[request] = max(self.latest_ns[request], done_ns)
        for after in self.graph.successors(name):
            self.left[after][request] -= 1
            self.ready_ns[after][request] = max(self.ready_ns[after][request], done_ns)
            if not self.left[after][request]:
                yield int(self.ready_ns[after][request]), self.number, request, self.place[after]


class _Post:
    """A replica of a workload in a workflow, with its requests in the order in which they reach it."""

    def __init__(self, place: Place, line: Line, flow: _Flow, workload: str, requests: list[int]) -> None:
        self.slice, self.at, self.line = place.slice, place.replica, line
        self.flow, self.workload, self.requests = flow, workload, requests
        self.first = int(line.replicas["end"][self.at - 1]) if self.at else 0
        self.taken = self.first
        self.open: list[int] = []

    def admit(self, request: int, now_ns: int) -> None:
        """Let a request from another workload arrive at ``now_ns``."""
        advance(self.line, now_ns)
        replica, place = self.line.replicas[self.at], self.first + len(self.requests)
        self.requests.append(request)
        self.line.arrival_ns[place] = now_ns
        if replica["upcoming"] == place:
            replica["arrive_ns"] = now_ns

    def answers(self) -> list[tuple[int, int]]:
        """The answers since the last call, as (request, time in ns)."""
        head = int(self.line.replicas["head"][self.at])
        self.open += range(self.taken, head)
        self.taken, waiting = head, self.open
        self.open = [place for place in waiting if not self.line.done_ns[place]]
        done = [place for place in waiting if self.line.done_ns[place]] if len(self.open) < len(waiting) else ()
        return [(self.requests[place - self.first], int(self.line.done_ns[place])) for place in done]


Door = tuple[list[_Post], Iterator[int]]
"""The posts of a workload, and the post of each of its requests in order of arrival."""


def play(instance: Instance, deployment: Deployment, lines: Sequence[Line], arrivals_ns: Iterable[Ints],
         owners: Mapping[str, Ints]) -> list[tuple[Ints, Ints]]:
    """Replay all slices, and send requests from workload to workload.

    Parameters
    ----------
    instance, deployment
        The Instance, the Deployment of the plan.
    lines
        The Line of every slice. Each is replayed to its end.
    arrivals_ns
        The result of `arrivals_at_stages`.
    owners
        By workload, the index of the replica of each request.

    Returns
    -------
    list of tuple
        For every workflow, the arrivals and last answers of its requests, in whole nanoseconds.
    """
    times_ns = dict(zip(instance.workload, arrivals_ns, strict=True))
    flows = [_Flow(number, one, times_ns[one.order[0]]) for number, one in enumerate(instance.workflows)]
    doors = {name: _door(deployment.places[name], lines, flow, name, owners[name])
             for flow in flows for name in flow.order}
    _play_all_but_last(flows, doors, lines)
    for line in lines:
        advance(line, FOREVER)
    for posts, _ in doors.values():
        _collect(posts)
    return [(flow.arrival_ns, flow.latest_ns) for flow in flows]


def _door(places: Sequence[Place], lines: Sequence[Line], flow: _Flow, name: str, owner: Ints) -> Door:
    """The posts of a workload, and the post of each request in the order of arrival."""
    first = not flow.graph.in_degree(name)
    posts = [
        _Post(place, lines[place.slice], flow, name, np.flatnonzero(owner == number).tolist() if first else [])
        for number, place in enumerate(places)
    ]
    return posts, iter(owner.tolist())


def _play_all_but_last(flows: Sequence[_Flow], doors: Mapping[str, Door], lines: Sequence[Line]) -> None:
    """Replay the slices of workloads that others follow, event by event, until no request moves on any more."""
    feeding: dict[int, list[_Post]] = {}
    for posts, _ in doors.values():
        for post in posts:
            if post.flow.graph.out_degree(post.workload):
                feeding.setdefault(post.slice, []).append(post)
    moving: list[Moved] = []
    while feeding:
        due_ns, at = min((next_ns(lines[at]), at) for at in feeding)
        if moving and moving[0][0] <= due_ns:
            now_ns, number, request, place = heappop(moving)
            posts, owner = doors[flows[number].order[place]]
            posts[next(owner)].admit(request, now_ns)
        elif due_ns == FOREVER:
            return
        else:
            advance(lines[at], due_ns + 1)
            for done_ns, *moved in _collect(feeding[at]):
                heappush(moving, (max(done_ns, due_ns), *moved))


def _collect(posts: Iterable[_Post]) -> list[Moved]:
    """Record all new answers of posts; return the requests that move on."""
    return [moved for post in posts for request, done_ns in post.answers()
            for moved in post.flow.answer(request, post.workload, done_ns)]
