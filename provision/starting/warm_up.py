"""Compiles the kernels of the common methods, so that the first answer need not wait for them."""

import logging
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from provision.draw.progress import counting
from provision.instances.files.files import validate
from provision.instances.read import read
from provision.models.base import compiled
from provision.models.base.compiled import unwarmed
from provision.models.fitting.tokens import FITTED, TYPICAL
from provision.models.problem.instance import Instance
from provision.simulation.simulate import simulate
from provision.solving.solve import solve

LANGUAGE_MODEL = "a language model"
"""The name of an instance that does not ship: one language model with coefficients that are usual on an H100."""


class Rehearsal(NamedTuple):
    """A short solve that calls the kernels of one way of sharing GPUs; with ``replay`` its plan is also replayed.

    ``instance`` is the name of a shipped instance, or LANGUAGE_MODEL.
    """

    instance: str
    method: str = "auto"
    latency_budget: str = "half_slo"
    replay: bool = False


REHEARSALS = (
    Rehearsal("igniter-testbed-12"),
    Rehearsal("igniter-motivation", "lns"),
    Rehearsal(LANGUAGE_MODEL, latency_budget="queueing", replay=True),
    Rehearsal("parvagpu-s1", latency_budget="queueing", replay=True),
    Rehearsal("gpulets-equal", replay=True),
    Rehearsal("igniter-motivation", latency_budget="queueing", replay=True),
)
"""All rehearsals. Neighbours in this list run at the same time; they are ordered so that neighbours have few kernels in
common.
"""
SOLVE_S, REPLAY_S = 2.0, 1.0
"""The time limit of a solve in seconds, which does not include compilation, and the seconds of replayed arrivals."""


def warm_up() -> int:
    """Call the kernels of the common methods, with a process per core; returns the number of kernels compiled."""
    processes = min(len(os.sched_getaffinity(0)), len(REHEARSALS))
    with (
        ProcessPoolExecutor(processes, get_context("spawn")) as pool,
        counting("compiling kernels", len(REHEARSALS)) as advance,
    ):
        kernels = 0
        for done in as_completed([pool.submit(_rehearse, one) for one in REHEARSALS]):
            kernels += done.result()
            advance(1)
    return kernels


def _rehearse(one: Rehearsal) -> int:
    """Run a rehearsal; returns the number of kernels that it had to compile."""
    logging.getLogger(compiled.__name__).setLevel(logging.ERROR)  # the user of this verb knows that kernels compile
    before = unwarmed()
    instance = _language_model() if one.instance == LANGUAGE_MODEL else read(one.instance)
    instance = instance.with_policy(latency_budget=one.latency_budget)
    result = solve(instance, one.method, SOLVE_S)
    if one.replay and result.plan is not None:
        simulate(instance, result.plan, REPLAY_S)
    return unwarmed() - before


def _language_model() -> Instance:
    """The instance LANGUAGE_MODEL: a chat with a model of 8 billion parameters on whole H100s."""
    slices = {"whole": {"kv_tokens": 400_000} | {f"{name}_ms": getattr(TYPICAL, name) for name in FITTED}}
    data = {
        "version": 1, "kind": "tokens", "name": "usual", "gpu": "h100-80gb", "models": {"llama-8b": {"slices": slices}}
    }
    workload = {
        "name": "chat", "model": "llama-8b", "rate_rps": 40.0, "slo": {"ttft_ms": 300.0, "tpot_ms": 20.0},
        "tokens": {"input": {"mean": 200}, "output": {"mean": 40}},
    }
    fields = {"version": 1, "name": "chat", "fleet": [{"gpu": "h100-80gb", "mig": False}], "performance": [data]}
    return validate(Instance, fields | {"workloads": [workload]}, LANGUAGE_MODEL)
