"""``provision warm-up``: compile the kernels of the common methods, so that no first answer waits for them."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from provision.commands.common import add_json, counting, print_json
from provision.instances.files.files import validate
from provision.instances.read import read
from provision.models.base.compiled import unwarmed
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Policy
from provision.simulation.simulate import simulate
from provision.solving.solve import solve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


class Rehearsal(NamedTuple):
    """A short solve that calls the kernels of a way of sharing, with its plan's replay."""

    instance: str
    method: str = "auto"
    latency_budget: str = "half_slo"


REHEARSALS = (
    Rehearsal("parvagpu-s1"),
    Rehearsal("parvagpu-s1", latency_budget="queueing"),
    Rehearsal("igniter-motivation"),
    Rehearsal("igniter-motivation", latency_budget="queueing"),
    Rehearsal("igniter-motivation", "lns"),
    Rehearsal("parvagpu-s1-shared"),
    Rehearsal("gpulets-equal"),
)
SOLVE_S, REPLAY_S = 2.0, 1.0
"""Seconds for a solve, compilation not counted where a search does not notice it, and of replayed arrivals."""


def add_warm_up(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    began = perf_counter()
    compiled = warm_up()
    found: dict[str, Any] = {"kernels_compiled": compiled, "seconds": round(perf_counter() - began, 3)}
    if options.json:
        print_json(found)
    else:
        print(f"{compiled} kernels compiled in {found['seconds']:.1f} s; they are kept for later starts")
    return 0


def warm_up() -> int:
    """Call the kernels of the common methods; the number of those that had to be compiled."""
    before = unwarmed()
    with counting("compiling kernels", len(REHEARSALS)) as advance:
        for one in REHEARSALS:
            _rehearse(one)
            advance(1)
    return unwarmed() - before


def _rehearse(one: Rehearsal) -> None:
    instance = read(one.instance)
    policy = Policy(**instance.policy.model_dump() | {"latency_budget": one.latency_budget})
    fields = {name: getattr(instance, name) for name in Instance.model_fields}
    instance = validate(Instance, fields | {"policy": policy}, one.instance)
    result = solve(instance, one.method, SOLVE_S)
    if result.plan is not None:
        simulate(instance, result.plan, REPLAY_S)
