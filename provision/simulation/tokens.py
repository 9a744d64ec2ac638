"""Replays the replicas of language models. Each is an engine of its own with the requests that are routed to it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.performance.operating_points import Member
from provision.models.performance.tokens.data import TokenModels, TokenSlice
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.requests import RequestTokens
from provision.models.plans.plan import Plan, Replica
from provision.models.plans.simulation_report import SimulationSettings
from provision.models.problem.instance import Instance
from provision.simulation.kernel import NS_PER_MS, NS_PER_S

NAMES = ("TTFT", "TPOT")
"""The names, after the workload's name in a report, of the times that are measured besides the whole answer."""
LARGEST_SEED = 2**31


class FurtherLimit(NamedTuple):
    """A limit on tokens: its name in a report, the limit in ms, the index of its workload, and its row in ``took_ns``.
    """

    name: str
    slo_ms: float
    workload: int
    row: int


class TokenReplica(NamedTuple):
    """A replica of a language model: its engine, the rate routed to it in requests/s, and the index of its GPU."""

    costs: TokenSlice
    engine: Engine
    rate_rps: float
    gpu: int


class Answers(NamedTuple):
    """Requests that were answered: their indices, arrival times and latencies in whole ns, and prompt tokens.

    Arrays have the shape (requests,). ``took_ns`` is (3, requests): the time to the first token, per further token, and
    of the whole answer.
    """

    at: Ints
    arrived_ns: Ints
    took_ns: Ints
    prompt: Ints


def token_replicas(instance: Instance, plan: Plan) -> dict[str, list[TokenReplica]]:
    """The replicas of every workload that has tokens, by its name. Raises InputError if a replica shares its slice, or
    if no performance data describes it.
    """
    found: dict[str, list[TokenReplica]] = {one.name: [] for one in instance.workloads if one.tokens}
    for at, position, piece, replica in plan.replicas():
        if replica.workload in found:
            where = f"plan: GPU {at}, slice {position}: {replica.workload}"
            if len(piece.replicas) > 1:
                raise InputError(f"{where} shares its slice, which language models do not here; give it one of its own")
            found[replica.workload].append(_described(instance, plan, at, piece.profile, replica, where))
    return found


def _described(instance: Instance, plan: Plan, at: int, profile: str, replica: Replica, where: str) -> TokenReplica:
    gpu, model, tokens = plan.gpus[at].gpu, instance.model_of(replica), instance.workload[replica.workload].tokens
    data = instance.performance_of(gpu, model)
    member = Member(model, replica.batch, replica.processes, replica.sm_share, tokens=tokens)
    if not isinstance(data, TokenModels) or data.predict(profile, [member])[0] is None:
        raise InputError(f"{where}: no performance data for its tokens at batch {replica.batch} on {profile}")
    return TokenReplica(data.models[model].slices[profile], data.engine_of(model, profile, replica.batch),
                        replica.rate_rps, at)


def token_parts(replicas: Sequence[TokenReplica], lost: int | None = None) -> list[float]:
    """The fraction of a workload's requests that each replica gets: in proportion to the rates, and 0 on a lost GPU."""
    rates = [0.0 if one.gpu == lost else one.rate_rps for one in replicas]
    return [rate / sum(rates) if sum(rates) else 1 / len(rates) for rate in rates]


def refuse_settings(settings: SimulationSettings) -> None:
    """Refuse options that the engines of language models do not support. Raises InputError if such an option is set.
    The message names it.
    """
    for option in ("queue_limit", "max_delay_ms", "service_cv", "shadow"):
        if getattr(settings, option):
            raise InputError(f"simulate: {option} is not for language models; leave it out")


def answered_ns(replicas: Sequence[TokenReplica], tokens: RequestTokens, arrivals_ns: Ints, owners: Ints,
                settings: SimulationSettings, random: np.random.Generator, prompt: Ints | None = None) -> Answers:
    """Replay the requests of a workload, replica by replica, and return those that were answered.

    Requests that had not been answered when their GPU failed are left out.

    Parameters
    ----------
    replicas, tokens
        The replicas of the workload, and the tokens of its requests.
    arrivals_ns, owners
        (requests,) the ascending arrival times, and the replica of each request.
    settings
        The settings, whose ``service_factor`` multiplies all times of the engines.
    random
        The generator with which numbers of tokens are drawn.
    prompt
        (requests,) the tokens of the prompts, if an earlier stage has drawn them.
    """
    from provision.models.performance.tokens.operating import costs_of, part_of, timed_ms

    found = []
    for number, one in enumerate(replicas):
        mine, seed = np.flatnonzero(owners == number), int(random.integers(LARGEST_SEED))
        scaled = costs_of(one.costs).scaled(settings.service_factor)
        given = tokens.input.counts.sample(len(mine), seed) if prompt is None else prompt[mine]
        output = tokens.output.counts.sample(len(mine), seed + 1)
        times_ms = timed_ms(arrivals_ns[mine] / NS_PER_MS, given, output, one.engine, scaled, seed, part_of(tokens))
        took_ns = np.rint(times_ms * NS_PER_MS).astype(np.int64)
        ends_s = settings.fail.at_s if settings.fail and one.gpu == settings.fail.gpu else np.inf
        kept = arrivals_ns[mine] + took_ns[-1] <= ends_s * NS_PER_S
        found.append(Answers(mine[kept], arrivals_ns[mine][kept], took_ns[:, kept], given[kept]))
    return Answers(*(np.concatenate(column, axis=-1) for column in zip(*found, strict=True)))


def further_limits(instance: Instance) -> list[FurtherLimit]:
    """The limits on tokens of all workloads, in the order of workloads."""
    return [FurtherLimit(f"{one.name}: {name}", limit_ms, at, row) for at, one in enumerate(instance.workloads)
            if one.tokens for row, (name, limit_ms) in enumerate(zip(NAMES, one.limits.times_ms, strict=False))
            if np.isfinite(limit_ms)]
